"""A client without numbers, whose queue does not take an id twice, and what it knows of each message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.clients import wire
from tests.simulation.clients.actors import Actor, Surroundings
from tests.simulation.clients.repeater_plan import RepeaterPlan
from tests.simulation.clients.session import Arguments, Session

HEADER = "x-dedup-id"


@dataclass(slots=True)
class Known:
    """A message. `sent`: when each of its attempts was; `attempts`: their places among all. `safe`: the place
    of an attempt that was confirmed. `confirmed_at`: when a confirm was heard first."""

    persistent: bool
    sent: list[float] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    confirmed_at: float | None = None
    safe: float | None = None
    gone: bool = False


class Repeater(Actor):
    """Publishes into a durable queue of its own with confirms. It sends again what is in doubt, and, of the
    newest ids, also what is confirmed. Each attempt has its place in its body: `<name:id>place`.

    `on_got`: told of each message that it gets, and of the node.
    """

    def __init__(self, around: Surroundings, plan: RepeaterPlan) -> None:
        super().__init__(around, plan.name, cut_every=plan.cut_every)
        self.plan = plan
        self.queue = f"{plan.name}-queue"
        self.messages: list[Known] = []
        self.attempts: list[int] = []
        """The message of each."""
        self.on_got: Callable[[int, bytes], None] = lambda port, body: None
        self._outstanding: dict[int, int] = {}
        """By tag: the attempt."""
        self._in_doubt: list[int] = []
        self._tag = 0
        self._asking = False

    @property
    def finished(self) -> bool:
        return self.finishing and not self._outstanding and not self._in_doubt and not self._asking

    def begin(self, session: Session) -> None:
        self._asking = False
        args: dict[str, object] = {"x-dedup-window": self.plan.window}
        session.call("queue.declare", lambda *_: None, queue=self.queue, durable=True, args=args)
        session.call("confirm.select", partial(self._selected, session))

    def _selected(self, session: Session, *_: object) -> None:
        self._tag = 0
        self._later(session)

    def disconnected(self) -> None:
        self._in_doubt += [self.attempts[attempt] for attempt in self._outstanding.values()]
        self._outstanding, self._asking = {}, False

    def _later(self, session: Session) -> None:
        self.clock.after(self.plan.interval * (0.5 + self.rng.random()), partial(self._next, session))

    def _next(self, session: Session) -> None:
        if session is not self.session or not session.alive:
            return
        if self._in_doubt:
            self._publish(session, self._in_doubt)
            self._in_doubt = []
        elif not self.finishing and not self._asking:
            self._work(session)
        self._later(session)

    def _work(self, session: Session) -> None:
        count = self.rng.randint(1, self.plan.batch)
        if len(self._outstanding) + count > self.plan.reach:
            return  # the window knows all that may be in doubt
        if self.messages and self.rng.random() < self.plan.gets:
            self._get(session)
        elif self.messages and self.rng.random() < self.plan.repeats:
            newest = range(max(0, len(self.messages) - self.plan.reach), len(self.messages))
            self._publish(session, [self.rng.choice(newest) for _ in range(count)])
        elif len(self.messages) < self.plan.messages:
            first = len(self.messages)
            self.messages += [Known(self.rng.random() < self.plan.persistent) for _ in range(count)]
            again = [first] if self.rng.random() < self.plan.repeats else []
            self._publish(session, [*range(first, first + count), *again])

    def _publish(self, session: Session, numbers: list[int]) -> None:
        out: list[bytes] = []
        for number in numbers:
            message = self.messages[number]
            self._tag += 1
            self._outstanding[self._tag] = len(self.attempts)
            body = f"<{self.name}:{number}>{len(self.attempts)}".encode()
            message.attempts.append(len(self.attempts))
            message.sent.append(self.clock.now)
            self.attempts.append(number)
            out.append(
                wire.publish(
                    1, "", self.queue, body, persistent=message.persistent, frame_max=session.frame_max,
                    headers={HEADER: str(number)},
                )
            )  # fmt: skip
        self.journal.operations += len(out)
        session.send(b"".join(out))

    def _get(self, session: Session) -> None:
        def got(name: str, arguments: Arguments, body: bytes) -> None:
            if session is self.session:
                self._asking = False
                if name == "basic.get-ok":
                    self.messages[number_of(body)[0]].gone = True
                    self.on_got(session.address[1], body)
                    session.send(wire.method(1, "basic.ack", tag=arguments["tag"]))

        self._asking = True
        self.journal.operations += 1
        session.call("basic.get", got, queue=self.queue)

    def confirmed(self, session: Session, tag: int, multiple: bool, nacked: bool) -> None:
        if session is not self.session:
            return
        for each in [t for t in self._outstanding if t <= tag] if multiple else [tag]:
            attempt = self._outstanding.pop(each)
            message = self.messages[self.attempts[attempt]]
            if message.confirmed_at is None:
                message.confirmed_at = self.clock.now
            message.safe = message.sent[message.attempts.index(attempt)]


def number_of(body: bytes) -> tuple[int, int]:
    """The id of a message, and its attempt."""
    key, _, attempt = body.decode().partition(">")
    return int(key.rpartition(":")[2]), int(attempt)
