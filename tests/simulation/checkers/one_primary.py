"""One primary: what may serve, when, and in which epoch (8, 9)."""

from __future__ import annotations

from tests.simulation import wire
from tests.simulation.checkers.facts import SERVICE, SERVING
from tests.simulation.journal import Violation
from tests.simulation.machine import Machine


class Serving8and9:
    """8: one node serves in an epoch, and at any instant. 9: epochs never repeat or go back."""

    def __init__(self, machines: list[Machine]) -> None:
        self.machines = machines
        self.owners: dict[int, tuple[str, int]] = {}

    def output(self, machine: Machine, connection: str, methods: list[wire.Method]) -> None:
        if not any(m.name in SERVICE for m in methods):
            return
        epoch = machine.running.core.epoch
        who = (machine.name, machine.life)
        owner = self.owners.get(epoch)
        if owner is None:
            if self.owners and epoch < max(self.owners):
                raise Violation(9, f"{machine.name} serves in epoch {epoch} after epoch {max(self.owners)}")
            self.owners[epoch] = who
        elif owner[0] != machine.name:
            raise Violation(8, f"{machine.name} and {owner[0]} both serve in epoch {epoch}")
        elif owner != who:
            raise Violation(9, f"life {who[1]} of {who[0]} serves in epoch {epoch} of life {owner[1]} again")
        for other in self.machines:
            if other is not machine and other.role() in SERVING:
                raise Violation(8, f"{machine.name} serves while {other.name} is {other.role()}")
