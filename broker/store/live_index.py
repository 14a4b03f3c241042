"""Which messages of which segment are still held: what space may be given back, and what a start reads.

Owner: SegmentStore, on the broker's thread. Told of every record that the store is given; ranges of ids
cost as much as one. A message that was stored twice is live in the newer segment only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from sortedcontainers import SortedDict

from broker.model.history.records import Dequeue, EnqueueRun, QueueDelete, Record
from broker.model.history.replication_id_set import Range
from broker.model.values import Scope

LiveRanges = dict[tuple[bytes, int], list[Range]]
"""Of one segment: by queue and epoch, the sequences that are live in it, ascending."""

_Runs = SortedDict
"""first -> (last, segment), disjoint."""


@dataclass(slots=True)
class SegmentUse:
    """What is known of one segment. A message counts once for each of its queues."""

    stored: int = 0
    """Messages that were ever put into it."""
    live: int = 0
    """Those that are still held."""
    size: int = 0
    """Length of the file in bytes."""

    @property
    def live_bytes(self) -> int:
        """About how many of its bytes are of messages still held."""
        return self.size * self.live // self.stored if self.stored else 0


class LiveIndex:
    """Live ids by queue and epoch, each with its segment."""

    def __init__(self) -> None:
        self.segments: dict[int, SegmentUse] = {}
        self.emptied: set[int] = set()
        """Segments of which the last message has gone since its owner has cleared this."""
        self._live: dict[bytes, dict[int, SortedDict[int, tuple[int, int]]]] = {}

    # -- told by the broker

    def records(self, segment: int, records: Iterable[Record]) -> None:
        """These go into `segment`, those of them that the store sees."""
        for record in records:
            if not record.scope & Scope.STORE:
                continue
            if isinstance(record, EnqueueRun):
                count, epoch = record.count, record.envelope.epoch
                for queue, first in zip(record.queues, record.firsts, strict=True):
                    self.add(segment, queue, epoch, first, first + count - 1)
            elif isinstance(record, Dequeue):
                for first, last in record.ranges:
                    self.discard(record.queue, record.epoch, first, last)
            elif isinstance(record, QueueDelete):
                self.forget(record.uuid)

    def add(self, segment: int, queue: bytes, epoch: int, first: int, last: int) -> None:
        """Messages first..last of this queue and epoch are in `segment`."""
        use = self.segments[segment]
        use.stored += last - first + 1
        use.live += last - first + 1
        epochs = self._live.get(queue)
        if epochs is None:
            epochs = self._live[queue] = {}
        runs = epochs.get(epoch)
        if runs is None:
            runs = epochs[epoch] = _Runs()
        if runs:
            tail, (end, of) = runs.peekitem(-1)
            if first == end + 1 and of == segment:  # the usual growth
                runs[tail] = (last, segment)
                return
            if first <= end:
                self._cut(runs, first, last)
        runs[first] = (last, segment)

    def discard(self, queue: bytes, epoch: int, first: int, last: int) -> None:
        """Messages first..last are held no more; those not known do not matter."""
        epochs = self._live.get(queue)
        runs = epochs.get(epoch) if epochs is not None else None
        if epochs is None or runs is None:
            return
        self._cut(runs, first, last)
        if not runs:
            del epochs[epoch]
            if not epochs:
                del self._live[queue]

    def forget(self, queue: bytes) -> None:
        """The queue is no more."""
        for runs in self._live.pop(queue, {}).values():
            for first, (last, segment) in runs.items():
                self._gone(segment, last - first + 1)

    def forget_all_but(self, queues: Collection[bytes]) -> None:
        """Other queues are no more, whether their end was told or not."""
        for queue in [queue for queue in self._live if queue not in queues]:
            self.forget(queue)

    def _cut(self, runs: SortedDict[int, tuple[int, int]], first: int, last: int) -> None:
        at = runs.bisect_left(first) - 1
        if at >= 0:
            before, (end, segment) = runs.peekitem(at)
            if end >= first:
                runs[before] = (first - 1, segment)
                self._gone(segment, min(end, last) - first + 1)
                if end > last:
                    runs[last + 1] = (end, segment)
                    return
        for key in list(runs.irange(first, last)):
            end, segment = runs.pop(key)
            self._gone(segment, min(end, last) - key + 1)
            if end > last:
                runs[last + 1] = (end, segment)

    def _gone(self, segment: int, count: int) -> None:
        use = self.segments[segment]
        use.live -= count
        if not use.live:
            self.emptied.add(segment)

    # -- of whole segments

    def live_segments(self) -> set[int]:
        """Those of which at least one message is held."""
        return {number for number, use in self.segments.items() if use.live}

    def moved(self, segments: Collection[int], to: int, size: int) -> None:
        """What is live of these is in the copy `to` now, which has `size` bytes."""
        use = self.segments[to] = SegmentUse(size=size)
        for epochs in self._live.values():
            for runs in epochs.values():
                for first, (last, segment) in runs.items():
                    if segment in segments:
                        runs[first] = (last, to)
                        use.stored += last - first + 1
        use.live = use.stored
        for segment in segments:
            self.segments[segment].live = 0

    def ranges(self) -> Iterator[tuple[bytes, int, int, int, int]]:
        """All that is live: (queue, epoch, first, last, segment)."""
        for queue, epochs in self._live.items():
            for epoch, runs in epochs.items():
                for first, (last, segment) in runs.items():
                    yield queue, epoch, first, last, segment

    def by_segment(self, wanted: Collection[int]) -> dict[int, LiveRanges]:
        """What is live in each of these."""
        found: dict[int, LiveRanges] = {segment: {} for segment in wanted}
        for queue, epoch, first, last, segment in self.ranges():
            if segment in found:
                found[segment].setdefault((queue, epoch), []).append((first, last))
        return found
