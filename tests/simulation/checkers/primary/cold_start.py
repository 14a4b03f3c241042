"""The outcome of a cold start does not depend on the order in which the nodes start (12).

When the last process of a run has ended, its disks are copied, every other time about: it takes as long as
the rest of a seed. The copies are started in worlds of their own,
in two orders, and each running node is asked in turn to become primary, until one does: what the two then
serve must be the same. Transient messages are not compared: the disk of one that was alone may still have
some, and of two in-sync copies either may be promoted.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from tests.simulation.checkers.records import Register
from tests.simulation.clients.rule_user import waiting_of, way_of
from tests.simulation.clients.topology import WATCH
from tests.simulation.harness import register as authority
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.inspection import definitions, replicated
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.machines.virtual_disk import VirtualDisk
from tests.simulation.harness.network import Network
from tests.simulation.harness.plan import Plan

PATIENCE = 6.0
"""Seconds that an answer may take: the others are asked, and a lease may have to run out."""
ROUNDS = 4
"""Times that each node is asked, when all have started."""


class ColdStarts12:
    """Told of deaths; `clock` is the run's own."""

    def __init__(
        self, clock: Clock, plan: Plan, machines: Sequence[Machine], register: Register | None
    ) -> None:
        self.register = register
        self.clock = clock
        self.plan = plan
        self.machines = machines
        self.tried = 0
        self._random = plan.random("cold starts")

    def killed(self, machine: Machine) -> None:
        """It is about to end. What its disk keeps is decided by then: look in a moment."""
        last = all(other is machine or other.node is None for other in self.machines)
        if last and self._random.random() < 0.5:
            self.clock.after(0.0, self._try)

    def _try(self) -> None:
        if any(machine.node is not None for machine in self.machines):
            return
        self.tried += 1
        order = list(self.machines)
        one, other = (Replay(self.plan, some, self.register).outcome() for some in (order, order[::-1]))
        if one == other:
            return
        names = [found[0] if found is not None else "nobody" for found in (one, other)]
        if one is None or other is None or one[1:] != other[1:]:
            raise Violation(
                12, f"a cold start of {', '.join(m.name for m in order)} makes {names[0]} primary, and in "
                f"the other order {names[1]}, with other contents",
            )  # fmt: skip


class Replay:
    """The disks of machines that are down, started in the order given, with what the register held."""

    def __init__(self, plan: Plan, order: Sequence[Machine], register: Register | None) -> None:
        self.clock = Clock(keep=1)
        network = Network(self.clock, plan.network, plan.random)
        self.machines = []
        held = authority.Register(self.clock, network, plan.register, plan.random)
        held.history += register.history[-1:] if register is not None else []
        for machine in order:
            planned = next(p for p in plan.machines if p.name == machine.name)
            again = Machine(
                self.clock, network, plan.random(f"replay/{machine.name}"), planned, machine.address,
                machine.settings, lambda machine, connection, data: None,
            )  # fmt: skip
            again.disk = _copy(machine.disk)
            again.ask_authority = held.ask if register is not None else None
            self.machines.append(again)
        self.primary: Machine | None = None
        self._passing = {WATCH}
        """Queues whose contents depend on who was promoted, which is told there, or when."""
        for user in plan.rules:
            if user.timed or user.cycle:
                self._passing |= {*way_of(user), waiting_of(user)}
            elif user.limited or user.steps:
                # What is over the limit becomes a dead letter at the promotion, and says when (x-death).
                self._passing |= set(way_of(user)[1:])

    def outcome(self) -> tuple[str, list[str], dict[tuple[str, str], Any]] | None:
        """Who was promoted, and what it then serves; None if nobody was."""
        for started, machine in enumerate(self.machines, 1):
            machine.start()
            self._ask(self.machines[:started])
        for _ in range(ROUNDS):
            self._ask(self.machines)
        if self.primary is None:
            return None
        held = {
            of: [message for message in found if message.persistent]
            for of, found in replicated(self.primary).items()
            if of[0] not in self._passing
        }
        return self.primary.name, definitions(self.primary), held

    def _ask(self, machines: Sequence[Machine]) -> None:
        if self.primary is not None:
            return
        self.clock.run(self.clock.now + 0.3)
        for machine in machines:
            if self.primary is None and machine.node is not None:
                replies: list[dict[str, Any]] = []
                machine.node.manage("promote", {}, replies.append, machine.host.now)
                machine.tick_soon()
                limit = self.clock.now + PATIENCE
                while not replies and self.clock.now < limit:
                    self.clock.run(self.clock.now + 0.1)
                if replies and replies[0]["ok"]:
                    self.primary = machine


def _copy(disk: VirtualDisk) -> VirtualDisk:
    """As it is, in working order."""
    again = copy.deepcopy(disk)
    again.failing.clear()
    again.room = again.crash_at = None
    return again
