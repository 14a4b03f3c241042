"""The live part of a run read from disk, for a start and for the cleaner's copies. Pure functions."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from operator import itemgetter

from broker.model.history.record_codec import RUNS, decode_records
from broker.model.history.records import Dequeue, EnqueueRun, QueueEnds, RawRun, Record
from broker.model.history.replication_id_set import Range
from broker.model.values import Reason, Scope
from broker.store.live_index import LiveRanges

_last_of = itemgetter(1)


def runs_of(payload: bytes) -> list[EnqueueRun]:
    """The runs of a batch of an older segment. They are without numbers, because the base has the marks.
    Raises CorruptRecord."""
    found = [record for record in decode_records(payload, only=RUNS) if isinstance(record, EnqueueRun)]
    for run in found:
        run.numbering = None
    return found


def lacks(record: Record) -> bool:
    """True if the record says that history lacks ids of a queue. It must be repeated after the older runs: a
    run that is partly live brings dead ids too, and any id that arrives no longer counts as lacking."""
    return isinstance(record, QueueEnds) and any(end.lacking for end in record.ends.values())


def live_records(run: EnqueueRun, live: LiveRanges) -> list[Record]:
    """The run, for its queues that hold any of it, and dequeues of the ids that they do not hold."""
    count = run.count
    if len(run.queues) == 1:  # the usual case, and a start reads millions
        ranges = live.get((run.queues[0], run.envelope.epoch))
        if not ranges:
            return []
        if ranges[0][0] <= run.firsts[0] and run.firsts[0] + count - 1 <= ranges[0][1]:
            return [run]
    parts = _parts(run, live)
    if not parts:
        return []
    kept = [(queue, first) for queue, first, ranges in parts]
    if len(kept) < len(run.queues):
        run = EnqueueRun(
            [queue for queue, _ in kept], [first for _, first in kept], run.envelope, run.raws,
            run.producer, run.producer_first, run.scope,
        )  # fmt: skip
    found: list[Record] = [run]
    for queue, first, ranges in parts:
        gone = _between(ranges, first, first + count - 1)
        if gone:
            found.append(Dequeue(queue, run.envelope.epoch, Reason.DROPPED, gone, Scope.STORE))
    return found


def live_copies(run: EnqueueRun, live: LiveRanges) -> list[EnqueueRun]:
    """Runs of only the live messages. Queues that hold the same messages share a run, as before."""
    together: dict[tuple[Range, ...], list[tuple[bytes, int]]] = {}
    for queue, first, ranges in _parts(run, live):
        offsets = tuple((low - first, high - first) for low, high in ranges)
        together.setdefault(offsets, []).append((queue, first))
    found: list[EnqueueRun] = []
    for offsets, queues in together.items():
        uuids = [queue for queue, _ in queues]
        for low, high in offsets:
            raws = run.raws if high - low + 1 == run.count else _slice(run.raws, low, high)
            firsts = [first + low for _, first in queues]
            found.append(EnqueueRun(uuids, firsts, run.envelope, raws, scope=run.scope))
    return found


def _parts(run: EnqueueRun, live: LiveRanges) -> list[tuple[bytes, int, list[Range]]]:
    """(queue, first, ranges held of the run) for the queues that hold any of it."""
    count, epoch = run.count, run.envelope.epoch
    found = []
    for queue, first in zip(run.queues, run.firsts, strict=True):
        ranges = _within(live.get((queue, epoch), []), first, first + count - 1)
        if ranges:
            found.append((queue, first, ranges))
    return found


def _within(ranges: list[Range], first: int, last: int) -> list[Range]:
    """The parts of first..last inside these ascending ranges."""
    found = []
    at = bisect_left(ranges, first, key=_last_of)
    while at < len(ranges) and ranges[at][0] <= last:
        low, high = ranges[at]
        found.append((max(low, first), min(high, last)))
        at += 1
    return found


def _between(ranges: list[Range], first: int, last: int) -> list[Range]:
    """The parts of first..last outside these ranges, which are inside it and ascending."""
    found, low = [], first
    for start, end in ranges:
        if start > low:
            found.append((low, start - 1))
        low = end + 1
    if low <= last:
        found.append((low, last))
    return found


def _slice(raws: list[bytes] | RawRun, low: int, high: int) -> list[bytes] | RawRun:
    """Messages low..high of a run, counted from 0."""
    if not isinstance(raws, RawRun):
        return raws[low : high + 1]
    ends = [0, *accumulate(raws.lengths)]
    return RawRun(raws.lengths[low : high + 1], raws.blob[ends[low] : ends[high + 1]])
