"""The copy is a copy (13)."""

from __future__ import annotations

from tests.simulation.inspection import state
from tests.simulation.journal import Violation
from tests.simulation.machine import Machine


def check_copies_13(primary: Machine, backup: Machine) -> None:
    """At a quiet point the backup's objects and messages are the primary's (13; 14 for one that rejoined)."""
    ours, theirs = state(primary), state(backup)
    if ours == theirs:
        return
    for part in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(part, []), theirs.get(part, [])
        if one != other:
            only, extra = [x for x in one if x not in other], [x for x in other if x not in one]
            raise Violation(
                13, f"{part}: {len(only)} only on primary {primary.name} {only[:3]}, "
                f"{len(extra)} only on backup {backup.name} {extra[:3]}",
            )  # fmt: skip
