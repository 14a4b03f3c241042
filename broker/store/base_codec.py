"""Binary form of the base of a log segment: what a start needs of all earlier segments.

    u32 count of segments | each: u64 number, u64 stored, u64 size
    u32 count of ranges   | each: 16s queue, u64 epoch, u64 first, u64 last, u64 segment
    definitions and ends, as history records

Little endian, as the whole store. Pure functions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from broker.model.history.record_codec import CorruptRecord, decode_records
from broker.model.history.records import Record
from broker.store.live_index import LiveIndex, SegmentUse

_COUNT = struct.Struct("<I")
_SEGMENT = struct.Struct("<QQQ")
_RANGE = struct.Struct("<16sQQQQ")


def encode_base(index: LiveIndex, records: Iterable[bytes]) -> bytes:
    """`records`: encoded records that rebuild everything except the messages."""
    live = index.live_segments()
    segments = [
        _SEGMENT.pack(number, use.stored, use.size)
        for number, use in sorted(index.segments.items())
        if number in live
    ]
    ranges = [_RANGE.pack(*row) for row in index.ranges()]
    return b"".join([_COUNT.pack(len(segments)), *segments, _COUNT.pack(len(ranges)), *ranges, *records])


def decode_base(raw: bytes) -> tuple[LiveIndex, Sequence[Record]]:
    """Raises CorruptRecord if the bytes are not a base."""
    index = LiveIndex()
    ever: dict[int, int] = {}
    try:
        (count,), at = _COUNT.unpack_from(raw), _COUNT.size
        for _ in range(count):
            number, ever[number], size = _SEGMENT.unpack_from(raw, at)
            index.segments[number] = SegmentUse(size=size)
            at += _SEGMENT.size
        (rows,) = _COUNT.unpack_from(raw, at)
        at += _COUNT.size
        end = at + rows * _RANGE.size
        if end > len(raw):
            raise CorruptRecord("a base that is cut short")
        for queue, epoch, first, last, segment in _RANGE.iter_unpack(raw[at:end]):
            index.add(segment, queue, epoch, first, last)
    except (struct.error, KeyError) as error:
        raise CorruptRecord(f"a base that cannot be read: {error!r}") from None
    for number, stored in ever.items():
        index.segments[number].stored = stored
    return index, decode_records(memoryview(raw)[end:])
