"""A link on which a client sends: transfers in, runs of messages to the virtual host, outcomes out.

Owner: `Links`. While the client's input lasts, messages with the same target, persistence, expiration and
priority are gathered into one run, as in 0-9-1. Each message gets an outcome once that is safe: `accepted`;
`released` if no queue matched; `rejected` if a full queue refused it or the message is malformed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from proton import Condition, Receiver

from broker.amqp091.codec.properties import Checked, headers_of
from broker.amqp10 import deliveries
from broker.amqp10.conversion import Incoming as Message
from broker.amqp10.conversion import incoming as converted
from broker.amqp10.deliveries import Delivery
from broker.amqp10.reply_codes import fault_of
from broker.authorization import demand_copies
from broker.errors import AmqpError
from broker.model.routing.publish_route import PublishRoute
from broker.model.steps import Steps
from broker.model.values import Need
from broker.model.vhost.turns import publish_in_turns
from broker.model.vhost.vhost import Published
from broker.model.vhost.windows import Keys, keys_of
from broker.pieces import Parts, gather
from understudy.shared.amqp10.addresses import Address, parse
from understudy.shared.amqp10.conditions import (
    DECODE,
    INVALID_FIELD,
    LIMIT,
    MESSAGE_SIZE,
    TRANSFER_LIMIT,
    UNAUTHORIZED,
    Fault,
)
from understudy.shared.amqp10.types import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.amqp10.head_shape import HeadShapes
    from broker.amqp10.host import Amqp10Host
    from broker.hooks import LargeMessage
    from broker.model.vhost.producers import Claim, ProducerSession

WINDOW = 500
"""Credit of one link: messages that may be on their way."""
IN_DOUBT = 2000
"""Maximum messages of one link that wait for gates. Above it, the link gets no more credit."""
_PER_DELIVERY = 1300
"""Approximate octets of an incomplete delivery besides its parts and the engine's buffer."""


class _Run(NamedTuple):
    """Messages published together. `first`: the ledger number of the first one."""

    target: Address
    deliveries: list[Delivery]
    messages: list[bytes]
    kind: Checked
    largest: int
    first: int

    def one(self, at: int) -> _Run:
        """The run with only message `at`."""
        return self.part(at, at + 1)

    def part(self, begin: int, end: int) -> _Run:
        """The run with only messages `begin` up to `end`."""
        deliveries, messages = self.deliveries[begin:end], self.messages[begin:end]
        return self._replace(deliveries=deliveries, messages=messages, first=self.first + begin)


class IncomingHost(Protocol):
    """What such a link needs from `Links`."""

    @property
    def connection(self) -> Amqp10Host: ...
    @property
    def shapes(self) -> HeadShapes: ...
    def credit(self, link: Incoming) -> None: ...
    def gather(self, link: Incoming) -> None: ...
    def flush(self) -> None: ...
    def hold(self, need: Need, after: Callable[[], None]) -> None: ...
    def serves(self, served: Incoming) -> bool: ...
    def fail(self, served: Incoming, fault: Fault) -> None: ...


class Incoming:
    """`target`: None for the anonymous terminus, whose messages name their own targets. `producer`: the name
    of the link's messages in the ledger, if the client named its connection. They are numbered from 1.
    `claim`: the link's messages have the numbers of this producer."""

    __slots__ = (
        "_buffer",
        "_held",
        "_in_doubt",
        "_key",
        "_largest",
        "_links",
        "_messages",
        "_next",
        "_numbers",
        "_octets",
        "_parts",
        "_pointer",
        "_run",
        "_shown",
        "_shown_at",
        "link",
        "producer",
        "target",
    )  # fmt: skip

    def __init__(
        self, links: IncomingHost, link: Receiver, target: Address | None, producer: str | None,
        claim: Claim | None = None,
    ) -> None:  # fmt: skip
        self._links = links
        self.link = link
        self._pointer = deliveries.pointer(link)
        self.target = target
        self.producer = producer
        self._next = 1
        self._parts: Parts = []
        self._octets = 0
        self._held = self._buffer = 0
        """Octets counted for the parts, and the engine's buffer among them."""
        self._shown: LargeMessage | None = None
        """The observer that gets the parts of a large message from `_shown_at` on."""
        self._shown_at = 0
        self._run: list[Delivery] = []
        self._messages: list[bytes] = []
        self._largest = 0
        self._in_doubt = 0
        self._key: tuple[Address, Checked] | None = None
        self._numbers: ProducerSession | None = None
        if claim is not None:
            connection = links.connection
            shared = connection.vhost.shared
            self._numbers = shared.producers.begin(
                shared, connection.vhost.name, claim, connection.user, self._fenced
            )

    def _fenced(self, why: AmqpError) -> None:
        if self._links.serves(self):
            self._links.fail(self, fault_of(why))

    def open(self) -> None:
        """Answer the attach, and give credit. A producer's entry is first on all disks that count."""
        if self._numbers is None:
            self.link.open()
            self._links.credit(self)
        else:
            self._links.hold(Need.DURABLE, self._open_later)

    def _open_later(self) -> None:
        if self._links.serves(self):
            self.link.open()
            self.top_up()
            self._links.connection.sent(0)

    # -- transfers

    def delivery(self, delivery: Delivery) -> None:
        """A transfer has arrived, or the client settled one. Raises Fault if it ends the connection."""
        if not deliveries.readable(delivery):
            return  # `_settle` finds out whether the client has settled it
        link = self._pointer
        # The credit still counts transfers that have arrived and are not taken.
        if deliveries.credit(link) <= 0:
            self._links.fail(self, Fault(TRANSFER_LIMIT, "a transfer without credit"))
            return
        if deliveries.aborted(delivery):
            self._forget_parts()
            deliveries.advance(link)
            deliveries.settle(delivery)
            self._links.credit(self)
            return
        part = deliveries.received(link, delivery)
        limit = self._links.connection.settings.message_max
        if self._octets + len(part) > limit:
            self._links.fail(self, Fault(MESSAGE_SIZE, f"message larger than the maximum of {limit} octets"))
        elif deliveries.partial(delivery):
            self._collect(part)
        else:
            payload = b"".join((*self._parts, part)) if self._parts else part
            if self._shown is not None:
                self._shown.piece(part)
            shown, self._shown = self._shown, None
            self._forget_parts()
            deliveries.advance(link)
            self._links.credit(self)
            if shown is None:
                self._whole(delivery, payload)
                return
            self._links.flush()
            self._whole(delivery, payload, shown)
            shown.dropped()
            self._links.flush()

    def _collect(self, part: bytes) -> None:
        """Collect a part of an incomplete message. From now on an alarm stops reading from the client."""
        if not part:
            return
        connection, octets = self._links.connection, len(part)
        if not self._parts:
            octets += _PER_DELIVERY
            connection.note_publish()
        grown = (1 << (len(part) - 1).bit_length()) - self._buffer  # the engine's buffer is a power of two
        if grown > 0:
            self._buffer += grown
            octets += grown
            connection.buffers(grown)
        gather(self._parts, part)
        if self._shown is not None:
            self._shown.piece(part)
        self._octets += len(part)
        self._held += octets
        if self._shown is None and self._octets >= connection.settings.large_message:
            self._shown, self._shown_at = connection.broker.hooks.large_message(connection), self._octets
        if connection.receives(octets) > connection.settings.assembling_max:
            raise Fault(LIMIT, "too many bytes of unfinished messages on one connection")

    def _forget_parts(self) -> None:
        if self._shown is not None:
            self._shown.dropped()
            self._shown = None
        if self._parts:
            connection = self._links.connection
            connection.receives(-self._held)
            connection.buffers(-self._buffer)
            self._parts, self._octets, self._held, self._buffer = [], 0, 0, 0

    def _whole(self, delivery: Delivery, payload: bytes, shown: LargeMessage | None = None) -> None:
        try:
            message = converted(payload, self._links.shapes)
            target = self.target or _own_target(message)
            user = message.user_id
            if user is not None and user != self._links.connection.user.encode():
                raise Fault(UNAUTHORIZED, f"user-id {user[:60]!r} is not the user that sends")
        except DecodeError as error:
            self._reject([delivery], Fault(DECODE, str(error)))
        except Fault as fault:
            self._reject([delivery], fault)
        else:
            self._gather(delivery, message, target)
            octets = len(payload) - self._shown_at
            if shown is not None and octets <= message.as_it_came:
                shown.whole(message.raw, len(message.raw) - 1 - octets)

    def _gather(self, delivery: Delivery, message: Message, target: Address) -> None:
        self._links.gather(self)
        key = (target, message.kind)
        if key != self._key:
            self.flush()
            self._key = key
        self._run.append(delivery)
        self._messages.append(message.raw)
        self._largest = max(self._largest, message.largest)

    # -- publishing

    def flush(self) -> None:
        """Publish what was gathered."""
        run, messages, largest = self._run, self._messages, self._largest
        if not run or self._key is None:
            return
        self._run, self._messages, self._largest = [], [], 0
        target, kind = self._key
        first, self._next = self._next, self._next + len(run)
        connection = self._links.connection
        connection.note_publish()
        if target.exchange is not connection.went.name:
            connection.went.turn(target.exchange, connection.counts.publish)
        connection.counts.publish += len(run)
        connection.work(self._publish(_Run(target, run, messages, kind, largest, first)))

    def _publish(self, run: _Run) -> Steps[None]:
        """Publish a run in as many turns as needed. An error closes the link; with an anonymous target it
        rejects the messages."""
        connection, target = self._links.connection, run.target
        try:
            if connection.access is not None:
                connection.access.demand(connection, "write", "exchange", target.exchange)
                connection.access.demand_topic(connection, "write", target.exchange, target.key)
            route = yield from connection.vhost.find(target.exchange, target.key)
            if not route.queues:
                connection.vhost.check_published(target.exchange, target.key)
            if not route.needs_headers:
                yield from self._publish_to(route, run)
                return
            for at, raw in enumerate(run.messages):
                headers = headers_of(raw)
                demand_copies(connection, target.exchange, headers)
                own = yield from connection.vhost.find_by_headers(target.exchange, target.key, headers, raw)
                yield from self._publish_to(own, run.one(at))
        except AmqpError as error:
            if self.target is None:
                self._reject(run.deliveries, fault_of(error))
            else:
                self._links.fail(self, fault_of(error))

    def _publish_to(self, route: PublishRoute, run: _Run) -> Steps[None]:
        """Publish a run. A message with an id that a queue with a window cannot take is rejected alone."""
        form = self._links.connection.vhost.removals.format
        keys, fault = keys_of(form, run.messages) if route.windows else (None, None)
        while keys is not None and fault is not None:
            at = len(keys)
            if at:
                yield from self._publish_good(route, run.part(0, at), keys)
            self._reject([run.deliveries[at]], fault_of(fault))
            run = run.part(at + 1, len(run.messages))
            keys, fault = keys_of(form, run.messages)
        if run.messages:
            yield from self._publish_good(route, run, keys)

    def _publish_good(self, route: PublishRoute, run: _Run, keys: Keys | None) -> Steps[None]:
        connection, kind = self._links.connection, run.kind
        outcome = deliveries.ACCEPTED if route.queues else deliveries.RELEASED
        count, counts = len(run.messages), connection.counts
        route.counted.publish += count
        route.counted.routed += count * len(route.queues)
        counts.routed += count * len(route.queues)
        if not route.queues:
            counts.return_unroutable += count

        numbers = self._numbers

        def publish(part: PublishRoute, messages: list[bytes], at: int) -> Published:
            if numbers is not None and not self._links.serves(self):
                return Published(Need.NONE, 0)  # the numbers are another one's now
            done = connection.vhost.publish(
                part, messages, persistent=kind.persistent, channel=0, largest_frame=run.largest,
                producer=self.producer, first_tag=run.first + at, expiration=kind.expiration,
                priority=kind.priority,
                numbering=None if numbers is None else numbers.numbering(run.first + at), by_id=True,
                keys=None if keys is None else keys[at : at + len(messages)],
            )  # fmt: skip
            if part.refusing:
                connection.await_refused()
            return done

        def report(done: Published, at: int, count: int) -> None:
            if done.accepted:
                self._hold(done.need, run.deliveries[at : at + done.accepted], outcome)
            if done.accepted < count:
                full = Fault(LIMIT, "a queue is full, and refuses more")
                self._hold(
                    Need.NONE, run.deliveries[at + done.accepted : at + count], deliveries.REJECTED, full
                )

        return publish_in_turns(route, run.messages, connection.settings.share, publish, report)

    # -- outcomes

    def _hold(self, need: Need, run: list[Delivery], outcome: int, why: Fault | None = None) -> None:
        """Send the outcome when it is safe, for the deliveries that the client has not settled already."""
        if not self._links.serves(self):
            return
        unsettled = []
        for delivery in run:
            if deliveries.settled(delivery):
                deliveries.settle(delivery)
            else:
                unsettled.append(delivery)
        if unsettled:
            self._in_doubt += len(unsettled)
            self._links.hold(need, lambda: self._known(unsettled, outcome, why))

    def _known(self, run: list[Delivery], outcome: int, why: Fault | None) -> None:
        self._in_doubt -= len(run)
        self._settle(run, outcome, why)
        if outcome == deliveries.ACCEPTED:
            self._links.connection.counts.confirm += len(run)
        if self._links.serves(self):
            self.top_up()

    def _settle(self, run: list[Delivery], outcome: int, why: Fault | None = None) -> None:
        if self._links.serves(self):
            for delivery in run:
                if why is not None:
                    deliveries.refuse(delivery, Condition(why.condition, why.text))
                elif not deliveries.settled(delivery):
                    deliveries.update(delivery, outcome)
                deliveries.settle(delivery)
            self._links.connection.sent(0)

    def _reject(self, run: list[Delivery], why: Fault) -> None:
        self._settle(run, deliveries.REJECTED, why)

    # -- credit

    def top_up(self) -> None:
        """If half of the window is used, give credit again, unless too many messages are in doubt."""
        credit = self.link.credit
        if credit <= WINDOW // 2 and self._in_doubt < IN_DOUBT:
            self.link.flow(WINDOW - credit)

    def flow(self) -> None:
        """The client reports its view of the credit; nothing to do."""

    def resume(self) -> None:
        """Nothing to do: this concerns deliveries to the client."""

    def end(self) -> None:
        """Discard what was not published; it was never accepted."""
        self._forget_parts()
        self._run, self._messages = [], []
        if self._numbers is not None:
            self._links.connection.vhost.shared.producers.end(self._numbers)


def _own_target(message: Message) -> Address:
    if message.to is None:
        raise Fault(INVALID_FIELD, "no target, neither of the link nor in the message's own field 'to'")
    return parse(message.to)
