"""A client that moves messages from one queue to another in transactions, and keeps what it knows of each."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.clients import wire
from tests.simulation.clients.actors import Actor, ClientFault, Surroundings
from tests.simulation.clients.mover_plan import MoverPlan
from tests.simulation.clients.session import Arguments, Session

REFUSED = "transaction not committed"
"""What a broker says when a queue has no room for a commit."""
AFTER_COMMIT = (0.001, 0.01)
"""Within so many seconds from tx.commit its connection breaks, if it is to."""


class State(enum.Enum):
    """What the client knows of a transaction."""

    OPEN = "not committed"
    COMMITTING = "asked for"
    COMMITTED = "committed"
    UNDONE = "rolled back, refused, or cut off before its commit"
    DOUBT = "cut off after its commit was sent"


@dataclass(slots=True)
class Sent:
    """A message that it published."""

    key: str
    body: bytes
    queues: tuple[str, ...]
    persistent: bool


@dataclass(slots=True)
class Transaction:
    """`gone`: keys of messages that it acks or throws away; `thrown`: only the latter; `back`: those that it
    gives back. `answered`: commit-ok has left a node, whether the client has heard it or not."""

    name: str
    published: list[Sent] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    thrown: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    state: State = State.OPEN
    sent_at: float = 0.0
    """When its commit was handed to the kernel."""
    answered: bool = False


class Mover(Actor):
    """One transactional channel, and two queues: into the first it publishes messages, in transactions; of
    the first it takes some, and publishes others for them into the second, in one transaction. What it rolls
    back it takes again, by the same delivery tags.

    `on_input` is told of each message that it is delivered, before it is kept. The second queue is never
    consumed: it shows what was committed. Dead letters of the first may go there, too.
    """

    def __init__(self, around: Surroundings, plan: MoverPlan) -> None:
        super().__init__(around, plan.name, cut_every=plan.cut_every)
        self.plan = plan
        self.source, self.target = f"in-{plan.name}", f"out-{plan.name}"
        self.transactions: list[Transaction] = []
        self.sent: dict[str, tuple[Sent, Transaction]] = {}
        """By key: what, and in which transaction."""
        self.takers: dict[str, list[Transaction]] = {}
        """By key: the transactions in which it was acked or thrown away."""
        self.current: Transaction | None = None
        self.held: dict[int, str] = {}
        """Keys of what it was delivered and has not settled, by delivery tag."""
        self.limit = 0
        self.on_input: Callable[[Mover, str, bytes], None] = lambda mover, key, body: None
        self._exchange = f"x-{plan.name}"
        self._settling: list[int] = []
        self._idle = False

    @property
    def finished(self) -> bool:
        return self.finishing and self._idle

    def grant(self, count: int) -> None:
        """Begin so many transactions more."""
        self.limit = len(self.transactions) + count
        if self._idle and self.session is not None:
            self._idle = False
            self._later(self.session)

    # -- its connection

    def begin(self, session: Session) -> None:
        plan = self.plan
        for queue in (self.source, self.target):
            rules = self._rules() if queue == self.source else {}
            session.call("queue.declare", _heard, queue=queue, durable=plan.durable, args=rules)
        if plan.fanout:
            session.call(
                "exchange.declare", _heard, exchange=self._exchange, type="fanout", durable=plan.durable
            )
            for queue in (self.source, self.target):
                session.call("queue.bind", _heard, queue=queue, exchange=self._exchange)
        session.call("tx.select", lambda *_: self._later(session))
        if plan.prefetch:
            session.call("basic.qos", _heard, count=plan.prefetch)
            session.call("basic.consume", _heard, queue=self.source, tag=self.name)

    def _rules(self) -> dict[str, object]:
        rules: dict[str, object] = {}
        if self.plan.dead_letters:
            rules |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.target}
        if self.plan.limit:
            rules |= {"x-max-length": self.plan.limit, "x-overflow": "reject-publish"}
        return rules

    def lost(self, session: Session, code: int, why: str) -> None:
        """A commit that is refused costs the channel; it begins again."""
        if self.plan.limit and code == 406 and REFUSED in why and session is self.session:
            if self.current is None or self.current.state is not State.COMMITTING:
                raise ClientFault(f"{self.name} asked for no commit: {why}")
            self.current.state, code = State.OPEN, 0
        super().lost(session, code, why)

    def disconnected(self) -> None:
        self._idle = False
        self.held = {}
        self._settling = []
        current, self.current = self.current, None
        if current is not None:
            self._ends(current, State.DOUBT if current.state is State.COMMITTING else State.UNDONE)

    def delivered(self, session: Session, arguments: Arguments, body: bytes) -> None:
        if session is self.session:
            self._hold(arguments, body)

    def _hold(self, arguments: Arguments, body: bytes) -> None:
        self.journal.operations += 1
        key = body[1 : body.find(b">")].decode(errors="replace")
        self.clock.detail(f"{self.name} gets {key}")
        self.on_input(self, key, body)
        self.held[arguments["tag"]] = key

    # -- what it does

    def _here(self, session: Session) -> bool:
        return session is self.session and session.alive

    def _later(self, session: Session) -> None:
        self.clock.after(self.plan.interval * (0.5 + self.rng.random()), partial(self._next, session))

    def _next(self, session: Session) -> None:
        if not self._here(session):
            return
        if self.finishing or len(self.transactions) >= self.limit:
            self._idle = True
        elif self.rng.random() < 0.4:
            self._feed(session)
        elif self.plan.prefetch or len(self.held) >= self.plan.batch:
            self._move(session)
        else:
            self._get(session, self.rng.randint(1, self.plan.batch))

    def _get(self, session: Session, count: int) -> None:
        def got(name: str, arguments: Arguments, body: bytes) -> None:
            if name == "basic.get-ok":
                self._hold(arguments, body)
            if name == "basic.get-empty" or count == 1:
                self._move(session)
            else:
                self._get(session, count - 1)

        self.journal.operations += 1
        session.call("basic.get", got, queue=self.source)

    def _feed(self, session: Session) -> None:
        """New messages, for nothing."""
        current = self._begin()
        count = self.rng.randint(1, self.plan.batch)
        both = self.plan.fanout and self.rng.random() < 0.5
        self._send(session, current, [self._publish(session, current, both=both) for _ in range(count)])

    def _move(self, session: Session) -> None:
        """Some of what it holds, the oldest, and others for them."""
        tags = sorted(self.held)[: self.rng.randint(1, self.plan.batch)]
        if not tags:
            self._feed(session)
            return
        current = self._begin()
        parts = self._settle(current, tags)
        taken = ",".join(current.gone).encode()
        for _ in range(self.rng.randint(0, self.plan.batch)):
            parts.append(self._publish(session, current, of=taken))
        self.rng.shuffle(parts)
        self._send(session, current, parts)

    def _begin(self) -> Transaction:
        current = self.current = Transaction(f"{self.name}-{len(self.transactions) + 1}")
        self.transactions.append(current)
        return current

    def _publish(
        self, session: Session, current: Transaction, *, both: bool = False, of: bytes | None = None
    ) -> bytes:
        """Into the second queue, `of` messages of the first; else into the first, or into both."""
        key = f"{current.name}:{len(current.published)}"
        body = f"<{key}>".encode() + (b"" if of is None else b" of " + of) + b"." * self.rng.randrange(40)
        queues = (self.source, self.target) if both else (self.source if of is None else self.target,)
        sent = Sent(key, body, queues, self.rng.random() < self.plan.persistent)
        current.published.append(sent)
        self.sent[key] = sent, current
        self.journal.operations += 1
        return wire.publish(
            1, self._exchange if both else "", queues[0], body, persistent=sent.persistent,
            frame_max=session.frame_max,
        )  # fmt: skip

    def _settle(self, current: Transaction, tags: list[int]) -> list[bytes]:
        """Ack them, one by one or all at once; or give some back, or throw them away."""
        self._settling = tags
        self.journal.operations += len(tags)
        parts: list[bytes] = []
        for tag in tags:
            draw = self.rng.random()
            if draw < self.plan.requeues:
                current.back.append(self.held[tag])
                parts.append(wire.method(1, "basic.reject", tag=tag, requeue=True))
                continue
            current.gone.append(self.held[tag])
            if draw < self.plan.requeues + self.plan.rejects:
                current.thrown.append(self.held[tag])
                parts.append(wire.method(1, "basic.nack", tag=tag))
            else:
                parts.append(wire.method(1, "basic.ack", tag=tag))
        for key in current.gone:
            self.takers.setdefault(key, []).append(current)
        if not current.back and not current.thrown and self.rng.random() < 0.5:
            parts = [wire.method(1, "basic.ack", tag=tags[-1], multiple=True)]
        return parts

    def _send(self, session: Session, current: Transaction, parts: list[bytes]) -> None:
        """All of it, and its end; or two parts and the end with pauses between, in which the node goes on."""
        self.clock.detail(f"{self.name} begins {current.name}")
        if not self.plan.pause:
            session.send(b"".join(parts))
            self._end(session, current)
            return
        half = self.rng.randint(0, len(parts))
        session.send(b"".join(parts[:half]))

        def rest() -> None:
            if self._here(session):
                session.send(b"".join(parts[half:]))
                self.clock.after(self.plan.pause * self.rng.random(), partial(self._end, session, current))

        self.clock.after(self.plan.pause * self.rng.random(), rest)

    def _end(self, session: Session, current: Transaction) -> None:
        """Roll it back, commit it, or lose the connection before or after that."""
        if not self._here(session):
            return
        self.journal.operations += 1
        draw = self.rng.random()
        if draw < self.plan.rollbacks:
            session.call("tx.rollback", partial(self._ended, session, current, State.UNDONE))
        elif draw < self.plan.rollbacks + self.plan.cuts / 2:
            self._break(session)
        else:
            current.state, current.sent_at = State.COMMITTING, self.clock.now
            session.call("tx.commit", partial(self._ended, session, current, State.COMMITTED))
            if self.rng.random() < self.plan.cuts:
                soon = self.rng.random() * self.rng.choice(AFTER_COMMIT)
                self.clock.after(soon, partial(self._break, session))

    def _break(self, session: Session) -> None:
        if self._here(session):
            self.clock.note(f"FAULT: the connection of {self.name} breaks")
            self.cut(self.rng.random() < 0.5)

    def _ended(self, session: Session, current: Transaction, state: State, *_: object) -> None:
        """Answered. What was rolled back is still held, and can be settled again."""
        if session is not self.session:
            return
        if state is State.COMMITTED:
            for tag in self._settling:
                self.held.pop(tag, None)
        self._settling = []
        self.current = None
        self._ends(current, state)
        self._later(session)

    def _ends(self, current: Transaction, state: State) -> None:
        current.state = state
        self.clock.note(f"{current.name} is {state.value}")


def _heard(*_: object) -> None:
    """It is so."""
