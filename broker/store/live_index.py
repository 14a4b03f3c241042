"""The live messages of each segment: which segments can be freed, and what a start must read.

Owner: SegmentStore, on the broker's thread. It sees every record that the store gets. A range of ids costs as
much as one id. A message that was stored twice is live only in the newer segment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from sortedcontainers import SortedDict

from broker.model.history.records import Dequeue, EnqueueRun, QueueDelete, Record
from broker.model.history.replication_id_set import Range
from broker.model.values import Scope

LiveRanges = dict[tuple[bytes, int], list[Range]]
"""For one segment: the live sequences by queue and epoch, ascending."""

_Runs = SortedDict
"""first -> (last, segment), disjoint."""


@dataclass(slots=True)
class SegmentUse:
    """The use of one segment. A message counts once for each of its queues."""

    stored: int = 0
    """Messages ever written to it."""
    live: int = 0
    """Messages still held."""
    size: int = 0
    """Length of the file in bytes."""

    @property
    def live_bytes(self) -> int:
        """Approximate bytes of messages still held."""
        return self.size * self.live // self.stored if self.stored else 0


class LiveIndex:
    """Live ids by queue and epoch, each with its segment."""

    def __init__(self) -> None:
        self.segments: dict[int, SegmentUse] = {}
        self.emptied: set[int] = set()
        """Segments whose last message left since the owner cleared this set."""
        self._live: dict[bytes, dict[int, SortedDict[int, tuple[int, int]]]] = {}

    # -- records

    def records(self, segment: int, records: Iterable[Record]) -> None:
        """These records go into `segment`; only those in the store's scope count."""
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
        """Messages first..last are no longer held. Unknown ids are ignored."""
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
        """The queue was deleted."""
        for runs in self._live.pop(queue, {}).values():
            for first, (last, segment) in runs.items():
                self._gone(segment, last - first + 1)

    def forget_all_but(self, queues: Collection[bytes]) -> None:
        """Forget all other queues, whether or not their deletion was recorded."""
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

    # -- whole segments

    def live_segments(self) -> set[int]:
        """Segments with at least one live message."""
        return {number for number, use in self.segments.items() if use.live}

    def moved(self, segments: Collection[int], to: int, size: int) -> None:
        """The live messages of `segments` are now in the copy `to`, which has `size` bytes."""
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
        """All live messages: (queue, epoch, first, last, segment)."""
        for queue, epochs in self._live.items():
            for epoch, runs in epochs.items():
                for first, (last, segment) in runs.items():
                    yield queue, epoch, first, last, segment

    def by_segment(self, wanted: Collection[int]) -> dict[int, LiveRanges]:
        """The live ranges of each of these segments."""
        found: dict[int, LiveRanges] = {segment: {} for segment in wanted}
        for queue, epoch, first, last, segment in self.ranges():
            if segment in found:
                found[segment].setdefault((queue, epoch), []).append((first, last))
        return found
