"""The copy is a copy by the nodes' own judgement, too (13)."""

from __future__ import annotations

from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine

AGAIN = "; it is fetched again from "
"""Says a backup of a queue that it found to differ from its primary's, or that could not take an event."""


class Compared13:
    """13: no node finds its copy of a queue to be none, unless somebody has spoilt it; then it does. The
    mending of a difference would hide from all others what made it."""

    def __init__(self) -> None:
        self.found = 0
        self.mended: set[str] = set()
        """Who has found a difference since it was started."""

    def started(self, machine: Machine) -> None:
        self.mended.discard(machine.name)

    def heard(self, machine: Machine, sentence: str) -> None:
        what, again, _ = sentence.partition(AGAIN)
        if again and not machine.spoilt:
            raise Violation(13, f"{machine.name} finds that {what}, and nobody has spoilt it")
        if again:
            self.found += 1
            self.mended.add(machine.name)

    def differs(self, machine: Machine, seconds: float, limit: float) -> None:
        """It does, for so long."""
        if seconds > limit:
            raise Violation(
                13, f"the copy of {machine.name} has differed for {limit:g} s, and it has not noticed"
            )
