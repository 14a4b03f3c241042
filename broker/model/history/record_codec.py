"""Binary form of history records, for the store and the link.

A record is `u32 length | u8 kind | u8 scope | body`, little-endian; length counts kind, scope and body. Runs
of messages are decoded to lengths and one blob, without splitting the blob. Kind numbers never change. An
unknown kind is corruption, since both ends agree on a version before they exchange records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from broker.model.history import definition_codec as codec
from broker.model.history.epoch_ends import EpochEnd
from broker.model.history.marks import WINDOW, Marks, gaps_of, mark_of
from broker.model.history.recent_ids import KEY, VALUE
from broker.model.history.record_reader import U16, CorruptRecord, Reader, number_bytes, text_bytes
from broker.model.history.records import (
    Bind,
    ConsumerSeen,
    Dequeue,
    EnqueueRun,
    EntryDelete,
    EntryPut,
    Envelope,
    ExchangeDeclare,
    ExchangeDelete,
    HistoryCheckpoint,
    IdsNoted,
    Numbering,
    Origin,
    QueueDeclare,
    QueueDelete,
    QueueEnds,
    QueueIds,
    QueueMarks,
    RawRun,
    Record,
    Unbind,
    Unrouted,
)
from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.history.value_codec import UnsupportedValue
from broker.model.values import Reason, Scope

_HEAD = struct.Struct("<IBB")
_U8 = struct.Struct("<B")
_U32 = struct.Struct("<I")
_RUN = struct.Struct("<QQBHIQI")  # epoch, wall_ms, flags, channel, largest_frame, producer_first, count
_RANGES = struct.Struct("<QBI")  # epoch, reason, count of ranges
_TAGS = struct.Struct("<QQ")
_ENDS = struct.Struct("<BI")  # deleted, count of epochs
_END = struct.Struct("<QQBI")  # epoch, last, settled, count of ranges
_U64 = struct.Struct("<Q")
_ORIGIN = struct.Struct("<Qq")
_NUMBERS = struct.Struct("<QQ")  # epoch, first
_MARK = struct.Struct("<QBB")  # last, octets of holes, octets of what is not stored
_NOTED = struct.Struct("<QQQI")  # first place, floor, wall_ms, count
_IDS = struct.Struct("<BQQI")  # begin, next place, floor, count
_PERSISTENT, _REDELIVERED, _PRODUCER, _EXPIRATION, _PRIORITY, _BLIND, _PATH = 1, 2, 4, 8, 16, 32, 64
_ORIGINAL = 128


def _encode_run(run: EnqueueRun) -> list[bytes | memoryview]:
    envelope, raws = run.envelope, run.raws
    if isinstance(raws, RawRun):
        lengths, blobs = raws.lengths, [raws.blob]
    else:
        lengths, blobs = list(map(len, raws)), raws  # type: ignore[assignment]
    flags = (
        _PERSISTENT * envelope.persistent
        | _REDELIVERED * envelope.redelivered
        | _PRODUCER * (run.producer is not None)
        | _EXPIRATION * (envelope.expiration is not None)
        | _PRIORITY * (envelope.priority > 0)
        | _BLIND * envelope.blind
        | _PATH * bool(envelope.path)
        | _ORIGINAL * (envelope.origin is not None and bool(envelope.path))
    )
    return [
        U16.pack(len(run.queues)),
        *run.queues,
        number_bytes("Q", run.firsts),
        _RUN.pack(
            envelope.epoch,
            envelope.wall_ms,
            flags,
            envelope.channel,
            envelope.largest_frame,
            run.producer_first,
            len(lengths),
        ),
        text_bytes(envelope.exchange),
        text_bytes(envelope.routing_key),
        text_bytes(run.producer or ""),
        b"" if envelope.expiration is None else _U64.pack(envelope.expiration),
        bytes([envelope.priority]) if envelope.priority else b"",
        _path_bytes(envelope) if envelope.path else b"",
        number_bytes("I", lengths),
        *blobs,
    ]


def _path_bytes(envelope: Envelope) -> bytes:
    path, origin = envelope.path, envelope.origin
    at = _ORIGIN.pack(*origin) if origin is not None else b""
    return b"".join([bytes([len(path)]), *map(text_bytes, path), at])


def _decode_run(body: Reader, scope: Scope) -> EnqueueRun:
    """Decoded by hand, because a start reads millions. Bounds are checked where a slice could be short
    unnoticed."""
    data, end = body.data, len(body.data)
    (count,) = U16.unpack_from(data)
    at = 2 + 16 * count
    queues = [bytes(data[start : start + 16]) for start in range(2, at, 16)]
    firsts = list(struct.unpack_from(f"<{count}Q", data, at))
    at += 8 * count
    epoch, wall_ms, flags, channel, largest_frame, producer_first, messages = _RUN.unpack_from(data, at)
    at += _RUN.size
    texts = []
    for _ in range(3):
        (length,) = U16.unpack_from(data, at)
        at += 2 + length
        texts.append(str(data[at - length : at], "utf-8", "surrogateescape"))
    exchange, routing_key, producer = texts
    expiration, priority = None, 0
    if flags & _EXPIRATION:
        (expiration,) = _U64.unpack_from(data, at)
        at += 8
    if flags & _PRIORITY:
        (priority,) = _U8.unpack_from(data, at)
        at += 1
    path: tuple[str, ...] = ()
    origin: Origin | None = None
    if flags & _PATH:
        body.at = at
        path = tuple([body.text() for _ in range(body.take(1)[0])])
        if flags & _ORIGINAL:
            epoch_there, offset = body.unpack(_ORIGIN)
            origin = epoch_there, offset
        at = body.at
    if messages == 1:
        lengths = [_U32.unpack_from(data, at)[0]]
        at += 4
    else:
        body.at = at
        lengths = body.numbers("I", messages)
        at = body.at
    body.at = at + sum(lengths)
    if body.at > end:
        raise CorruptRecord("record is cut short")
    blob = bytes(data[at : body.at])  # a copy, because a view would keep the whole chunk in memory
    envelope = Envelope(
        epoch,
        exchange,
        routing_key,
        persistent=bool(flags & _PERSISTENT),
        wall_ms=wall_ms,
        channel=channel,
        largest_frame=largest_frame,
        redelivered=bool(flags & _REDELIVERED),
        expiration=expiration,
        priority=priority,
        blind=bool(flags & _BLIND),
        path=path,
        origin=origin,
    )
    named = producer if flags & _PRODUCER else None
    return EnqueueRun(queues, firsts, envelope, RawRun(lengths, blob), named, producer_first, scope)


def _decode_numbered(body: Reader, scope: Scope) -> EnqueueRun:
    producer = body.text()
    epoch, first = body.unpack(_NUMBERS)
    rest = Reader(body.data[body.at :])
    run = _decode_run(rest, scope)
    run.numbering = Numbering(producer, epoch, first)
    body.at += rest.at
    return run


def _encode_unrouted(record: Unrouted) -> list[bytes]:
    return [text_bytes(record.producer), _TAGS.pack(record.first, record.last)]


def _decode_unrouted(body: Reader, scope: Scope) -> Unrouted:
    producer = body.text()
    first, last = body.unpack(_TAGS)
    return Unrouted(producer, first, last, scope)


def _encode_dequeue(record: Dequeue) -> list[bytes]:
    flat = [end for pair in record.ranges for end in pair]
    return [
        record.queue,
        _RANGES.pack(record.epoch, record.reason, len(record.ranges)),
        number_bytes("Q", flat),
    ]


def _decode_dequeue(body: Reader, scope: Scope) -> Dequeue:
    queue = bytes(body.take(16))
    epoch, reason, count = body.unpack(_RANGES)
    flat = body.numbers("Q", count * 2)
    return Dequeue(queue, epoch, Reason(reason), list(zip(flat[::2], flat[1::2], strict=True)), scope)


def _encode_queue_ends(record: QueueEnds) -> list[bytes]:
    parts = [record.queue, _ENDS.pack(record.deleted, len(record.ends))]
    for epoch, end in record.ends.items():
        parts.append(_END.pack(epoch, end.last, end.settled, len(end.lacking)))
        parts.append(number_bytes("Q", [bound for pair in end.lacking for bound in pair]))
    return parts


def _decode_queue_ends(body: Reader, scope: Scope) -> QueueEnds:
    queue = bytes(body.take(16))
    deleted, count = body.unpack(_ENDS)
    ends = {}
    for _ in range(count):
        epoch, last, settled, ranges = body.unpack(_END)
        flat = body.numbers("Q", ranges * 2)
        lacking = ReplicationIdSet.from_ranges(list(zip(flat[::2], flat[1::2], strict=True)))
        ends[epoch] = EpochEnd(last, tuple(lacking.ranges()), bool(settled))
    return QueueEnds(queue, ends, bool(deleted), scope)


def _encode_queue_marks(record: QueueMarks) -> list[bytes]:
    parts = [record.queue, _U32.pack(len(record.marks))]
    for producer, mark in record.marks.items():
        last, holes, unstored = gaps_of(mark)
        bits = [_octets_of(holes), _octets_of(unstored)]
        parts += [text_bytes(producer), _MARK.pack(last, *map(len, bits)), *bits]
    return parts


def _octets_of(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _decode_queue_marks(body: Reader, scope: Scope) -> QueueMarks:
    queue = bytes(body.take(16))
    (count,) = body.unpack(_U32)
    marks: Marks = {}
    for _ in range(count):
        producer = body.text()
        last, *sizes = body.unpack(_MARK)
        if max(sizes) > WINDOW // 8:
            raise CorruptRecord("a mark with more numbers than its window")
        holes, unstored = [int.from_bytes(bytes(body.take(size)), "little") for size in sizes]
        marks[producer] = mark_of(last, holes, unstored)
    return QueueMarks(queue, marks, scope)


def _encode_ids_noted(record: IdsNoted) -> list[bytes]:
    head = _NOTED.pack(record.first, record.floor, record.wall_ms, len(record.keys))
    return [record.queue, head, *record.keys]


def _decode_ids_noted(body: Reader, scope: Scope) -> IdsNoted:
    queue = bytes(body.take(16))
    first, floor, wall_ms, count = body.unpack(_NOTED)
    return IdsNoted(queue, first, floor, wall_ms, _pieces(body, count, KEY), scope)


def _encode_queue_ids(record: QueueIds) -> list[bytes]:
    head = _IDS.pack(record.begin, record.following, record.floor, len(record.ids))
    keys = [key for key, _ in record.ids]
    return [record.queue, head, *keys, *[value.to_bytes(VALUE, "little") for _, value in record.ids]]


def _decode_queue_ids(body: Reader, scope: Scope) -> QueueIds:
    queue = bytes(body.take(16))
    begin, following, floor, count = body.unpack(_IDS)
    keys = _pieces(body, count, KEY)
    values = [int.from_bytes(octets, "little") for octets in _pieces(body, count, VALUE)]
    return QueueIds(queue, bool(begin), following, floor, list(zip(keys, values, strict=True)), scope)


def _pieces(body: Reader, count: int, size: int) -> list[bytes]:
    octets = bytes(body.take(count * size))
    return [octets[at : at + size] for at in range(0, len(octets), size)]


def _encode_history_checkpoint(record: HistoryCheckpoint) -> list[bytes]:
    return [_U64.pack(record.epoch)]


def _decode_history_checkpoint(body: Reader, scope: Scope) -> HistoryCheckpoint:
    (epoch,) = body.unpack(_U64)
    return HistoryCheckpoint(epoch, scope)


_Encoder = Callable[..., list[bytes]]
_Decoder = Callable[[Reader, Scope], Record]
_KINDS: Final[dict[int, tuple[type, _Encoder, _Decoder]]] = {
    1: (EnqueueRun, _encode_run, _decode_run),  # type: ignore[dict-item]
    2: (Unrouted, _encode_unrouted, _decode_unrouted),
    3: (Dequeue, _encode_dequeue, _decode_dequeue),
    4: (QueueDeclare, codec.encode_queue_declare, codec.decode_queue_declare),
    5: (QueueDelete, codec.encode_queue_delete, codec.decode_queue_delete),
    6: (ExchangeDeclare, codec.encode_exchange_declare, codec.decode_exchange_declare),
    7: (ExchangeDelete, codec.encode_exchange_delete, codec.decode_exchange_delete),
    8: (Bind, codec.encode_bind, codec.decode_bind),
    9: (Unbind, codec.encode_bind, codec.decode_unbind),
    10: (ConsumerSeen, codec.encode_consumer_seen, codec.decode_consumer_seen),
    11: (QueueEnds, _encode_queue_ends, _decode_queue_ends),
    12: (HistoryCheckpoint, _encode_history_checkpoint, _decode_history_checkpoint),
    13: (EntryPut, codec.encode_entry_put, codec.decode_entry_put),
    14: (EntryDelete, codec.encode_entry_delete, codec.decode_entry_delete),
    15: (EnqueueRun, _encode_run, _decode_numbered),  # type: ignore[dict-item]
    16: (QueueMarks, _encode_queue_marks, _decode_queue_marks),
    17: (IdsNoted, _encode_ids_noted, _decode_ids_noted),
    18: (QueueIds, _encode_queue_ids, _decode_queue_ids),
}
_NUMBERED: Final = 15
_KIND_OF: Final = {type_: (kind, encode) for kind, (type_, encode, _) in _KINDS.items() if kind != _NUMBERED}
_SCOPES: Final = tuple(Scope(bits) for bits in range(4))
RUNS: Final = (1, 15)
"""The kinds of runs of messages; the second has numbers."""


_text_of = lru_cache(1024)(text_bytes)


def encode_record(record: Record) -> bytes:
    """One framed record. Raises UnsupportedValue for arguments that no field table can hold."""
    kind, encode = _KIND_OF[type(record)]
    parts = encode(record)
    size = sum(map(len, parts)) + 2
    if isinstance(record, EnqueueRun) and record.numbering is not None:
        producer, epoch, first = record.numbering
        head = _text_of(producer) + _NUMBERS.pack(epoch, first)
        return b"".join([_HEAD.pack(size + len(head), _NUMBERED, record.scope), head, *parts])
    return b"".join([_HEAD.pack(size, kind, record.scope), *parts])


def targets_at(run: EnqueueRun) -> int:
    """Where the encoded record has its queues, and after them their firsts."""
    at = _HEAD.size + U16.size
    return at if run.numbering is None else at + len(_text_of(run.numbering[0])) + _NUMBERS.size


def split_records(buf: bytes | memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Each record of `buf` as (kind, scope, framed record), not decoded. For filters.

    Raises CorruptRecord if the last record is cut short.
    """
    view, at = memoryview(buf), 0
    while at < len(view):
        if len(view) - at < _HEAD.size:
            raise CorruptRecord("record head is cut short")
        size, kind, scope = _HEAD.unpack_from(view, at)
        end = at + 4 + size
        if size < 2 or end > len(view):
            raise CorruptRecord("record is cut short")
        yield kind, scope, view[at:end]
        at = end


def decode_records(buf: bytes | memoryview, *, only: tuple[int, ...] | None = None) -> list[Record]:
    """All records of `buf`, or those of some kinds. `buf` must end with a record. Raises CorruptRecord."""
    found: list[Record] = []
    for kind, scope, framed in split_records(buf):
        if only is not None and kind not in only:
            continue
        if kind not in _KINDS or scope >= len(_SCOPES):
            raise CorruptRecord(f"unknown record kind {kind} or scope {scope}")
        body = Reader(framed[_HEAD.size :])
        try:
            found.append(_KINDS[kind][2](body, _SCOPES[scope]))
        except CorruptRecord:
            raise
        except (ValueError, struct.error, OverflowError, ArithmeticError) as error:
            raise CorruptRecord(f"record of kind {kind}: {error}") from error
        if body.at != len(body.data):
            raise CorruptRecord(f"record of kind {kind} has {len(body.data) - body.at} bytes too many")
    return found


__all__ = [
    "RUNS",
    "CorruptRecord",
    "UnsupportedValue",
    "decode_records",
    "encode_record",
    "split_records",
]
