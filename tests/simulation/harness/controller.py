"""The resource manager of the `register` authority: sees the nodes through the network only, and may be
wrong.

Keeps a management connection to each node and asks it how it stands. After some silence of whoever served
last it believes it dead, and promotes a node that says that it is promotable. With two of them, each acts on
its own belief. One that fences ends the machine it believes to be the primary first, and only then says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from tests.simulation.clients.session import Session, SessionOwner
from tests.simulation.harness.clock import Clock, Timer
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Network
from tests.simulation.harness.operator import SERVING, Management, Reply
from tests.simulation.harness.plan import ControllerPlan

RECONNECT = 0.3
PROMOTION_LIMIT = 4.0
"""Seconds after which the answer to a promotion is no longer waited for."""


class Line(SessionOwner):
    """The controller's connection to one node; made anew when it is lost. One question at a time."""

    def __init__(self, clock: Clock, network: Network, asker: str, machine: Machine) -> None:
        self.clock = clock
        self.network = network
        self.asker = asker
        self.machine = machine
        self.session: Session | None = None
        self.busy = False
        self._answer: Callable[[Reply | None], None] | None = None
        self._limit: Timer | None = None
        self._connect()

    def ask(self, command: str, limit: float, answer: Callable[[Reply | None], None], **args: object) -> None:
        """`answer` gets None if there is no connection, or no reply within `limit`."""
        if self.session is None or not self.session.is_ready or self.busy:
            answer(None)
            return
        self.busy, self._answer = True, answer
        self._limit = self.clock.after(limit, self._drop)
        text = json.dumps({"command": command, "args": args})
        self.session.call("manage", lambda name, arguments, body: self._settle(arguments["json"]), json=text)

    def lost(self, session: Session, code: int, why: str) -> None:
        if session is self.session:
            self.session = None
            self.clock.after(RECONNECT, self._connect)
            self._settle(None)

    def _connect(self) -> None:
        self.session = Session(
            self.clock, self.network, self.asker, self.machine.address, self,
            properties={"capabilities": {"understudy.management": True}},
        )  # fmt: skip

    def _drop(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.close(clean=False)
        self.clock.after(RECONNECT, self._connect)
        self._settle(None)

    def _settle(self, text: bytes | None) -> None:
        answer, self._answer, self.busy = self._answer, None, False
        if self._limit is not None:
            self._limit.cancel()
        if answer is not None:
            answer(None if text is None else json.loads(text))


class Controller(Management):
    """`kill` ends a machine for good until somebody restarts it; False if that was not done."""

    def __init__(
        self, clock: Clock, network: Network, rng: Random, plan: ControllerPlan, machines: list[Machine],
        kill: Callable[[Machine], bool],
    ) -> None:  # fmt: skip
        super().__init__(clock, network, plan.name)
        self.rng = rng
        self.plan = plan
        self.machines = machines
        self.kill = kill
        self.seen: dict[str, dict[str, Any]] = {}
        """The last status of each node that answers."""
        self.believed: Machine | None = None
        """Who served last, as far as it knows."""
        self.calm = False
        """Act only on what is certain: every node answers, and none serves."""
        self._heard_at = 0.0
        self._asking = False
        self._lines = {m.name: Line(clock, network, plan.name, m) for m in machines}
        clock.after(plan.every, self._look)

    def _look(self) -> None:
        self.clock.after(self.plan.every * (0.7 + 0.6 * self.rng.random()), self._look)
        if not self._asking and self.clock.now - self._heard_at > self.plan.silence:
            self._act()
        calm = self.clock.now - self._heard_at < 1.5 * self.plan.every
        for machine in self.machines:
            line = self._lines[machine.name]
            if calm and machine is not self.believed and self.rng.random() < 0.7:
                continue
            if not line.busy:
                line.ask("status", self.plan.patience, partial(self._heard, machine))

    def _heard(self, machine: Machine, reply: Reply | None) -> None:
        if reply is None or "status" not in reply:
            self.seen.pop(machine.name, None)
            return
        status = self.seen[machine.name] = reply["status"]
        if status["status"] in SERVING:
            self.believed, self._heard_at = machine, self.clock.now

    def _act(self) -> None:
        """Nobody serves, it believes."""
        if self.calm and len(self.seen) < len(self.machines):
            return
        willing = [m for m in self.machines if m.name in self.seen and self.seen[m.name]["promotable"]]
        willing = [m for m in willing if not self._lines[m.name].busy]
        if not willing:
            return
        candidate = self.rng.choice(willing)
        fenced = self._fence(candidate)
        self._asking = True
        self.clock.note(f"{self.name}: promote {candidate.name}{f', {fenced} is fenced' if fenced else ''}")
        self._lines[candidate.name].ask(
            "promote", PROMOTION_LIMIT, partial(self._promoted, candidate), fenced=fenced
        )

    def _fence(self, candidate: Machine) -> str | None:
        """Who is certainly down. It may not be the primary any more: an operator may have switched over."""
        if not self.plan.fences or self.believed is None or self.believed is candidate:
            return None
        believed, self.believed = self.believed, None
        return believed.name if self.kill(believed) else None

    def _promoted(self, machine: Machine, reply: Reply | None) -> None:
        self._asking = False
        self._heard_at = self.clock.now
        self.seen.pop(machine.name, None)
        self.answered(machine, reply)
