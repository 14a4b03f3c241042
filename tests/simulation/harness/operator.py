"""The operator: looks after the cluster by the management method; promotes when the primary is dead; retries.

Stands for a person who knows which processes run. Promotes unforced only, and, as `manual` asks for, not
while a primary lives: `ask` is what an impatient one does all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from tests.simulation.clients.session import Session, SessionOwner
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Network
from tests.simulation.harness.plan import OperatorPlan

SERVING = frozenset({"active", "recovering"})
PATIENCE = 3
"""Refusals of one node after which the next one that runs is tried."""

Reply = dict[str, Any]


class Question(SessionOwner):
    """One management command on a connection of its own. `answer` gets the reply, or None for no reply."""

    def __init__(
        self, clock: Clock, network: Network, machine: Machine, command: str,
        answer: Callable[[Reply | None], None], *, asker: str = "operator", limit: float = 6.0,
        args: dict[str, object] | None = None,
    ) -> None:  # fmt: skip
        self.text = json.dumps({"command": command, "args": args or {}})
        self.answer = answer
        self.session = Session(
            clock, network, asker, machine.address, self,
            properties={"capabilities": {"understudy.management": True}},
        )  # fmt: skip
        self._limit = clock.after(limit, self._too_late)

    def ready(self, session: Session) -> None:
        session.call("manage", self._answered, json=self.text)

    def _answered(self, name: str, arguments: dict[str, Any], body: bytes) -> None:
        self._limit.cancel()
        self.session.close(clean=True)
        self.answer(json.loads(arguments["json"]))

    def lost(self, session: Session, code: int, why: str) -> None:
        self._limit.cancel()
        self.answer(None)

    def _too_late(self) -> None:
        self.session.close(clean=False)
        self.answer(None)


class Management:
    """Who asks for promotions, demotions and switchovers; of the first and the last it counts successes."""

    def __init__(self, clock: Clock, network: Network, name: str) -> None:
        self.clock = clock
        self.network = network
        self.name = name
        self.promotions = 0
        self.switchovers = 0
        self.refusals: list[str] = []
        self.asked: dict[str, float] = {}
        """When each machine was last asked to be promoted."""

    def ask(self, machine: Machine) -> None:
        """For a promotion, unforced."""
        self.clock.note(f"{self.name}: promote {machine.name}")
        self.asked[machine.name] = self.clock.now
        Question(
            self.clock, self.network, machine, "promote", partial(self.answered, machine), asker=self.name
        )

    def force(self, machine: Machine, done: Callable[[bool], None]) -> None:
        """Promote it, whatever is lost; whether that was done."""
        self.clock.note(f"{self.name}: promote {machine.name}, force-lossy")
        self.asked[machine.name] = self.clock.now

        def answered(reply: Reply | None) -> None:
            Management.answered(self, machine, reply)
            done(reply is not None and bool(reply.get("ok")))

        Question(
            self.clock, self.network, machine, "promote", answered, asker=self.name, limit=15.0,
            args={"force_lossy": True},
        )  # fmt: skip

    def demote(self, machine: Machine, done: Callable[[], None]) -> None:
        """Take the primary's role away; another is to get it."""

        def answered(reply: Reply | None) -> None:
            self.clock.note(f"{self.name}: {machine.name} answers: {_says(reply)}")
            done()

        Question(self.clock, self.network, machine, "demote", answered, asker=self.name)

    def switch_over(self, machine: Machine, to: str | None, done: Callable[[], None]) -> None:
        """Have `machine` hand over to that one, or to whom it likes; wait until it has, or has not."""
        self.clock.note(f"{self.name}: {machine.name}, switch over to {to or 'whoever is best'}")

        def answered(reply: Reply | None) -> None:
            if reply is not None and reply.get("ok"):
                self.switchovers += 1
            self.clock.note(f"{self.name}: {machine.name} answers: {_says(reply)}")
            done()

        Question(
            self.clock, self.network, machine, "switchover", answered, asker=self.name, limit=15.0,
            args={"to": to},
        )  # fmt: skip

    def answered(self, machine: Machine, reply: Reply | None) -> None:
        """The answer to a promotion."""
        why = "no answer" if reply is None else str(reply.get("reason"))
        if reply is not None and reply.get("ok"):
            if "already" not in why:
                self.promotions += 1
            self.clock.note(f"{self.name}: {machine.name} is promoted: {why}")
        else:
            self.refusals.append(why)
            self.clock.note(f"{self.name}: {machine.name} refuses: {why}")


class Operator(Management):
    """See the module."""

    def __init__(
        self, clock: Clock, network: Network, rng: Random, plan: OperatorPlan, machines: list[Machine]
    ) -> None:
        super().__init__(clock, network, "operator")
        self.plan = plan
        self.machines = machines
        self.rng = rng
        self.candidate = next(m for m in machines if m.name == plan.first)
        self._asking = 0
        self._refused = 0
        clock.after(plan.every, self._look)

    def _look(self) -> None:
        wait = self.plan.every * (0.5 + self.rng.random()) * (2 if self._refused else 1)
        self.clock.after(wait, self._look)
        if self._asking:
            return
        if any(m.role() in SERVING for m in self.machines):
            self._refused = 0
            return
        asked = self._candidates()
        for machine in asked:
            self.ask(machine)

    def _candidates(self) -> list[Machine]:
        """Whom to ask now: mostly one, the ready ones first; of who refused often, the next in turn."""
        running = [m for m in self.machines if m.node is not None]
        if not running:
            return []
        ready = [m for m in running if m.role() == "ready"]
        if self.candidate not in running or (ready and self.candidate not in ready and not self._refused):
            self.candidate = self.rng.choice(ready or running)
        elif self._refused >= PATIENCE:
            self._refused = 0
            self.candidate = running[(running.index(self.candidate) + 1) % len(running)]
        asked = [self.candidate]
        if self.plan.both and self.rng.random() < 0.3:
            asked += [m for m in ready or running if m is not self.candidate][:1]
        if self.plan.twice:
            asked.append(self.candidate)
        return asked

    def ask(self, machine: Machine) -> None:
        self._asking += 1
        super().ask(machine)

    def answered(self, machine: Machine, reply: Reply | None) -> None:
        self._asking -= 1
        self._refused = 0 if reply is not None and reply.get("ok") else self._refused + 1
        super().answered(machine, reply)


class Console:
    """Somebody who looks at the nodes all the time, one at a time: he is no client."""

    def __init__(
        self, clock: Clock, network: Network, rng: Random, interval: float, machines: list[Machine]
    ) -> None:
        self.clock = clock
        self.network = network
        self.rng = rng
        self.interval = interval
        self.machines = machines
        clock.after(interval, self._look)

    def _look(self) -> None:
        machine = self.rng.choice(self.machines)
        again = self.interval * (0.5 + self.rng.random())
        Question(
            self.clock, self.network, machine, "status", lambda reply: self._seen(again),
            asker="operator at a console", limit=1.0,
        )  # fmt: skip

    def _seen(self, again: float) -> None:
        self.clock.after(again, self._look)


def _says(reply: Reply | None) -> str:
    return "nothing" if reply is None else str(reply.get("reason"))
