"""What the clients said and heard, kept outside all brokers: the ground that the checkers stand on."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.simulation.clients.topology import Topology
from tests.simulation.harness.clock import Clock

STRAGGLE = 1.0
"""Seconds for which bytes of a lost connection may still be on their way to the broker."""


GIVEN_BACK = 0.3
"""Seconds after which a node has surely taken back what a lost connection or a reject gave it."""


class Violation(Exception):
    """An invariant does not hold. `number` is its number."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"invariant {number}: {text}")
        self.number = number


class Settled(enum.Enum):
    """How a consumer ended a message."""

    ACKED = "acked"
    REJECTED = "rejected"


@dataclass(slots=True)
class Message:
    """One logical message of one publisher. `sends` holds the publisher's own count at each send of it."""

    key: str
    body: bytes
    publisher: str
    number: int
    exchange: str
    routing_key: str
    persistent: bool
    sends: list[int] = field(default_factory=list)
    last_sent: float = 0.0
    confirmed_at: float | None = None
    returned: bool = False
    certain: frozenset[str] = frozenset()
    """Queues that surely were bound when it was last sent."""
    expected: frozenset[str] = frozenset()
    """Queues that must hold it, from its confirm on."""


@dataclass(slots=True)
class Voiding:
    """A purge or a delete: `end` is when it surely was over, None while it may still take effect."""

    kind: str
    queue: str
    sent_at: float
    end: float | None = None
    done: bool = False


@dataclass(slots=True)
class Line:
    """One connection of a client: with which node, since when, and when the client lost it."""

    port: int
    opened_at: float = 0.0
    lost_at: float | None = None


class Connected(Protocol):
    """A session of a client."""

    @property
    def address(self) -> tuple[str, int]:
        """Of the node that it is with."""

    @property
    def established(self) -> bool:
        """Both ends have it."""


@dataclass(slots=True)
class Turn:
    """One basic.consume: asked for at `asked_at`, known to be answered from `known_at` on. `over`: its cancel
    is handed to the kernel."""

    tag: str
    session: Connected
    asked_at: float
    known_at: float | None = None
    over: bool = False

    @property
    def lasts(self) -> bool:
        """Is it surely there, at its node?"""
        return not self.over and self.session.established


@dataclass(slots=True)
class Subscription:
    """One consumer's one life, or one channel that gets."""

    client: str
    queue: str
    started: float
    last_send: dict[str, int] = field(default_factory=dict)
    line: Line = field(default_factory=lambda: Line(0))
    turn: Turn | None = None
    """Of a consumer: the one that got the last message."""
    confirmed_only: bool = False
    """It asked for `x-confirmed-only`."""

    @property
    def port(self) -> int:
        """Which node it is with."""
        return self.line.port


@dataclass(slots=True, frozen=True)
class Ending:
    """A consumer has handed the ack or reject of a message to its kernel."""

    how: Settled
    at: float
    line: Line | None


@dataclass(slots=True)
class Delivery:
    subscription: Subscription
    message: Message
    redelivered: bool
    at: float
    left: float
    """Not before then did a broker send it."""


Thing = tuple[str, ...]
"""("queue", name), ("exchange", name) or ("binding", source, target, key)."""


@dataclass(slots=True, frozen=True)
class Known:
    """What a client was told of a definition: it is there, or it is not."""

    exists: bool
    durable: bool
    at: float


@dataclass(slots=True)
class Temporary:
    """An exclusive, expiring or auto-delete queue: when its client asked for it, the last time that it was
    heard, and since when it has to be over. `ending`: its client is about to end it, or may have lost it."""

    opened_at: float
    ending: bool = False
    over_at: float | None = None
    lasts: float = 0.0
    """Seconds for which it is there without use."""
    torn: tuple[float, ...] = ()
    """When its client lost a connection that it was in use by: without heartbeats the broker may not."""
    asked_at: float = 0.0
    """When its client last asked for it: nobody who has served since then only has to heed that."""


class Journal:
    """Observers (the checkers) are told as it happens; the final checks read the rest."""

    def __init__(self, clock: Clock, topology: Topology) -> None:
        self.clock = clock
        self.topology = topology
        self.messages: dict[str, Message] = {}
        self.confirmed: list[Message] = []
        self.settled: dict[tuple[str, str], Ending] = {}
        self.voidings: dict[str, list[Voiding]] = {}
        """By queue."""
        self.memory_lost = self.unkept_lost = -1.0
        """The second: with transient messages of durable queues, too."""
        """When a cold start last served what disks had: all that was in memory only may be gone."""
        self.disk_lost = -1.0
        """The same of what was persistent, too: the last of what was confirmed may have been on no disk."""
        self.forced_until = -1.0
        """Nothing is promised of what was sent, or acked, until then: a promotion was forced, and the nodes
        were not whole again. While they are not yet, infinite."""
        self.short_lived: dict[str, float | None] = {}
        """Short-lived queues: since when one is certainly declared and bound, None while it may not be."""
        self.on_delivery: list[Callable[[Delivery], None]] = []
        self.turns: dict[str, list[Turn]] = {}
        """By queue: those that were answered, in that order."""
        self.on_unknown: Callable[[str, bytes], None] = lambda queue, body: None
        self.delivered = 0
        self.definitions: dict[Thing, Known | None] = {}
        """None while an answer is out, or lost."""
        self.base: frozenset[Thing] = frozenset()
        """What was declared before all else, and stays."""
        self.requests: dict[str, deque[tuple[tuple[Thing, ...], bool]]] = {}
        """By connection: what was asked for, in order; the checker of the answers takes it away."""
        self.temporaries: dict[str, Temporary] = {}
        """By the queue's name."""
        self._disturbed: dict[tuple[str, int], float] = {}
        self._unsettled: list[Message] = []
        self.ways_clear_from = 0.0
        """From then on a node hears soon of connections that go: no way was cut for a while, and no client
        stopped reading."""
        self._hampered = 0
        self._forcing = 0
        self._eased_at = 0.0
        self.operations = 0
        self.trespasses = 0
        """Publishes to an internal exchange that were refused."""

    # -- publishers

    def publishing(self, message: Message, count: int) -> None:
        """`message` is handed to the kernel as the publisher's send number `count`."""
        self.operations += 1
        self.messages[message.key] = message
        message.sends.append(count)
        message.last_sent = self.clock.now
        self.clock.detail(
            f"{message.publisher} sends {message.key} to {message.exchange!r} {message.routing_key!r}"
        )
        message.certain = self.topology.route(message.exchange, message.routing_key)
        if message.exchange == self.topology.churned:
            message.certain |= {name for name, since in self.short_lived.items() if since is not None}

    def confirm(self, message: Message) -> None:
        if message.confirmed_at is not None:
            return
        message.confirmed_at = self.clock.now
        message.expected = frozenset(q for q in message.certain if self.must_hold(q, message))
        self.confirmed.append(message)
        if message.expected:
            self._unsettled.append(message)

    def must_hold(self, queue: str, message: Message) -> bool:
        """Was `queue` bound ever since `message` was last sent, and is nothing known to have taken it out?"""
        if (queue, message.key) in self.settled or message.last_sent <= self.forced_until:
            return False
        if queue in self.short_lived:
            since = self.short_lived[queue]
            if since is None or since > message.last_sent:
                return False
        lost = self.unkept_lost if self.topology.durable(queue) else self.memory_lost
        if message.last_sent <= lost and not self.lasting(message, queue):
            return False
        return queue not in self.voidings or not self.voided(message, queue)

    def must_hold_in(self, message: Message) -> list[str]:
        """Where the message must be: where no consumer, purge or delete may have ended it."""
        return [queue for queue in sorted(message.certain) if self.must_hold(queue, message)]

    def unsettled(self) -> list[Message]:
        """The confirmed messages that some queue must hold."""
        self._unsettled = [m for m in self._unsettled if any(self.must_hold(q, m) for q in m.certain)]
        return self._unsettled

    def cold_start(self, *, kept: bool = False, lagging: bool = False) -> None:
        """From now on only what disks had is served: the rest may be gone. `kept`: that disk had what is
        transient in durable queues. `lagging`: disks may lack what was confirmed."""
        self.memory_lost = self.clock.now
        if lagging:
            self.disk_lost = self.clock.now
        if not kept:
            self.unkept_lost = self.clock.now
        for thing, known in self.definitions.items():
            if known is not None and not known.durable:
                self.definitions[thing] = None

    @property
    def binding(self) -> bool:
        """Do the promises hold now? From when somebody forces a promotion on they do not."""
        return self.forced_until < self.clock.now

    def forcing(self) -> None:
        """An operator is about to take the blame: what was promised may be undone."""
        self._forcing += 1
        self.forced_until = float("inf")

    def whole_again(self) -> None:
        """The nodes are of one mind: if no other force is under way, all holds from now on as ever. What was
        declared, and is not for ever, may be gone.
        """
        self._forcing -= 1
        if self._forcing:
            return
        self.forced_until = self.clock.now
        for thing in self.definitions.keys() - self.base:
            self.definitions[thing] = None
        self.short_lived = dict.fromkeys(self.short_lived)

    def lasting(self, message: Message, queue: str) -> bool:
        """Does it survive on a disk alone?"""
        return message.persistent and self.topology.durable(queue) and message.last_sent > self.disk_lost

    def voided(self, message: Message, queue: str) -> bool:
        """May a purge or a delete have taken `message` from `queue`?"""
        return any(v.end is None or message.last_sent <= v.end for v in self.voidings.get(queue, ()))

    # -- consumers

    def deliver(
        self, subscription: Subscription, body: bytes, redelivered: bool, left: float
    ) -> Message | None:
        """A message arrived, which the broker sent no sooner than `left`; None when nobody published it."""
        self.operations += 1
        self.delivered += 1
        key = body[1 : body.find(b">")].decode(errors="replace")
        message = self.messages.get(key)
        if message is None or message.body != body:
            self.on_unknown(subscription.queue, body)
            return None
        delivery = Delivery(subscription, message, redelivered, self.clock.now, left)
        flag = ", redelivered" if redelivered else ""
        self.clock.detail(f"{subscription.client} gets {key} of {subscription.queue}{flag}")
        for observer in self.on_delivery:
            observer(delivery)
        return message

    def settle(self, queue: str, message: Message, how: Settled, line: Line | None = None) -> None:
        """The ack or reject is handed to the kernel."""
        self.operations += 1
        self.clock.detail(f"{message.key} of {queue} is {how.value}")
        self.settled.setdefault((queue, message.key), Ending(how, self.clock.now, line))

    def disturb(self, queue: str, port: int) -> None:
        """Somebody at that node gives messages back, or is about to, by reject or by going."""
        self._disturbed[queue, port] = self.clock.now

    def hampered(self) -> None:
        """A way is cut, or a client reads no more, so that a node may not hear of a connection that goes; and
        may have assigned what it could not write."""
        self._hampered += 1
        self.ways_clear_from = float("inf")

    def eased(self, after: float) -> None:
        """That is over; until `after` seconds from now news may be late."""
        self._hampered -= 1
        self._eased_at = max(self._eased_at, self.clock.now + after)
        if not self._hampered:
            self.ways_clear_from = self._eased_at

    def orderly(self, subscription: Subscription, *, redelivered: bool) -> bool:
        """Has nobody given messages back since it began? Then redelivered ones come in order too. The others
        always do, unless somebody may have given back what could not be written."""
        last = self._disturbed.get((subscription.queue, subscription.port))
        if subscription.started < self.ways_clear_from:
            return last is None and not redelivered
        return not redelivered or last is None or last + GIVEN_BACK < subscription.started

    # -- definitions

    def asking(self, things: Sequence[Thing], exists: bool, connection: str) -> None:
        """A request that is to make these so is handed to the kernel."""
        self.requests.setdefault(connection, deque()).append((tuple(things), exists))
        for thing in things:
            known = self.definitions.get(thing)
            if known is None or known.exists is not exists:
                self.definitions[thing] = None

    def answered(self, thing: Thing, exists: bool, durable: bool) -> None:
        self.definitions[thing] = Known(exists, durable, self.clock.now)

    # -- short-lived queues

    def voiding(self, kind: str, queue: str) -> Voiding:
        """A purge or delete is handed to the kernel."""
        self.operations += 1
        voiding = Voiding(kind, queue, self.clock.now)
        self.voidings.setdefault(queue, []).append(voiding)
        return voiding

    def voided_surely(self, voiding: Voiding) -> None:
        voiding.end = self.clock.now
        voiding.done = True

    def voiding_lost(self, voiding: Voiding) -> None:
        """The connection went before the answer came: it may or may not have been done."""
        if voiding.end is None:
            voiding.end = self.clock.now + STRAGGLE
