"""Who is configured to another promise is not taken in: 4, as the record would count on it.

Looked into when a node begins to catch up, against whoever serves in the epoch that it follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.checkers.facts import SERVING
from tests.simulation.journal import Violation
from tests.simulation.machine import Machine


class Terms4:
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
            if other.settings.lease != mine.lease:
                told = f"{mine.lease:g} s, where {other.name} has {other.settings.lease:g} s"
                raise Violation(
                    4, f"{machine.name} catches up with {other.name}, with a lease of {told}"
                )  # fmt: skip
