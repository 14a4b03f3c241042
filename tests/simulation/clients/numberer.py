"""A client that numbers its messages, sends those in doubt again, and lives several lives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.clients import wire
from tests.simulation.clients.actors import Actor, Surroundings
from tests.simulation.clients.numberer_plan import NumbererPlan
from tests.simulation.clients.session import Arguments, Session, SessionOwner
from tests.simulation.harness.journal import STRAGGLE, Violation

WINDOW = 1024
"""A broker knows exactly which of so many numbers a queue had, the highest among them."""
FAR = (0, 3, 20, WINDOW - 1, WINDOW - 1)
"""How far it goes back from its last number, or leaves numbers out."""
STRANGERS, MOST = 4, 8
"""How many other producers come at once, and how many may be known in these runs (`producers.most`)."""


@dataclass(slots=True)
class Numbered:
    """A message. `confirmed_at`: when its first confirm was heard."""

    number: int
    queues: tuple[str, ...]
    persistent: bool
    confirmed_at: float | None = None


@dataclass(slots=True, frozen=True)
class Attempt:
    """One send of a message. `fenced`: by a session whose place was taken then."""

    number: int
    at: float
    fenced: float | None


@dataclass(slots=True)
class Shelf:
    """One of its queues. `since`: it is surely the same one, with its bindings, from then on. `must`: numbers
    that it must hold, and when the attempt was sent that was confirmed. `gone`: numbers that were acked, or
    may have been taken out."""

    name: str
    durable: bool
    since: float = float("inf")
    must: dict[int, float] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)

    def voiding(self, sent: set[int]) -> None:
        """It is about to be empty: of these nothing may be left."""
        self.gone |= sent
        self.must = {}
        self.since = float("inf")


class Ghost(SessionOwner):
    """A life of a producer on a connection of its own, which says `numbers` once it is let in."""

    def __init__(
        self, around: Surroundings, name: str, address: tuple[str, int], numbers: dict[str, object],
        bodies: Callable[[], list[bytes]], confirmed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._bodies, self._confirmed = bodies, confirmed
        self.session = Session(
            around.clock, around.network, name, address, self, heartbeat=2,
            properties={"producer": name} | numbers,
        )  # fmt: skip

    def ready(self, session: Session) -> None:
        session.call("confirm.select", lambda *_: self._selected(session))

    def _selected(self, session: Session) -> None:
        if bodies := self._bodies():
            session.send(b"".join(bodies))
        else:
            session.close(clean=True)

    def confirmed(self, session: Session, tag: int, multiple: bool, nacked: bool) -> None:
        if not nacked:
            self._confirmed()


class Numberer(Actor):
    """Publishes persistent and transient messages with numbers into two queues, of which nobody else knows.

    Each connection begins at the oldest message in doubt, or goes back over some that are confirmed, or
    leaves numbers out, which it may come back to. It may leave its last connection open and begin another
    one, in the same life or in a new one; what the old one sends from then on must be in no queue. An older
    life may also come back.

    Each send has an attempt of its own in its body: `<number>attempt`. `on_got` is told of each message that
    it gets, and of the node.
    """

    def __init__(self, around: Surroundings, plan: NumbererPlan) -> None:
        super().__init__(around, plan.name, cut_every=plan.cut_every)
        self.plan = plan
        self.left, self.right = (
            Shelf(f"{plan.name}-left", True), Shelf(f"{plan.name}-right", plan.durable)
        )  # fmt: skip
        self.shelves = {shelf.name: shelf for shelf in (self.left, self.right)}
        self.messages: dict[int, Numbered] = {}
        self.attempts: list[Attempt] = []
        self.on_got: Callable[[int, str, bytes], None] = lambda port, queue, body: None
        self.epoch = 1
        self.registered_at = 0.0
        """When its last connection took the place of the others."""
        self.forgotten_at = -1.0
        """When a node last forgot a producer."""
        self.top = 0
        """The highest number that it has sent."""
        self._strangers = 0
        self._next = 1
        self._drawn = False
        """That is for the next connection that is let in."""
        self._known: Session | None = None
        """The session whose numbers are taken."""
        self._transacted = False
        self._outstanding: dict[int, int] = {}
        """By tag: the attempt."""
        self._in_doubt: set[int] = set()
        self._tag = 0
        self._asking = False
        """An answer is out."""
        self._old: Session | None = None
        """Left open when another one took its place."""
        self._old_tags = (0, 0)
        """Of that: its last tag, and its next number."""
        self._exchange = f"x-{plan.name}"

    @property
    def producer(self) -> str:
        return f"producer of {self.name}"

    @property
    def unsure_until(self) -> float:
        """Whoever serves may rightly not know of a session that began before."""
        return max(self.journal.forced_until, self.journal.disk_lost, self.forgotten_at)

    @property
    def finished(self) -> bool:
        return self.finishing and not self._outstanding and not self._in_doubt and not self._asking

    # -- its connections

    def properties(self) -> dict[str, object]:
        if not self._drawn:
            self._next, self._drawn = self._start(), True
        return {"producer": self.name} | self._claim(self.epoch, self._next)

    def _claim(self, epoch: int, number: int) -> dict[str, object]:
        return {"producer_id": self.producer, "producer_epoch": epoch, "producer_next": number}

    def _start(self) -> int:
        """The number with which a connection begins."""
        low = max(1, self.top - WINDOW + 1)
        oldest = min(self._in_doubt, default=self.top + 1)
        far = self.rng.choice(FAR[:3] if self._in_doubt else FAR)
        if not self._in_doubt and low not in self.messages and self.rng.random() < 0.5:
            return low  # of those left out, the oldest that it may come back to
        if self.rng.random() < 0.3:
            return oldest
        if self._in_doubt or self.rng.random() < 0.6:
            return max(low, oldest - 1 - far)
        return oldest + far

    def begin(self, session: Session) -> None:
        self._outstanding, self._tag, self._asking = {}, 0, False
        self._declare(session, self.left)
        session.call("exchange.declare", _heard, exchange=self._exchange, type="fanout", durable=True)
        self._declare(session, self.right)
        for shelf in self.shelves:
            session.call("queue.bind", _heard, queue=shelf, exchange=self._exchange)
        self._transacted = self.rng.random() < self.plan.transactions
        how = "tx.select" if self._transacted else "confirm.select"
        session.call(how, partial(self._selected, session))

    def _declare(self, session: Session, shelf: Shelf) -> None:
        args: dict[str, object] = {}
        if self.plan.limit and shelf is self.right:
            args = {"x-max-length": self.plan.limit, "x-overflow": "reject-publish"}

        def there(*_: object) -> None:
            if shelf.since == float("inf"):
                shelf.since = self.clock.now

        session.call("queue.declare", there, queue=shelf.name, durable=shelf.durable, args=args)

    def _selected(self, session: Session, *_: object) -> None:
        if session is not self.session:
            return
        self._known, self._drawn = session, False
        self.registered_at = self.clock.now
        self.clock.note(f"{self.name} goes on with number {self._next} in life {self.epoch}")
        self._haunt(session)
        self._later(session)

    def disconnected(self) -> None:
        self._in_doubt |= {self.attempts[attempt].number for attempt in self._outstanding.values()}
        self._outstanding, self._known, self._asking = {}, None, False
        for shelf in self.shelves.values():
            if shelf.since == float("inf"):  # it may be deleted yet
                shelf.since = self.clock.now + STRAGGLE

    # -- what it does

    def _here(self, session: Session) -> bool:
        return session is self.session and session is self._known and session.alive

    def _later(self, session: Session) -> None:
        self.clock.after(self.plan.interval * (0.5 + self.rng.random()), partial(self._step, session))

    def _step(self, session: Session) -> None:
        if not self._here(session):
            return
        if not self._asking:
            self._work(session)
        self._later(session)

    def _work(self, session: Session) -> None:
        if self._in_doubt and min(self._in_doubt) < self._next:
            if not self._outstanding:
                self._leave(session, keeps=False)  # they are behind it
        elif self.finishing:
            if self._in_doubt:
                self._publish(session)
        elif self.rng.random() < self.plan.leaves:
            self._leave(session, keeps=self.rng.random() < 0.5)
        elif self.rng.random() < self.plan.voids:
            self._void(session)
        elif self.rng.random() < self.plan.gets:
            self._get(session)
        elif len(self.attempts) < self.plan.sends:
            self._publish(session)

    def _publish(self, session: Session) -> None:
        room = self.plan.window - len(self._outstanding)
        out: list[bytes] = []
        for _ in range(min(room, self.rng.randint(1, self.plan.burst))):
            self._tag += 1
            self._outstanding[self._tag] = len(self.attempts)
            self._in_doubt.discard(self._next)
            out.append(self._message(session, self._next))
            self._next += 1
        session.send(b"".join(out))
        if out and self._transacted:
            self._end(session)

    def _message(self, session: Session, number: int, *, fenced: bool = False) -> bytes:
        message = self.messages.get(number)
        if message is None:
            both = self.rng.random() < self.plan.both
            queues = tuple(self.shelves) if both else (self.rng.choice(tuple(self.shelves)),)
            if number == self.top - WINDOW + 1:
                queues = self.messages[self.top].queues  # which know exactly that one yet
            persistent = self.rng.random() < self.plan.persistent
            message = self.messages[number] = Numbered(number, queues, persistent)
        body = f"<{self.name}:{number}>{len(self.attempts)}".encode()
        self.attempts.append(Attempt(number, self.clock.now, self.registered_at if fenced else None))
        self.journal.operations += 1
        if not fenced:
            self.top = max(self.top, number)
        fanout = len(message.queues) > 1
        return wire.publish(
            1, self._exchange if fanout else "", message.queues[0], body, persistent=message.persistent,
            frame_max=session.frame_max,
        )  # fmt: skip

    def _end(self, session: Session) -> None:
        """Commit, or roll back: then these numbers were never used."""
        self._asking = True
        if self.rng.random() < 0.3:
            session.call("tx.rollback", lambda *_: self._rolled_back(session))
        else:
            session.call("tx.commit", lambda *_: self._committed(session))

    def _rolled_back(self, session: Session) -> None:
        if session is self.session:
            self._asking = False
            self._in_doubt |= {self.attempts[attempt].number for attempt in self._outstanding.values()}
            self._outstanding = {}

    def _committed(self, session: Session) -> None:
        if session is self.session:
            self._asking = False
            for tag in list(self._outstanding):
                self._safe(self._outstanding.pop(tag))

    def confirmed(self, session: Session, tag: int, multiple: bool, nacked: bool) -> None:
        if session is self._old:
            self._confirmed_old(session, tag, nacked)
        if session is not self.session:
            return
        for each in [t for t in self._outstanding if t <= tag] if multiple else [tag]:
            attempt = self._outstanding.pop(each)
            if not nacked:
                self._safe(attempt)

    def confirmed_by(self, confirms: Iterable[tuple[int, bool]]) -> list[Attempt]:
        """Those that a node confirms on its connection: tags, and whether older ones are meant too. Where a
        queue refuses some, a word of that may be on its way: older ones are left out."""
        return [
            self.attempts[attempt]
            for tag, multiple in confirms
            for each, attempt in self._outstanding.items()
            if each == tag or (multiple and each < tag and not self.plan.limit)
        ]

    def _safe(self, attempt: int) -> None:
        sent = self.attempts[attempt]
        message = self.messages[sent.number]
        if message.confirmed_at is None:
            message.confirmed_at = self.clock.now
        for name in message.queues:
            shelf = self.shelves[name]
            if sent.at >= shelf.since and sent.number not in shelf.gone:
                shelf.must[sent.number] = sent.at

    # -- what leaves the queues

    def _get(self, session: Session) -> None:
        shelf = self.rng.choice(list(self.shelves.values()))

        def got(name: str, arguments: Arguments, body: bytes) -> None:
            if session is not self.session:
                return
            self._asking = False
            if name == "basic.get-ok":
                number = number_of(body)[0]
                self.on_got(session.address[1], shelf.name, body)
                shelf.must.pop(number, None)
                shelf.gone.add(number)
                session.send(wire.method(1, "basic.ack", tag=arguments["tag"]))

        self._asking = True
        self.journal.operations += 1
        session.call("basic.get", got, queue=shelf.name)

    def _void(self, session: Session) -> None:
        """Purge the second queue, or delete it and make it again."""
        shelf = self.right
        if self._outstanding:
            return
        self.journal.operations += 1
        shelf.voiding({number for number, message in self.messages.items() if shelf.name in message.queues})

        def over(*_: object) -> None:
            if session is self.session:
                self._asking, shelf.since = False, self.clock.now

        def deleted(*_: object) -> None:
            if session is self.session:
                shelf.gone = set()

        self._asking = True
        if self.rng.random() < 0.5:
            session.call("queue.purge", over, queue=shelf.name)
            return
        session.call("queue.delete", deleted, queue=shelf.name)
        self._declare(session, shelf)
        session.call("queue.bind", over, queue=shelf.name, exchange=self._exchange)

    # -- lives

    def _leave(self, session: Session, *, keeps: bool) -> None:
        """Begin another connection; `keeps`: this one stays open, as that of a process that stood still."""
        self.disconnected()
        self.clock.note(f"{self.name} {'leaves its connection open' if keeps else 'ends its connection'}")
        if keeps and not self._transacted:
            self._old, self._old_tags = session, (self._tag, self._next)
        else:
            session.close(clean=self.rng.random() < 0.5)
        if self.rng.random() < 0.5:
            self.epoch += 1
        if self.rng.random() < self.plan.strangers:
            for _ in range(STRANGERS):
                self._strangers += 1
                claim: dict[str, object] = {"producer_id": f"stranger {self._strangers}"}
                Ghost(self.around, f"{self.name}-stranger", session.address, claim, list, _heard)
        self.session = None
        self.clock.after(self.reconnect, self._connect)

    def _haunt(self, session: Session) -> None:
        """The one that left its connection open goes on, and an earlier life comes back."""
        old = self._old
        if old is not None and old.established:
            tag, number = self._old_tags
            old.send(b"".join(self._message(old, number + n, fenced=True) for n in range(2)))
            self._old_tags = tag, number
        if self.epoch > 1 and self.rng.random() < 0.3:
            number = self._next
            Ghost(
                self.around, f"{self.name}-ghost", session.address, self._claim(self.epoch - 1, number),
                lambda: [self._message(session, number + n, fenced=True) for n in range(2)],
                lambda: self._alive("its earlier life"),
            )  # fmt: skip

    def _confirmed_old(self, session: Session, tag: int, nacked: bool) -> None:
        if tag > self._old_tags[0] and not nacked:
            self._alive("the connection that it left open")

    def _alive(self, what: str) -> None:
        """One whose place was taken goes on."""
        if self.registered_at > self.unsure_until:
            raise Violation(24, f"{self.name}: {what} goes on")

    def lost(self, session: Session, code: int, why: str) -> None:
        if session is self._old:
            self._old = None
        elif session is self.session and code == 403:
            self._alive("another one that took its place")
            code = 0
        elif session is self.session and "producers.most" in why:
            code = 0  # those who came are not all gone yet
        super().lost(session, code, why)

    def stop(self, *, clean: bool = True) -> None:
        super().stop(clean=clean)
        if self._old is not None:
            self._old.close(clean=clean)


def number_of(body: bytes) -> tuple[int, int]:
    """The number and the attempt in the body of a message."""
    head, attempt = body.decode().split(">")
    return int(head.rpartition(":")[2]), int(attempt)


def _heard(*_: object) -> None:
    """It is so."""
