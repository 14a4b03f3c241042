"""Who is configured to another promise is not taken in: 4, as the record would count on it.

Looked into when a node begins to catch up, against whoever serves in the epoch that it follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.simulation.checkers.facts import SERVING
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine

if TYPE_CHECKING:
    from ha.adapter.settings import HaSettings

COMPATIBILITY: dict[str, Callable[[HaSettings], object]] = {
    "a lease of": lambda settings: settings.lease,
    "a level of": lambda settings: settings.replicate or "all",
    "a policy of": lambda settings: settings.on_backup_loss,
    "a least number of backups of": lambda settings: settings.min_backups,
    "an authority of": lambda settings: settings.authority,
}
"""What a confirm, or the safety of a failover, would mean something else by."""


class Compatibility4:
    """`machines`: all there are."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = machines
        self.checked = 0
        self._known: dict[str, tuple[int, str]] = {}

    def tick(self, machine: Machine) -> None:
        now = (machine.life, machine.role())
        if now == self._known.get(machine.name):
            return
        self._known[machine.name] = now
        if machine.role() != "catch-up":
            return
        mine, epoch = machine.settings, machine.running.core.epoch
        for other in self.machines:
            if other is machine or other.role() not in SERVING or other.running.core.epoch != epoch:
                continue
            self.checked += 1
            for what, read in COMPATIBILITY.items():
                own, its = read(mine), read(other.settings)
                if own != its:
                    raise Violation(
                        4, f"{machine.name} catches up with {other.name}, with {what} {own!r}, where "
                        f"{other.name} has {its!r}",
                    )  # fmt: skip
