"""A client with a queue of its own, exclusive or auto-delete, that ends with its use."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.simulation.clients import wire
from tests.simulation.clients.actors import Actor, Surroundings
from tests.simulation.clients.session import Arguments, Session
from tests.simulation.clients.topology import Topology
from tests.simulation.harness.journal import Message, Settled, Subscription, Temporary
from tests.simulation.harness.plan import TemporaryPlan

FICKLE = 0.3


class TemporaryUser(Actor):
    """Declares its queue, binds it to the fanout, consumes for a while, and ends it: an auto-delete one by
    cancelling its consumer, an exclusive one by leaving. Then all again.

    After a failover it claims the queue by declaring it again, or finds it ended. 405 is what it may hear
    while its old connection is not known to be lost, 404 if the queue ended between two of its requests.
    """

    expected_codes = frozenset({0, 320, 404, 405})

    def __init__(self, around: Surroundings, plan: TemporaryPlan, topology: Topology) -> None:
        super().__init__(around, plan.name, cut_every=plan.cut_every)
        self.topology = topology
        self.exclusive, self.interval, self.replicated = plan.exclusive, plan.interval, plan.replicated
        self.expires = plan.expires
        self.queue = f"t-{plan.name}"
        self._names = 1
        self._uses = 0
        self._in_use = False
        self._unacked: dict[int, Message] = {}
        self._subscription: Subscription | None = None
        self._temporary: Temporary | None = None

    def begin(self, session: Session) -> None:
        self._declare(session)

    def gives_back(self, port: int) -> None:
        """Its connection goes, or has gone."""
        self.journal.disturb(self.queue, port)
        self._ending()

    def disconnected(self) -> None:
        """An auto-delete queue that never had a consumer stays. Now and then it does not come back for the
        one that it had, but takes another name."""
        if self.exclusive or self._in_use or self.expires:
            self._over()
        if self._temporary is not None:
            self._temporary.torn += (self.clock.now,)
        if self.rng.random() < FICKLE:
            self._names += 1
            self.queue = f"t-{self.name}-{self._names}"

    def _declare(self, session: Session) -> None:
        self._unacked, self._in_use = {}, False
        before = self.journal.temporaries.get(self.queue)
        opened = self.clock.now if before is None else before.opened_at
        torn = () if before is None else before.torn
        self._temporary = Temporary(opened, lasts=self.expires, torn=torn, asked_at=self.clock.now)
        self.journal.temporaries[self.queue] = self._temporary
        arguments: dict[str, Any] = {"x-replicate": "all"} if self.replicated else {}
        if self.expires:
            arguments["x-expires"] = round(self.expires * 1000)
        self.journal.operations += 3
        session.call(
            "queue.declare", partial(self._declared, self.clock.now), queue=self.queue,
            exclusive=self.exclusive, auto_delete=not self.exclusive and not self.expires, args=arguments,
        )  # fmt: skip
        session.call("queue.bind", self._ignore, queue=self.queue, exchange=self.topology.churned)
        self._uses += 1
        self._subscription = Subscription(self.name, self.queue, self.clock.now, line=self.line)
        session.call("basic.consume", partial(self._consuming, session), queue=self.queue, tag=self._tag)

    @property
    def _tag(self) -> str:
        return f"{self.name}-{self._uses}"

    def _declared(self, at: float, *_: object) -> None:
        """Only now has whoever serves certainly heard that it is back."""
        if self._temporary is not None:
            self._temporary.opened_at = at

    def _ignore(self, *_: object) -> None:
        """It is so."""

    def _consuming(self, session: Session, *_: object) -> None:
        self._in_use = True
        self.clock.note(f"{self.queue} is in use")
        self.clock.after(self.interval * (0.5 + self.rng.random()), partial(self._end, session))

    def _end(self, session: Session) -> None:
        if session is not self.session or not session.alive or self.finishing:
            return
        if self.exclusive:
            self.clock.note(f"{self.name} leaves its queue")
            self.gives_back(session.address[1])
            session.close(clean=True)
            self.lost(session, 0, "closed by itself")
            return
        self.journal.operations += 1
        self._ending()
        session.call("basic.cancel", partial(self._cancelled, session), tag=self._tag)

    def _cancelled(self, session: Session, *_: object) -> None:
        self._over()
        self.clock.note(f"{self.queue} is no longer in use")
        self.clock.after(self.interval, partial(self._again, session))

    def _again(self, session: Session) -> None:
        if session is self.session and session.alive and not self.finishing:
            self._declare(session)

    def _ending(self) -> None:
        if self._temporary is not None:
            self._temporary.ending = True

    def _over(self) -> None:
        if self._temporary is not None and self._temporary.over_at is None:
            self._temporary.over_at = self.clock.now

    def delivered(self, session: Session, arguments: Arguments, body: bytes) -> None:
        if session is not self.session or self._subscription is None or arguments["consumer"] != self._tag:
            return
        message = self.journal.deliver(self._subscription, body, arguments["redelivered"], session.left_at)
        if message is None:
            return
        self._unacked[arguments["tag"]] = message
        if len(self._unacked) > 3:
            session.send(wire.method(1, "basic.ack", tag=arguments["tag"], multiple=True))
            for settled in self._unacked.values():
                self.journal.settle(self.queue, settled, Settled.ACKED, self.line)
            self._unacked = {}
