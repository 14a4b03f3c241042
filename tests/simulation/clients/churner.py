"""A client that makes queues and exchanges come and go: declare, bind, get, purge, unbind, delete, again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulation.clients import wire
from tests.simulation.clients.actors import Actor, Surroundings
from tests.simulation.clients.session import Arguments, Session
from tests.simulation.clients.topology import Topology
from tests.simulation.harness.journal import STRAGGLE, Message, Settled, Subscription, Thing, Voiding
from tests.simulation.harness.plan import ChurnerPlan


class Churner(Actor):
    """Owns one short-lived queue name. One request at a time. After a lost connection it begins with a
    declare, once nothing that it asked for on the old one can still happen."""

    reconnect = 1.5 * STRAGGLE

    def __init__(self, around: Surroundings, plan: ChurnerPlan, topology: Topology) -> None:
        super().__init__(around, plan.name, cut_every=plan.cut_every)
        self.topology = topology
        self.queue = f"s-{plan.name}"
        self.interval = plan.interval
        self._finished = False
        self.certain_to_exist = False
        """Declare-Ok came, and no delete was sent since: it must survive any failover (invariant 6)."""
        self._exchange = f"x-{plan.name}"
        self._step = 0
        self._pending: Voiding | None = None
        self._held: list[tuple[int, Message]] = []
        self._subscription: Subscription | None = None
        self.journal.short_lived[self.queue] = None
        self._binding: Thing = ("binding", topology.churned, self.queue, "")

    @property
    def finished(self) -> bool:
        return self._finished

    def begin(self, session: Session) -> None:
        self._held = []
        self._subscription = Subscription(self.name, self.queue, self.clock.now, line=self.line)
        self._declare(session)

    def disconnected(self) -> None:
        self._finished = self.finishing
        self._step = 0
        if self._pending is not None:
            self.journal.voiding_lost(self._pending)
            self._pending = None

    def gives_back(self, port: int) -> None:
        self.journal.disturb(self.queue, port)

    def _ask(
        self, session: Session, then: Callable[[Arguments], None], method: str, things: list[Thing],
        exists: bool, **arguments: Any,
    ) -> None:  # fmt: skip
        """`things`: what the request is about, and whether it is to be there."""
        self.journal.operations += 1
        if things:
            self.journal.asking(things, exists, session.connection)

        def answered(name: str, answer: Arguments, body: bytes) -> None:
            for thing in things:
                self.journal.answered(thing, exists, self.topology.lasting(thing))
            then(answer)

        if method.startswith("queue."):
            arguments["queue"] = self.queue
        session.call(method, answered, **arguments)

    def _declare(self, session: Session) -> None:
        def bind(_: Arguments) -> None:
            self.certain_to_exist = True
            self._ask(session, bound, "queue.bind", [self._binding], True, exchange=self.topology.churned)

        def bound(_: Arguments) -> None:
            if self.journal.short_lived[self.queue] is None:
                self.journal.short_lived[self.queue] = self.clock.now
            self.clock.note(f"{self.queue} is declared and bound")
            self._later(session)

        self._ask(session, bind, "queue.declare", [("queue", self.queue)], True, durable=True)

    def _later(self, session: Session) -> None:
        self.clock.after(self.interval * (0.5 + self.rng.random()), partial(self._next, session))

    def _next(self, session: Session) -> None:
        if session is not self.session or not session.alive:
            return
        if self.finishing:
            self._finished = True
            return
        draw = self.rng.random()
        if draw < 0.1:
            self._step_exchange(session)
        elif draw < 0.6:
            session.call("basic.get", partial(self._got, session), queue=self.queue)
        elif draw < 0.75:
            self._void(session, "purge")
        elif draw < 0.85:
            self._unbind(session)
        else:
            self._void(session, "delete")

    def _got(self, session: Session, name: str, arguments: Arguments, body: bytes) -> None:
        if name == "basic.get-ok" and self._subscription is not None:
            message = self.journal.deliver(
                self._subscription, body, arguments["redelivered"], session.left_at
            )
            if message is not None:
                self._held.append((arguments["tag"], message))
        if self._held and self.rng.random() < 0.5:
            tag, message = self._held.pop(0)
            if self.rng.random() < 0.8:
                session.send(wire.method(1, "basic.ack", tag=tag))
                self.journal.settle(self.queue, message, Settled.ACKED, self.line)
            else:
                session.send(wire.method(1, "basic.reject", tag=tag, requeue=True))
                self.gives_back(session.address[1])
                self._subscription = Subscription(self.name, self.queue, self.clock.now, line=self.line)
        self._later(session)

    def _unbind(self, session: Session) -> None:
        self.journal.short_lived[self.queue] = None

        def unbound(_: Arguments) -> None:
            self.clock.note(f"{self.queue} is unbound")
            self._declare(session)

        self._ask(session, unbound, "queue.unbind", [self._binding], False, exchange=self.topology.churned)

    def _step_exchange(self, session: Session) -> None:
        """Its exchange, which leads nowhere, is declared, bound, unbound and deleted, a step at a time."""
        name, churned = self._exchange, self.topology.churned
        exchange: Thing = ("exchange", name)
        binding: Thing = ("binding", churned, name, "")
        ends = {"source": churned, "destination": name}
        step, self._step = self._step, (self._step + 1) % 4

        def then(_: Arguments) -> None:
            self._later(session)

        if step == 0:
            self._ask(
                session,
                then,
                "exchange.declare",
                [exchange],
                True,
                exchange=name,
                type="fanout",
                durable=True,
            )
        elif step == 1:
            self._ask(session, then, "exchange.bind", [binding], True, **ends)
        elif step == 2:
            self._ask(session, then, "exchange.unbind", [binding], False, **ends)
        else:
            self._ask(session, then, "exchange.delete", [exchange, binding], False, exchange=name)

    def _void(self, session: Session, kind: str) -> None:
        voiding = self._pending = self.journal.voiding(kind, self.queue)
        if kind == "delete":
            self.journal.short_lived[self.queue] = None
            self.certain_to_exist = False

        def done(answer: Arguments) -> None:
            self._pending = None
            self.journal.voided_surely(voiding)
            self.clock.note(f"{self.queue}: {kind} of {answer['messages']} is confirmed")
            if kind == "delete":
                self._held = []
                self._subscription = Subscription(self.name, self.queue, self.clock.now, line=self.line)
                self.clock.after(self.interval, partial(self._again, session))
            else:
                self._subscription = Subscription(self.name, self.queue, self.clock.now, line=self.line)
                self._later(session)

        gone: list[Thing] = [("queue", self.queue), self._binding] if kind == "delete" else []
        self._ask(session, done, f"queue.{kind}", gone, False)

    def _again(self, session: Session) -> None:
        if session is not self.session or not session.alive:
            return
        if self.finishing:
            self._finished = True
        else:
            self._declare(session)
