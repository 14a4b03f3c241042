"""A client of a queue from which messages leave by rule: by time, by number, by size, by rejection; and of
the queues that its dead letters go through.

These queues are its own: nobody else publishes, gets or purges there, and they are in no topology. So what
`checkers.rules` says of each message rests on what this client sent and heard, and on the queues.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from tests.simulation.clients import wire
from tests.simulation.clients.actors import Actor, ClientFault, Surroundings
from tests.simulation.clients.governor import Governor
from tests.simulation.clients.rule_plan import RulePlan
from tests.simulation.clients.rules_given import (
    RULED,
    arguments_of,
    exchange_of,
    make_vhost,
    policies_of,
    step_arguments,
)
from tests.simulation.clients.session import Arguments, Session
from tests.simulation.harness.inspection import key_of

MOST_OUTSTANDING = 30
MOST_MESSAGES = 1000
"""Its dead letters stay: more of them would take a joiner that is fed in crumbs longer than a fault may."""
UNGOVERNED = 0.05
"""Seconds from a policy that a node did not take to the next try."""


def queue_of(plan: RulePlan) -> str:
    """The queue with rules."""
    return f"r-{plan.name}"


def dead_of(plan: RulePlan) -> str:
    """The queue of what was dead-lettered, and stays there."""
    return f"d-{plan.name}"


def steps_of(plan: RulePlan) -> list[str]:
    """The queues that dead letters go through, in order."""
    return [f"e{n + 1}-{plan.name}" for n in range(len(plan.steps))]


def way_of(plan: RulePlan) -> list[str]:
    """All its queues in the order in which a message comes through them."""
    return [queue_of(plan), *steps_of(plan), dead_of(plan)]


def later_of(plan: RulePlan) -> str:
    """The delayed-message exchange, if its messages wait; else the default exchange."""
    return f"l-{plan.name}" if plan.delay else ""


def waiting_of(plan: RulePlan) -> str:
    """The queue in which they wait."""
    return f"amq.delayed.{later_of(plan)}"


def number_of(raw: bytes) -> int:
    """Which of its client's messages this is, in a queue."""
    return int(key_of(raw).split(":")[1])


class Fate(enum.Enum):
    """What the client did with a message that it got."""

    ACKED = "acked"
    REJECTED = "rejected"


@dataclass(slots=True)
class Ruled:
    """One message: when it was handed to the kernel, each time; what came back."""

    number: int
    expiration: int | None
    """Milliseconds."""
    persistent: bool
    body: bytes = b""
    sent: list[float] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    """Which of all sends of this client it was."""
    octets_before: int = 0
    """Of the bodies of all sends of this client before its first."""
    confirmed_at: float | None = None
    refused: bool = False
    fate: Fate | None = None
    rejections: int = 0
    """How many it has handed to the kernel."""


class RuleUser(Actor):
    """Publishes with confirms, resends what is in doubt; gets some, acks or rejects them. It is in a virtual
    host of its own, and has it made where it is not."""

    vhost: ClassVar[str] = RULED

    def __init__(self, around: Surroundings, plan: RulePlan, governor: Governor) -> None:
        super().__init__(around, plan.name, cut_every=plan.cut_every)
        self.plan = plan
        self.governor = governor
        self.queue, self.dead = queue_of(plan), dead_of(plan)
        self.first_dead = [*steps_of(plan), self.dead][0]
        """Where dead letters of its queue come first."""
        self.messages: dict[int, Ruled] = {}
        self.sends = self.octets = 0
        self.left_at = 0.0
        self.on_got: Callable[[Ruled, float], None] = lambda message, asked: None
        """Told of each that it gets, and when it asked."""
        self.on_refused: Callable[[Ruled], None] = lambda message: None
        self._tag = 0
        self._outstanding: dict[int, Ruled] = {}
        self._in_doubt: list[Ruled] = []

    @property
    def finished(self) -> bool:
        return self.finishing and not self._outstanding and not self._in_doubt

    def stop(self, *, clean: bool = True) -> None:
        self.left_at = self.clock.now
        super().stop(clean=clean)

    def lost(self, session: Session, code: int, why: str) -> None:
        if code == 530 and f"vhost '{RULED}' not found" in why and session is self.session:
            self.governor.change(session.address, [make_vhost()], lambda taken: None)
            code = 0
        super().lost(session, code, why)

    def begin(self, session: Session) -> None:
        if self.plan.rules_by == "arguments":
            self._declare(session)
        else:
            self._govern(session)

    def _govern(self, session: Session) -> None:
        if session is self.session and session.alive:
            changes = policies_of(self.plan, self.queue, self.first_dead, self.connections % 2)
            self.governor.change(session.address, changes, partial(self._governed, session))

    def _governed(self, session: Session, taken: bool) -> None:
        if not taken:
            self.clock.after(UNGOVERNED, partial(self._govern, session))
        elif session is self.session and session.alive:
            self.journal.operations += 1
            self._declare(session)

    def _declare(self, session: Session) -> None:
        """What dead letters come to, before what they leave."""
        plan, exchange = self.plan, exchange_of(self.plan)
        arguments = {self.dead: {}, self.queue: arguments_of(plan, self.first_dead)}
        steps = steps_of(plan)
        onward = [*steps, self.queue if plan.cycle else self.dead][1:]
        for queue, step, target in zip(steps, plan.steps, onward, strict=True):
            arguments[queue] = step_arguments(step, target)
        for queue in (self.dead, *reversed(steps)):
            self._ask(session, "queue.declare", queue=queue, durable=plan.durable, args=arguments[queue])
        if exchange:
            shape = {"type": "direct", "durable": plan.durable, "internal": True}
            self._ask(session, "exchange.declare", exchange=exchange, **shape)
            ends = {"exchange": exchange, "queue": self.first_dead, "key": self.first_dead}
            self._ask(session, "queue.bind", **ends)
        last = {"durable": plan.durable, "args": arguments[self.queue]}
        self._ask(session, "queue.declare", queue=self.queue, **last)
        if later := later_of(plan):
            what = {
                "type": "x-delayed-message",
                "durable": plan.durable,
                "args": {"x-delayed-type": "direct"},
            }
            self._ask(session, "exchange.declare", exchange=later, **what)
            self._ask(session, "queue.bind", exchange=later, queue=self.queue, key=self.queue)
        session.call("confirm.select", partial(self._selected, session))

    def _ask(self, session: Session, method: str, **arguments: Any) -> None:
        self.journal.operations += 1
        session.call(method, self._ignore, **arguments)

    def _ignore(self, *_: object) -> None:
        """It is there."""

    def _selected(self, session: Session, *_: object) -> None:
        self._tag = 0
        self._later(session)

    def disconnected(self) -> None:
        self._in_doubt = [*self._outstanding.values(), *self._in_doubt]
        self._outstanding = {}

    def _later(self, session: Session) -> None:
        self.clock.after(self.plan.interval * (0.5 + self.rng.random()), partial(self._next, session))

    def _next(self, session: Session) -> None:
        if session is not self.session or not session.alive:
            return
        out = b""
        for _ in range(self.rng.randint(1, self.plan.burst)):
            if len(self._outstanding) >= MOST_OUTSTANDING:
                break
            if self._in_doubt:
                out += self._publish(self._in_doubt.pop(0))
            elif not self.finishing and len(self.messages) < MOST_MESSAGES:
                out += self._publish(self._fresh())
        if out:
            session.send(out)
        if not self.finishing and self.rng.random() < self.plan.gets:
            self.journal.operations += 1
            session.call("basic.get", partial(self._got, session, self.clock.now), queue=self.queue)
        if not self.finished:
            self._later(session)

    def _fresh(self) -> Ruled:
        number = len(self.messages) + 1
        longest = self.plan.expiration
        expiration = self.rng.choice((0, longest // 4, longest)) if longest is not None else None
        if expiration is not None and self.rng.random() < 0.5:
            expiration = None
        persistent = self.rng.random() < self.plan.persistent
        more = self.rng.randint(0, self.plan.body) if self.plan.body else 0
        body = f"<{self.name}:{number}>".encode() + b"." * more
        message = self.messages[number] = Ruled(number, expiration, persistent, body)
        message.octets_before = self.octets
        return message

    def _publish(self, message: Ruled) -> bytes:
        self._tag += 1
        self.sends += 1
        self.octets += len(message.body)
        message.sent.append(self.clock.now)
        message.orders.append(self.sends)
        message.refused = False
        self._outstanding[self._tag] = message
        self.journal.operations += 1
        key = f"{self.name}:{message.number}"
        self.clock.detail(f"{self.name} sends {key} to {self.queue}")
        delay = self.delay_of(message.number)
        return wire.publish(
            1, later_of(self.plan), self.queue, message.body, persistent=message.persistent,
            frame_max=self.plan.frame, expiration=message.expiration, priority=message.number % 4,
            correlation_id=self.key_of(message.number), headers={"x-delay": delay} if delay else None,
        )  # fmt: skip

    def delay_of(self, number: int) -> int:
        """Milliseconds that it waits before it comes to the queue."""
        return self.plan.delay * (number % 3) // 2

    def key_of(self, number: int) -> str:
        """In a last-value queue it replaces earlier ones of this key; "" in any other queue."""
        return str(number % self.plan.last_values) if self.plan.last_values else ""

    def confirmed(self, session: Session, tag: int, multiple: bool, nacked: bool) -> None:
        if session is not self.session:
            return
        tags = [t for t in self._outstanding if t <= tag] if multiple else [tag]
        if tag > self._tag or (not multiple and tag not in self._outstanding):
            raise ClientFault(f"{self.name}: confirm of tag {tag}, which is not outstanding")
        if nacked and not self.plan.refuses:
            raise ClientFault(f"{self.name}: tag {tag} is refused by a queue that refuses nothing")
        for message in [self._outstanding.pop(t) for t in tags]:
            if nacked:
                message.refused = True
                self.on_refused(message)
            elif message.confirmed_at is None:
                message.confirmed_at = self.clock.now

    def _got(self, session: Session, asked: float, name: str, arguments: Arguments, body: bytes) -> None:
        if name == "basic.get-empty" or session is not self.session:
            return
        number = int(body[1 : body.index(b">")].split(b":")[1])
        message = self.messages[number]
        self.on_got(message, asked)
        self.journal.operations += 1
        self.clock.detail(f"{self.name} gets {self.name}:{number} of {self.queue}")
        rejected = self.rng.random() < self.plan.rejects
        message.fate = Fate.REJECTED if rejected else Fate.ACKED
        message.rejections += rejected
        settle = ("basic.reject", {"requeue": False}) if rejected else ("basic.ack", {})
        session.send(wire.method(1, settle[0], tag=arguments["tag"], **settle[1]))
