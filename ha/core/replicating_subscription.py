"""ReplicatingSubscription: brings one queue of one backup from what it held to what the primary holds.

Owner: RemoteBackup, one per queue while the backup catches up; all of them write to that backup's one stream.
Makes calls on PrimaryModel, never on RemoteBackup. Life: `begin` cuts the queue, `read` gives what is
missing in bounded pieces over as many ticks as it takes, while live batches flow past.

Why that is sound: messages from `live_from` on are in the stream anyway; a dequeue that comes down the
stream before its message's piece leaves a tombstone at the backup; one before the cut is not in the cut.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from broker.model.records import Entry
from broker.model.replication_id_set import ReplicationIdSet
from ha.core.link import Frame, frame
from ha.core.ports import IdsByEpoch, PrimaryModel
from ha.core.queue_snapshot import encode_ids, minus


class ReplicatingSubscription:
    """One queue on its way to one backup."""

    def __init__(self, queue: bytes, has: IdsByEpoch, epoch: int, live_from: int) -> None:
        self.queue = queue
        self._has = has
        self._epoch = epoch
        self._live_from = live_from
        self._slices: list[list[Entry]] = []
        self._at = 0
        self.begun = False

    def begin(self, model: PrimaryModel) -> list[bytes]:
        """Cut the queue: the frame that tells the backup what to keep. Empty if the queue is gone."""
        self.begun = True
        cut = model.cut(self.queue)
        if cut is None:
            return []
        live = {self._epoch: ReplicationIdSet([(self._live_from, 2**63)])}
        self._slices = list(_pick(cut.entries, minus(minus(cut.ids, self._has), live)))
        return frame(Frame.QUEUE_BEGIN, [self.queue, encode_ids(cut.ids)])

    def read(self, model: PrimaryModel, limit: int) -> tuple[list[bytes], bool]:
        """Frames of about `limit` bytes, and whether the queue is now whole, or gone."""
        out: list[bytes] = []
        if self._slices and not model.has(self.queue):
            self._slices = []
        while self._slices and limit > 0:
            source = self._slices[0]
            end = self._at
            while end < len(source) and limit > 0:
                limit -= len(source[end][2]) + 16
                end += 1
            records = model.encode_runs(self.queue, source[self._at : end])
            out += frame(Frame.QUEUE_RUNS, [self.queue, *records])
            self._at = end
            if end == len(source):
                self._slices.pop(0)
                self._at = 0
        if self._slices:
            return out, False
        return out + frame(Frame.QUEUE_END, [self.queue]), True


def _pick(entries: list[Entry], wanted: IdsByEpoch) -> list[list[Entry]]:
    """The stretches of sorted `entries` whose ids are wanted. O(ranges x log entries)."""
    slices: list[list[Entry]] = []
    for epoch in sorted(wanted):
        for first, last in wanted[epoch].ranges():
            low = bisect_left(entries, (epoch, first), key=_id)
            high = bisect_right(entries, (epoch, last), key=_id)
            if low < high:
                slices.append(entries[low:high])
    return slices


def _id(entry: Entry) -> tuple[int, int]:
    return entry[1].epoch, entry[0]
