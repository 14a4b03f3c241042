"""The operator: looks after the pair by the management method; promotes when the primary is dead; retries.

Stands for a person or a resource manager that knows which processes run. Promotes unforced only, as `manual`
asks for: never while a primary lives.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from tests.simulation.clock import Clock
from tests.simulation.machine import Machine
from tests.simulation.network import Network
from tests.simulation.session import Session, SessionOwner

SERVING = frozenset({"active", "recovering"})
LOOK_EVERY = 0.1
"""Seconds between two looks at the pair, about; twice as long after a refusal."""
PATIENCE = 8
"""Refusals of one node after which the other is tried, if it runs."""


class Question(SessionOwner):
    """One management command on a connection of its own. `answer` gets the reply, or None for no reply."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        machine: Machine,
        command: str,
        answer: Callable[[dict[str, Any] | None], None],
    ) -> None:
        self.command = command
        self.answer = answer
        self.session = Session(
            clock, network, "operator", machine.address, self,
            properties={"capabilities": {"understudy.management": True}},
        )  # fmt: skip
        self._limit = clock.after(6.0, self._too_late)

    def ready(self, session: Session) -> None:
        session.call("manage", self._answered, json=json.dumps({"command": self.command, "args": {}}))

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


class Operator:
    """`first` is promoted at the beginning, when both nodes have come up; `promotions` counts successes."""

    def __init__(
        self, clock: Clock, network: Network, rng: Random, machines: list[Machine], first: Machine
    ) -> None:
        self.clock = clock
        self.network = network
        self.machines = machines
        self.rng = rng
        self.candidate = first
        self.last_primary: tuple[Machine, int] | None = None
        """And its process life."""
        self.promotions = 0
        self.refusals: list[str] = []
        self.cold_starts: list[float] = []
        """When the last primary was promoted again after a restart: what was not on its disk is gone."""
        self._asking = False
        self._refused = 0
        clock.after(LOOK_EVERY, self._look)

    def _look(self) -> None:
        self.clock.after(LOOK_EVERY * (0.5 + self.rng.random()) * (2 if self._refused else 1), self._look)
        if self._asking:
            return
        serving = [m for m in self.machines if m.role() in SERVING]
        if serving:
            self.last_primary = serving[0], serving[0].life
            self.candidate = next((m for m in self.machines if m is not serving[0]), serving[0])
            self._refused = 0
            return
        if self.candidate.node is None or self._refused >= PATIENCE:
            self._refused = 0
            alive = [m for m in self.machines if m.node is not None and m is not self.candidate]
            if not alive:
                return
            self.candidate = alive[0]
        self._asking = True
        self.clock.note(f"operator: promote {self.candidate.name}")
        Question(self.clock, self.network, self.candidate, "promote", partial(self._answered, self.candidate))

    def demote(self, machine: Machine, done: Callable[[], None]) -> None:
        """Take the primary's role away; `_look` then gives it to the other."""

        def answered(reply: dict[str, Any] | None) -> None:
            says = "nothing" if reply is None else str(reply.get("reason"))
            self.clock.note(f"operator: {machine.name} answers: {says}")
            done()

        Question(self.clock, self.network, machine, "demote", answered)

    def _answered(self, machine: Machine, reply: dict[str, Any] | None) -> None:
        self._asking = False
        if reply is not None and reply.get("ok"):
            self.promotions += 1
            self._refused = 0
            if (
                self.last_primary is not None
                and machine is self.last_primary[0]
                and machine.life != self.last_primary[1]
            ):
                self.cold_starts.append(self.clock.now)
            self.clock.note(f"operator: {machine.name} is promoted: {reply.get('reason')}")
            return
        self._refused += 1
        why = "no answer" if reply is None else str(reply.get("reason"))
        self.refusals.append(why)
        self.clock.note(f"operator: {machine.name} refuses: {why}")
