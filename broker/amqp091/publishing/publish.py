"""Publishing: from bytes to runs. The hot path of the broker's input.

Owner: `ServerConnection`, which has one `Publisher`. A message like the previous one costs one prefix
comparison (method frame, header frame and start of the body frame), one slice and one append. One that
differs in its size and in the values of its properties has its frames measured, and its properties compared
with their `Shape`.
Messages with the same channel, route, persistence, expiration and priority are gathered and passed to the
virtual host as one run. That happens at the latest when the connection's input is used up or another kind of
frame arrives, which keeps the client's order.

Incomplete frames, and bodies in several frames, take the slow path through one `Assembly` per channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.amqp091.channel_state.assembly import Assembly, Target, return_frame
from broker.amqp091.codec.frames import BODY, FRAME_END, HEADER, OVERHEAD, head
from broker.amqp091.codec.grammar import BY_NAME, decode_arguments
from broker.amqp091.codec.properties import (
    PROPERTIES_AT,
    TRANSIENT,
    Checked,
    check,
    headers_of,
    without_bcc,
)  # fmt: skip
from broker.amqp091.codec.property_shape import Shapes
from broker.amqp091.codec.reply_to import with_reply_to
from broker.amqp091.publishing.transaction import TransactedChannel
from broker.authorization import demand_copies
from broker.errors import (
    AmqpError,
    ChannelError,
    ContentTooLarge,
    FrameError,
    NotImplemented_,
    PreconditionFailed,
    ResourceError,
    UnexpectedFrame,
)
from broker.model.values import Need
from broker.model.vhost.enqueueing import Published
from broker.model.vhost.turns import PER_RUN, publish_in_turns, steps_of
from broker.model.vhost.windows import Keys, keys_of
from broker.pieces import PER_MESSAGE, gather

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.amqp091.channel_state.host import Failing, Host
    from broker.model.routing.publish_route import PublishRoute
    from broker.model.steps import Steps

_PUBLISH = BY_NAME["basic.publish"]
_BODY_SIZE_AT = 11
_MEMO = 16384
_TARGET = 16
"""Approximate steps for a change of target between messages."""
_HEADERS = 4
"""Steps for decoding a message's headers."""
_EMPTY_HEADER = 14
"""Octets of the smallest content header payload: class, weight, body size, flags."""
_LONGEST_NAME = 255
_WHATEVER = 1 << 31
"""Octets of a header frame, which is sent whole if it is too large for a consumer."""
_CONTENT = b"\0\x3c\0\0\0\0\0\0"
"""Class, weight, and the upper half of the body size."""


class PublishingChannel(TransactedChannel, Protocol):
    """The part of a channel that publishing uses."""

    assembly: Assembly | None

    @property
    def reply_to(self) -> str: ...
    def close_for(self, error: AmqpError) -> None: ...


class PublishMemo:
    """Decoded method frames, shared by all connections of a broker. Bounded."""

    __slots__ = ("_targets",)

    def __init__(self) -> None:
        self._targets: dict[bytes, Target] = {}

    def target(self, payload: bytes) -> Target:
        """Decode a publish payload. Raises 502, and 540 for `immediate`, which RabbitMQ does not support
        either."""
        known = self._targets.get(payload)
        if known is None:
            arguments = decode_arguments(_PUBLISH, payload)
            if arguments["immediate"]:
                raise NotImplemented_("immediate=true", 60, 40)
            known = Target(arguments["exchange"], arguments["routing_key"], arguments["mandatory"])
            if len(self._targets) >= _MEMO:
                self._targets.clear()
            self._targets[payload] = known
        return known


class Publisher:
    """Gathers runs for one connection."""

    __slots__ = (
        "_body_head", "_channel", "_connection", "_generation", "_kind", "_largest", "_memo", "_method",
        "_most", "_opening", "_prefix", "_raws", "_shapes", "_target", "_total",
    )  # fmt: skip
    __deletable__ = ("_connection",)

    def __init__(self, connection: Host, memo: PublishMemo) -> None:
        self._connection = connection
        self._memo = memo
        self._channel: PublishingChannel | None = None
        self._method = b""
        self._target = Target("", "", False)
        self._kind = TRANSIENT
        self._largest = 0
        self._raws: list[bytes] = []
        self._most = 1
        """Maximum messages of a run, by the cost of each in the previous one, or by `_guess`."""
        self._generation = -1
        """The virtual host's generation when `_most` was computed."""
        self._prefix = b""
        """The last complete message up to its body."""
        self._opening = self._body_head = b""
        """The method frame and the start of a header frame of its channel; the start of a body frame."""
        self._total = 0
        self._shapes = Shapes()

    @property
    def largest(self) -> int:
        """Octets of the largest frame of the latest messages, as long as these go on alike; else 0."""
        return self._largest

    @property
    def octets(self) -> int:
        """What is kept in memory of the connection's latest property lists, approximately."""
        return self._shapes.octets

    def release(self) -> None:
        """The connection is closed: drop the reference to it."""
        del self._connection

    def publishes(self, channel: PublishingChannel, buf: bytes, pos: int, end: int) -> int:
        """Handle the complete publish method frame from `pos` to `end`. Takes all complete messages from here
        on with the same route. Returns the position behind them."""
        method = buf[pos:end]
        if method != self._method or channel is not self._channel:
            self.flush()
            if self._connection.working:
                return pos
            self._prefix = self._method = b""
            self._target = self._memo.target(method[7:-1])
            self._channel, self._method = channel, method
            number = channel.number.to_bytes(2, "big")
            self._opening, self._body_head = method + b"\x02" + number, b"\x03" + number
            self._connection.spent += _TARGET
            self._guess()
        elif self._connection.vhost.generation != self._generation:
            self._guess()
        skip = end - pos
        size = len(buf)
        while True:
            prefix = self._prefix
            if prefix and buf.startswith(prefix, pos):
                total = self._total
                append = self._raws.append
                startswith = buf.startswith
                limit = min(size, pos + (self._most - len(self._raws)) * total)
                end = pos + total
                while end <= limit and startswith(prefix, pos) and buf[end - 1] == FRAME_END:
                    append(buf[pos + skip : end])
                    pos = end
                    end += total
            pos = self._varied(buf, pos, skip)
            if not buf.startswith(method, pos):
                return pos
            if len(self._raws) >= self._most:
                self.flush()
                return pos
            end = self._whole(buf, pos, pos + skip)
            if end < 0:
                channel.assembly = Assembly(self._target)
                self._connection.note_publish()  # an alarm stops reading from a client that sends the rest
                return pos + skip
            pos = end

    def _varied(self, buf: bytes, pos: int, skip: int) -> int:
        """Take messages from `pos` on for the same route, whose properties have the shape of the latest ones
        and whose sizes may differ. Returns the position behind them. Leaves anything unusual to `_whole`."""
        shape = self._shapes.latest
        if shape is None or (shape.kind is not self._kind and shape.kind != self._kind):
            return pos
        connection = self._connection
        opening, body_head, largest = self._opening, self._body_head, self._largest - OVERHEAD
        payload_max = connection.payload_max
        body_max = min(payload_max, connection.settings.message_max)
        append = self._raws.append
        opened = len(opening)
        size = len(buf)
        for _ in range(self._most - len(self._raws)):
            at = pos + skip
            if (
                at + OVERHEAD + _EMPTY_HEADER > size
                or buf[pos : pos + opened] != opening
                or buf[at + 7 : at + 15] != _CONTENT
            ):
                break
            length = buf[at + 3] << 24 | buf[at + 4] << 16 | buf[at + 5] << 8 | buf[at + 6]
            end = body_at = at + OVERHEAD + length
            if length > payload_max or body_at > size:
                break
            body = buf[at + 15] << 24 | buf[at + 16] << 16 | buf[at + 17] << 8 | buf[at + 18]
            if body:
                end = body_at + OVERHEAD + body
                if end > size or body > body_max or buf[body_at : body_at + 3] != body_head:
                    break
                if buf[body_at + 3 : body_at + 7] != buf[at + 15 : at + 19] or buf[end - 1] != FRAME_END:
                    break
                if body > largest:
                    largest = body
            if buf[body_at - 1] != FRAME_END or not shape.matches(buf, at + PROPERTIES_AT, body_at - 1):
                break
            if length > largest:
                largest = length
            append(buf[at:end])
            pos = end
        self._largest = largest + OVERHEAD
        return pos

    def _guess(self) -> None:
        """The cost of messages with a new target is unknown: each may go to every queue."""
        connection = self._connection
        self._most = max(1, connection.settings.share // connection.vhost.reach - PER_RUN)
        self._generation = connection.vhost.generation

    def _whole(self, buf: bytes, pos: int, at: int) -> int:
        """Take the message whose content starts at `at`, if it is complete and in one body frame. Returns its
        end, or -1.

        Leaves anything unusual to the slow path, which reports the exact error.
        """
        connection = self._connection
        size = len(buf)
        if size - at < OVERHEAD + _EMPTY_HEADER:
            return -1
        type_, number, length = head(buf, at)
        body_at = at + OVERHEAD + length
        if type_ != HEADER or number != self._number or length < _EMPTY_HEADER or body_at > size:
            return -1
        if buf[body_at - 1] != FRAME_END or buf[at + 7 : at + _BODY_SIZE_AT] != b"\0\x3c\0\0":
            return -1
        body = int.from_bytes(buf[at + _BODY_SIZE_AT : at + PROPERTIES_AT], "big")
        end = body_at
        if body:
            end += OVERHEAD + body
            if end > size or body > connection.payload_max or body > connection.settings.message_max:
                return -1
            if head(buf, body_at) != (BODY, number, body) or buf[end - 1] != FRAME_END:
                return -1
        if length > connection.payload_max:
            return -1
        try:
            kind = self._check(buf, at + PROPERTIES_AT, body_at - 1)
        except AmqpError:
            return -1
        if kind != self._kind:
            self.flush()
            self._guess()
        self._kind = kind
        self._prefix = buf[pos : body_at + 7 if body else body_at]
        self._total = end - pos
        self._largest = max(self._largest, length + OVERHEAD, body + OVERHEAD)
        self._raws.append(buf[at:end])
        return end

    @property
    def _number(self) -> int:
        return self._channel.number if self._channel is not None else 0

    def _check(self, buf: bytes, at: int, end: int) -> Checked:
        """Check the properties. Raises 502, and 406 for a forged user-id (bad input 25)."""
        known = self._shapes.find(buf, at, end)
        if known is not None:
            return known
        properties = buf[at:end]
        checked = check(properties)
        if checked.user_id is not None and checked.user_id != self._connection.user:
            raise PreconditionFailed(
                f"user_id property set to '{checked.user_id[:60]}' but authenticated user was "
                f"'{self._connection.user}'", 60, 40,
            )  # fmt: skip
        self._shapes.learn(properties, checked)
        return checked

    def content(self, channel: PublishingChannel, kind: int, buf: bytes, pos: int, end: int) -> None:
        """Handle a single header or body frame. Raises an error that ends the connection."""
        if not channel.is_open:
            return
        try:
            if kind == HEADER:
                self._header(channel, buf, pos, end)
            else:
                self._body(channel, buf, pos, end)
        except ChannelError as error:
            self.flush()
            self._connection.fail(channel, error)

    def _header(self, channel: PublishingChannel, buf: bytes, pos: int, end: int) -> None:
        """Handle a content header frame. Raises 505 without a publish before it, 501 or 502 if malformed, 311
        if too large."""
        assembly = channel.assembly
        if assembly is None or assembly.remaining >= 0:
            raise UnexpectedFrame("content header without a publish before it")
        if end - pos < OVERHEAD + _EMPTY_HEADER:
            raise FrameError("content header cut short")
        if buf[pos + 7 : pos + 9] != b"\0\x3c":
            raise FrameError("content header of another class than its method", 60, 40)
        if buf[pos + 9 : pos + _BODY_SIZE_AT] != b"\0\0":
            raise FrameError("content header with a weight other than zero", 60, 40)
        body = int.from_bytes(buf[pos + _BODY_SIZE_AT : pos + PROPERTIES_AT], "big")
        limit = self._connection.settings.message_max
        if body > limit:
            raise ContentTooLarge(f"message size {body} is larger than configured max size {limit}", 60, 40)
        try:
            assembly.kind = self._check(buf, pos + PROPERTIES_AT, end - 1)
        except AmqpError as error:
            error.class_id, error.method_id = 60, 40
            raise
        assembly.remaining = body
        large = body >= self._connection.settings.large_message and not assembly.kind.direct_reply
        if large and channel.transaction is None:
            assembly.shown = self._connection.broker.hooks.large_message(self._connection)
        self._gather(channel, assembly, buf[pos:end])

    def _body(self, channel: PublishingChannel, buf: bytes, pos: int, end: int) -> None:
        """Handle a body frame. Raises 505 without a header before it, 501 if it exceeds the announced
        size."""
        assembly = channel.assembly
        if assembly is None or assembly.remaining < 0:
            raise UnexpectedFrame("content body without a header before it")
        length = end - pos - OVERHEAD
        if length == 0 or length > assembly.remaining:
            raise FrameError("body frame empty, or longer than the header announced", 60, 40)
        assembly.remaining -= length
        self._gather(channel, assembly, buf[pos:end])

    def _gather(self, channel: PublishingChannel, assembly: Assembly, part: bytes) -> None:
        assembly.largest = max(assembly.largest, len(part))
        if assembly.shown is not None:
            assembly.shown.piece(part)
        if not assembly.remaining:
            self._complete(channel, assembly, part)
            return
        octets = len(part) if assembly.size else len(part) + PER_MESSAGE
        gather(assembly.parts, part)
        assembly.size += octets
        if self._connection.receives(octets) > self._connection.settings.assembling_max:
            raise ResourceError("too many bytes of unfinished messages on one connection", 60, 40)

    def _complete(self, channel: PublishingChannel, assembly: Assembly, part: bytes) -> None:
        self._end(channel, assembly)
        if assembly.shown is None:
            self._add(channel, assembly, part)
            return
        self.flush()
        self._add(channel, assembly, part)
        assembly.shown.whole(self._raws[0], 0)
        self.flush()

    def _end(self, channel: Failing, assembly: Assembly) -> None:
        """The message is complete, or dropped."""
        if assembly.size:
            self._connection.receives(-assembly.size)
        channel.assembly = None

    def _add(self, channel: PublishingChannel, assembly: Assembly, last: bytes) -> None:
        if channel is not self._channel or assembly.target != self._target or assembly.kind != self._kind:
            self.flush()
            self._prefix = self._method = b""
            self._channel = channel
            self._target = assembly.target
            self._kind = assembly.kind
            self._guess()
        elif len(self._raws) >= self._most or self._connection.vhost.generation != self._generation:
            self.flush()
        self._largest = max(self._largest, assembly.largest)
        assembly.parts.append(last)
        self._raws.append(b"".join(assembly.parts))

    def forget(self, channel: Failing) -> None:
        """The channel closes: drop its incomplete message and all references to it."""
        if channel.assembly is not None:
            if channel.assembly.shown is not None:
                channel.assembly.shown.dropped()
            self._end(channel, channel.assembly)
        if self._channel is channel:
            self._channel = None
            self._raws = []
            self._prefix = self._method = b""

    def flush(self) -> None:
        """Pass the gathered run to the virtual host. A channel error closes the channel; nothing is raised.

        If a run has closed its channel, messages gathered after it are ignored, like all later input of the
        channel.
        """
        raws, channel = self._raws, self._channel
        if not raws:
            return
        self._raws = []
        if channel is None or not channel.is_open:
            return
        largest, self._largest = self._largest, 0
        connection = self._connection
        connection.note_publish()
        try:
            each = _publish(channel, self._target, raws, self._kind, largest)
            self._most = max(1, connection.settings.share // each - PER_RUN)
            self._generation = connection.vhost.generation
        except AmqpError as error:
            error.class_id, error.method_id = 60, 40
            connection.fail(channel, error)
        # The prefix stays valid, so its frame sizes count for the next run as well.
        self._largest = largest if self._prefix else 0


def _publish(
    channel: PublishingChannel, target: Target, raws: list[bytes], kind: Checked, largest: int
) -> int:
    """Publish at once if that is known to take at most one turn; otherwise in as many turns as needed.
    Returns the maximum number of queues for each message, at least 1."""
    connection = channel.connection
    access = connection.access
    if access is not None:
        access.demand(connection, "write", "exchange", target.exchange)
        access.demand_topic(connection, "write", target.exchange, target.routing_key)
    if kind.direct_reply:
        raws = [with_reply_to(raw, channel.reply_to, _WHATEVER) for raw in raws]
        largest += _LONGEST_NAME
    first = channel.next_publish_tag
    channel.next_publish_tag = first + len(raws)
    channel.output.count_published(len(raws), target.exchange)
    route = connection.vhost.known(target.exchange, target.routing_key)
    if route is not None and not (route.needs_headers or kind.copies):
        queues = len(route.queues)
        spent = connection.spent + (queues or 1) * (len(raws) + PER_RUN)
        if spent <= connection.settings.share:
            connection.spent = spent
            if not queues:
                connection.vhost.check_published(target.exchange, target.routing_key)
            _publish_run(channel, target, route, raws, kind, largest, first)
            return queues or 1
    connection.work(_publish_in_turns(channel, target, raws, kind, largest, first))
    route = connection.vhost.known(target.exchange, target.routing_key)
    return connection.vhost.reach if route is None or route.needs_headers else len(route.queues) or 1


def _publish_run(
    channel: PublishingChannel, target: Target, route: PublishRoute, raws: list[bytes], kind: Checked,
    largest: int, first: int, keys: Keys | None = None,
) -> None:  # fmt: skip
    """`keys`: of the ids, if they are read already."""
    if route.windows and keys is None:
        keys = _read_ids(channel, target, route, raws, kind, largest, first)
    if channel.transaction is not None:
        channel.transaction.publish(channel, route, raws, kind, largest, first, mandatory=target.mandatory)
        return
    channel.output.count_routed(len(raws), route, target.mandatory)
    if target.mandatory and not route.queues:
        _return(channel, target, [without_bcc(raw) for raw in raws] if kind.blind else raws)
    done = channel.connection.vhost.publish(
        route, raws, persistent=kind.persistent, channel=channel.number, largest_frame=largest,
        producer=channel.producer, first_tag=first, expiration=kind.expiration, priority=kind.priority,
        blind=kind.blind, numbering=None if channel.numbers is None else channel.numbers.numbering(first),
        by_id=True, keys=keys,
    )  # fmt: skip
    if channel.confirming:
        _answer(channel, done, first, len(raws))
    if route.refusing:
        channel.connection.await_refused()


def _read_ids(
    channel: PublishingChannel, target: Target, route: PublishRoute, raws: list[bytes], kind: Checked,
    largest: int, first: int,
) -> Keys:  # fmt: skip
    """A message with an id that a queue with a window cannot take closes the channel. Those before it are
    published. Raises PreconditionFailed."""
    keys, fault = keys_of(channel.connection.vhost.removals.format, raws)
    if fault is not None:
        if keys:
            _publish_run(channel, target, route, raws[: len(keys)], kind, largest, first, keys)
        raise fault
    return keys


def _answer(channel: PublishingChannel, done: Published, first: int, count: int) -> None:
    """Confirm `count` messages from tag `first` on, or refuse those that were not accepted."""
    need, accepted = done
    output = channel.output
    if accepted:
        output.held.confirm(first + accepted - 1, need, output.connection.vhost.history.position)
    if accepted < count:
        output.held.refuse(first + count - 1)
    output.connection.broker.holding[output] = None


def _publish_in_turns(
    channel: PublishingChannel, target: Target, raws: list[bytes], kind: Checked, largest: int, first: int
) -> Steps[None]:
    """Publish in turns. An error closes the channel or the connection."""
    vhost = channel.connection.vhost
    try:
        route = yield from vhost.find(target.exchange, target.routing_key)
        if not route.queues:
            vhost.check_published(target.exchange, target.routing_key)
        if route.needs_headers or kind.copies:
            yield from _publish_by_headers(channel, target, raws, kind, largest, first)
        else:
            yield from _publish_divided(channel, target, route, raws, kind, largest, first)
    except AmqpError as error:
        error.class_id, error.method_id = 60, 40
        channel.connection.fail(channel, error)


def _publish_by_headers(
    channel: PublishingChannel, target: Target, raws: list[bytes], kind: Checked, largest: int, first: int
) -> Steps[None]:
    """Route each message by its headers. Consecutive messages for the same queues still form one run."""
    vhost = channel.connection.vhost
    begin, before = 0, None
    for at, raw in enumerate(raws):
        headers = headers_of(raw)
        if kind.copies and (refused := _refused_copies(channel.connection, target.exchange, headers)):
            if before is not None:
                yield from _publish_divided(
                    channel, target, before, raws[begin:at], kind, largest, first + begin
                )  # fmt: skip
            raise refused
        route = yield from vhost.find_by_headers(target.exchange, target.routing_key, headers, raw)
        yield _HEADERS
        if before is not None and (route.queues != before.queues or route.delay != before.delay):
            yield from _publish_divided(
                channel, target, before, raws[begin:at], kind, largest, first + begin
            )  # fmt: skip
            begin = at
        before = route
    if before is not None:
        yield from _publish_divided(channel, target, before, raws[begin:], kind, largest, first + begin)


def _refused_copies(connection: Host, exchange: str, headers: Mapping[str, object]) -> AmqpError | None:
    """Why the user may not publish with a message's further routing keys."""
    try:
        demand_copies(connection, exchange, headers)
    except AmqpError as refused:
        return refused
    return None


def _publish_divided(
    channel: PublishingChannel, target: Target, route: PublishRoute, raws: list[bytes], kind: Checked,
    largest: int, first: int,
) -> Steps[None]:  # fmt: skip
    vhost, share = channel.connection.vhost, channel.connection.settings.share
    steps = steps_of(len(route.queues), len(raws))
    if not channel.is_open:
        return
    keys: Keys | None = None
    if route.windows and steps > share:
        keys = _read_ids(channel, target, route, raws, kind, largest, first)
    if steps <= share or channel.transaction is not None:
        _publish_run(channel, target, route, raws, kind, largest, first, keys)
        yield steps
        return

    numbers = channel.numbers

    def publish(part: PublishRoute, some: list[bytes], at: int) -> Published:
        if numbers is not None and not channel.is_open:
            return Published(Need.NONE, 0)  # the numbers are another one's now
        done = vhost.publish(
            part, some, persistent=kind.persistent, channel=channel.number, largest_frame=largest,
            producer=channel.producer, first_tag=first + at, expiration=kind.expiration,
            priority=kind.priority, blind=kind.blind,
            numbering=None if numbers is None else numbers.numbering(first + at), by_id=True,
            keys=None if keys is None else keys[at : at + len(some)],
        )  # fmt: skip
        if part.refusing:
            channel.connection.await_refused()
        return done

    def report(done: Published, at: int, count: int) -> None:
        if channel.confirming and channel.is_open:
            _answer(channel, done, first + at, count)

    channel.output.count_routed(len(raws), route, target.mandatory)
    yield from publish_in_turns(route, raws, share, publish, report)


def _return(channel: PublishingChannel, target: Target, raws: list[bytes]) -> None:
    """Send basic.return for each message: mandatory, and routed to no queue."""
    method = return_frame(channel.number, target.exchange, target.routing_key)
    for raw in raws:
        channel.connection.send(method, raw)
