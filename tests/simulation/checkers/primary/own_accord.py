"""Under `pair` no node takes over by its own accord but for a client, nor against an order (11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.simulation.checkers.facts import SERVING
from tests.simulation.checkers.records import Promotion, Records
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Address

ASKED = 16.0
"""Seconds in which a promotion may be what an operator has asked for."""


DEMOTED = "stops serving: demoted by the operator"


class OwnAccord11:
    """11: a node that follows a primary which died, or stands still, needs a client that tried to get in
    there since: probes, operators and other nodes are none. And a node that an operator ordered to stand by
    leaves it to the other one, while that runs, may serve, and has no order itself.

    `asked`: when an operator last asked that node for a promotion.
    """

    def __init__(
        self, clock: Clock, machines: Sequence[Machine], records: Records, asked: Mapping[str, float]
    ) -> None:
        self.clock = clock
        self.machines = machines
        self.asked = asked
        self.checked = 0
        self._tried: dict[Address, float] = {}
        self._gone: dict[str, tuple[float, bool]] = {}
        """Since when a machine is down or stands still, and whether it served."""
        self._ordered: dict[str, int] = {}
        """The life that has an order."""
        records.on_promotion.append(self.promoted)

    def tried(self, address: Address) -> None:
        """A client has logged in there, and asked to be let in."""
        self._tried[address] = self.clock.now

    def left(self, machine: Machine) -> None:
        """It is about to be killed, or to stand still."""
        self._gone.setdefault(machine.name, (self.clock.now, machine.role() in SERVING))

    def back(self, machine: Machine) -> None:
        self._gone.pop(machine.name, None)

    def heard(self, machine: Machine, sentence: str) -> None:
        """An operator has made it stop serving."""
        if DEMOTED in sentence:
            self._ordered[machine.name] = machine.life

    def tick(self, machine: Machine) -> None:
        backup = machine.running.core.backup
        if backup is None or backup.linked:
            self._ordered.pop(machine.name, None)

    def promoted(self, promotion: Promotion) -> None:
        machine, now = promotion.machine, promotion.at
        if promotion.before is None or now - self.asked.get(machine.name, -ASKED) < ASKED:
            return
        other = next(other for other in self.machines if other is not machine)
        heartbeat = machine.settings.tuning().heartbeat
        gone, served = self._gone.get(other.name, (now, False))
        if served:
            self.checked += 1
            if self._tried.get(machine.address, -ASKED) < gone - 2 * heartbeat:
                raise Violation(
                    11, f"{machine.name} takes over from {other.name}, and no client has tried it since"
                )
        elif self._stands(machine):
            self.checked += 1
            able = other.name not in self._gone and not self._stands(other)
            if able and (other.role() == "ready" or other.status().get("promotable")):
                raise Violation(
                    11, f"{machine.name} takes over against an order, and {other.name} is there to serve"
                )

    def _stands(self, machine: Machine) -> bool:
        return self._ordered.get(machine.name) == machine.life
