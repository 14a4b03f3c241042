"""Deliveries of one channel: frames out, unacknowledged messages, credit. The hot path of consuming.

Owner: `Channel`. The queue calls `deliver` (through the channel) with a batch. A batch becomes one list of
byte strings and one `Run` of tags, so a message needs no object of its own. Messages that exceed the
connection's budget of unsent bytes are staged by reference, without tags, until they fit. So a multiple ack
only covers messages that were really sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.amqp091.codec.frames import METHOD, tag_bytes
from broker.amqp091.codec.properties import with_header, without_bcc
from broker.amqp091.codec.served_frames import served_frames
from broker.model.history.records import Entry, Envelope
from broker.model.queue.arguments import BROWSE, CONFIRMED_ONLY, REPLICATION_ID, priority_of
from broker.model.queue.consumer import Consumer, DeliverySink
from broker.model.queue.until_confirmed import UntilConfirmed

if TYPE_CHECKING:
    from broker.model.history.completion import Completion
    from broker.model.queue.queue import Queue
    from broker.model.queue.returns import Returns

DELIVERY_COUNT = "x-delivery-count"
"""Header with the number of times that a message has come back, on queues with a delivery limit, as in
RabbitMQ."""

_ROOM = 192
"""Upper bound of what these headers add to a content header frame: names, types, lengths, 32 + 1 + 20 + 1 +
20 octets, and 8."""


class ServedConsumer(Consumer):
    """A consumer with its channel's data: qos, counts, and the constant start of its deliver frames."""

    __slots__ = (
        "_prefixes", "_start", "arguments", "in_flight", "limit", "queue", "redelivered", "started",
        "unconfirmed", "wants_id",
    )  # fmt: skip

    def __init__(
        self, queue: Queue, tag: str, sink: DeliverySink, channel: int, *, limit: int, no_ack: bool,
        exclusive: bool, arguments: Mapping[str, object], completion: Completion,
    ) -> None:  # fmt: skip
        priority = priority_of(arguments)
        browses = arguments.get(BROWSE) is True
        super().__init__(
            tag, sink, no_ack=no_ack, exclusive=exclusive, priority=priority, browses=browses
        )  # fmt: skip
        self.queue = queue
        self.arguments = arguments
        self.limit = limit
        """Maximum messages in flight; 0 for no limit."""
        self.in_flight = 0
        self.redelivered = 0
        """Messages of the last `write_deliveries` that had been delivered before."""
        self.started = False
        """Consume-Ok was sent, so deliveries may follow."""
        self.wants_id = arguments.get(REPLICATION_ID) is True
        only = arguments.get(CONFIRMED_ONLY) is True
        self.unconfirmed = UntilConfirmed(queue, completion) if only else None
        """What it has not been sent, because that could not be confirmed yet; None: it gets all at once."""
        name = tag.encode()
        self._start = (
            b"%c%b" % (METHOD, channel.to_bytes(2, "big")),
            b"\0\x3c\0\x3c%c%b" % (len(name), name),
        )
        self._prefixes: dict[int, bytes] = {}

    def prefix(self, tail: bytes) -> bytes:
        """The deliver frame up to its tag, for an envelope with this `deliver_tail` (the frame size depends
        on its length)."""
        length = len(tail)
        known = self._prefixes.get(length)
        if known is None:
            head, ids = self._start
            known = head + (len(ids) + 8 + length - 1).to_bytes(4, "big") + ids
            self._prefixes[length] = known
        return known


class Staged:
    """Batches taken from queues for which the connection has no room yet."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: deque[tuple[ServedConsumer, list[Entry]]] = deque()

    def __bool__(self) -> bool:
        return bool(self.batches)

    def take_of(self, consumer: Consumer) -> list[Entry]:
        """Remove and return what is staged for `consumer`, in order."""
        mine = [entry for c, entries in self.batches if c is consumer for entry in entries]
        self.batches = deque(batch for batch in self.batches if batch[0] is not consumer)
        return mine


def fit(entries: list[Entry], budget: int) -> int:
    """How many of `entries` fit into `budget` bytes of content; at least one."""
    if sum([len(entry[2]) for entry in entries]) <= budget:
        return len(entries)
    for count, entry in enumerate(entries):
        budget -= len(entry[2])
        if budget < 0:
            return count or 1
    return len(entries)


def write_deliveries(
    out: list[bytes], consumer: ServedConsumer, tag: int, entries: list[Entry], channel: int, frame_max: int
) -> int:
    """Append deliver and content frames with tags from `tag` on. Returns the octets appended."""
    written = 0
    consumer.redelivered = 0
    returns = consumer.queue.returns
    start, total = 0, len(entries)
    while start < total:
        envelope = entries[start][1]
        end = start + 1
        while end < total and entries[end][1] is envelope:
            end += 1
        if envelope.redelivered:
            consumer.redelivered += end - start
        raws = [entry[2] for entry in (entries if end - start == total else entries[start:end])]
        if envelope.blind:
            raws = [without_bcc(raw) for raw in raws]
        if consumer.wants_id:
            raws = _with_ids(raws, entries[start:end], consumer.queue.uuid.hex())
        if returns:
            raws = with_counts(raws, entries[start:end], returns)
        room = frame_max - _ROOM if consumer.wants_id or returns else frame_max
        if envelope.channel != channel or envelope.largest_frame > room:
            raws = [served_frames(raw, channel, frame_max) for raw in raws]
        written += _write_run(out, consumer, tag + start, envelope, raws)
        start = end
    return written


def _write_run(
    out: list[bytes], consumer: ServedConsumer, tag: int, envelope: Envelope, raws: list[bytes]
) -> int:
    tail = envelope.deliver_tail
    prefix = consumer.prefix(tail)
    count = len(raws)
    if count == 1:
        out += (prefix, tag_bytes(tag), tail, raws[0])
        return len(prefix) + 8 + len(tail) + len(raws[0])
    parts = [prefix, b"", tail, b""] * count
    parts[1::4] = map(tag_bytes, range(tag, tag + count))
    parts[3::4] = raws
    out += parts
    return count * (len(prefix) + 8 + len(tail)) + sum(map(len, raws))


def with_counts(raws: list[bytes], entries: list[Entry], returns: Returns) -> list[bytes]:
    """Content frames with the delivery count of each message that has come back."""
    return [
        with_header(raw, DELIVERY_COUNT, count) if (count := returns.count(entry)) else raw
        for raw, entry in zip(raws, entries, strict=True)
    ]


def _with_ids(raws: list[bytes], entries: list[Entry], uuid: str) -> list[bytes]:
    return [
        with_header(raw, REPLICATION_ID, f"{uuid}:{envelope.epoch}:{sequence}")
        for raw, (sequence, envelope, _) in zip(raws, entries, strict=True)
    ]
