"""A client that polls a queue with basic.get, beside the consumers of it."""

from __future__ import annotations

from functools import partial

from tests.simulation.clients import wire
from tests.simulation.clients.actors import Actor, Surroundings
from tests.simulation.clients.session import Arguments, Session
from tests.simulation.harness.journal import Message, Settled, Subscription
from tests.simulation.harness.plan import PollerPlan

IDLE = 10
"""Times its interval that it waits after an empty answer."""


class Poller(Actor):
    """Gets one message at a time, keeps up to `keeps` of them, and settles the oldest: acks it, or gives it
    back by reject or nack."""

    def __init__(self, around: Surroundings, plan: PollerPlan) -> None:
        super().__init__(around, plan.name, cut_every=plan.cut_every)
        self.queue, self.interval = plan.queue, plan.interval
        self.keeps, self.requeues = plan.keeps, plan.requeues
        self._held: dict[int, Message] = {}
        self._subscription: Subscription | None = None

    def begin(self, session: Session) -> None:
        self._held = {}
        self._begin_anew()
        self._later(session, self.interval)

    def gives_back(self, port: int) -> None:
        self.journal.disturb(self.queue, port)

    def _begin_anew(self) -> None:
        """What it gave back may come again, and before what it has had since."""
        self._subscription = Subscription(self.name, self.queue, self.clock.now, line=self.line)

    def _later(self, session: Session, wait: float) -> None:
        self.clock.after(wait * (0.5 + self.rng.random()), partial(self._next, session))

    def _next(self, session: Session) -> None:
        if session is not self.session or not session.alive or self.finishing:
            return
        self.journal.operations += 1
        session.call("basic.get", partial(self._got, session), queue=self.queue)

    def _got(self, session: Session, name: str, arguments: Arguments, body: bytes) -> None:
        if name == "basic.get-ok" and self._subscription is not None:
            message = self.journal.deliver(
                self._subscription, body, arguments["redelivered"], session.left_at
            )
            if message is not None:
                self._held[arguments["tag"]] = message
        if len(self._held) > self.keeps or (name == "basic.get-empty" and self._held):
            self._settle(session)
        self._later(session, self.interval * (IDLE if name == "basic.get-empty" else 1))

    def _settle(self, session: Session) -> None:
        if self.rng.random() < self.requeues:
            tags = list(self._held)
            several = self.rng.random() < 0.5
            tag = tags[-1] if several else tags[0]
            self.gives_back(session.address[1])
            session.send(wire.method(1, "basic.nack", tag=tag, multiple=several, requeue=True))
            for gone in tags if several else [tag]:
                del self._held[gone]
            self._begin_anew()
            return
        tag = next(iter(self._held))
        session.send(wire.method(1, "basic.ack", tag=tag))
        self.journal.settle(self.queue, self._held.pop(tag), Settled.ACKED, self.line)
