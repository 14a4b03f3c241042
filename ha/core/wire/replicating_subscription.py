"""ReplicatingSubscription: brings one queue of one backup from what it held to what the primary holds.

Owner: RemoteBackup, one per queue while the backup catches up; all of them write to that backup's one stream.
Makes calls on PrimaryModel, never on RemoteBackup. Life: `begin`, then `read` gives the queue in bounded
pieces, oldest first, over as many ticks as it takes, while live batches flow past.

Why that is sound: each piece is read right after a flush that left nothing gathered, and takes its place in
the stream at once. So it says what the primary holds of one stretch of ids just there, in that history: what
was dequeued before is not in it, what is dequeued later comes as history after it. Nothing is ever added to a
stretch before `live_from`: a message that is requeued had not left. From there on all is history.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from operator import itemgetter

from broker.model.history.records import Entry, MessageId, Piece, id_of
from ha.core.ports import IdsByEpoch, PrimaryModel
from ha.core.wire.link import Frame, begin_frame, frame
from ha.core.wire.queue_snapshot import encode_piece, ids_of, minus

BEFORE_ALL: MessageId = (0, -1)
LOOK_MOST = 16_384
"""Messages looked at in one go, at most."""
MEAN_FIRST = 256
"""Octets sent for a message that is looked at: a guess, until some were."""
_raw_of = itemgetter(2)


class ReplicatingSubscription:
    """One queue on its way to one backup."""

    def __init__(self, queue: bytes, has: IdsByEpoch, epoch: int, live_from: int | None) -> None:
        """`live_from`: from that sequence on the backup gets history; None: from `begin` on."""
        self.queue = queue
        self._has = has
        self._live_from = live_from
        self._last: MessageId = (epoch, -1)
        self._at = BEFORE_ALL
        self._mean = MEAN_FIRST
        self.begun = False

    def begin(self, model: PrimaryModel) -> list[bytes]:
        """The frame before all pieces."""
        self.begun = True
        live_from = self._live_from or model.next_sequence(self.queue)
        self._last = (self._last[0], live_from - 1)
        return begin_frame(self.queue, live_from)

    def read(self, model: PrimaryModel, limit: int) -> tuple[list[bytes], bool]:
        """Frames of about `limit` bytes, and whether the queue is now whole, or gone."""
        out: list[bytes] = []
        looks = LOOK_MOST
        while limit > 0 and looks > 0:
            look = min(LOOK_MOST, limit // self._mean * 9 // 8 + 16)
            looks -= look
            piece = model.piece(self.queue, self._at, look)
            if piece is None:  # deleted: the stream has told
                return out + frame(Frame.QUEUE_END, [self.queue]), True
            part, whole = self._send(model, piece, limit)
            limit -= sum(map(len, part))
            out += part
            if whole:
                return out + frame(Frame.QUEUE_END, [self.queue]), True
        return out, False

    def _send(self, model: PrimaryModel, piece: Piece, limit: int) -> tuple[list[bytes], bool]:
        """A piece as a frame, as much of it as `limit` allows, or none if it is empty; is it the last?"""
        entries, upto = piece
        if upto is None or upto >= self._last:
            upto = self._last
            del entries[bisect_right(entries, upto, key=id_of) :]
        upto, ids, missing = cut(entries, upto, self._has, limit)
        self._at = upto
        if not entries:
            return [], upto == self._last
        records = model.encode_runs(self.queue, missing)
        part = frame(Frame.QUEUE_RUNS, [self.queue, encode_piece(upto, ids), *records])
        self._mean = sum(map(len, part)) // len(entries) + 1
        return part, upto == self._last


def cut(
    entries: list[Entry], upto: MessageId, has: IdsByEpoch, limit: int
) -> tuple[MessageId, IdsByEpoch, list[Entry]]:
    """Shorten a piece of sorted `entries` up to `upto` to what sends about `limit` bytes: how far it goes
    then, its ids, and those of its messages that are not in `has`."""
    ids = ids_of(entries)
    missing = pick(entries, minus(ids, has))
    count = fitting(missing, limit)
    if count < len(missing):
        del missing[count:]
        upto = id_of(missing[-1])
        del entries[bisect_right(entries, upto, key=id_of) :]
        ids = ids_of(entries)
    return upto, ids, missing


def fitting(entries: list[Entry], limit: int) -> int:
    """How many of them it takes to come to `limit` bytes, at least; all, if they do not."""
    sizes = list(accumulate(map(len, map(_raw_of, entries))))
    return min(bisect_left(sizes, limit) + 1, len(entries))


def pick(entries: list[Entry], wanted: IdsByEpoch) -> list[Entry]:
    """Those of sorted `entries` whose ids are wanted. O(ranges x log entries)."""
    found: list[Entry] = []
    for epoch in sorted(wanted):
        for first, last in wanted[epoch].ranges():
            low = bisect_left(entries, (epoch, first), key=id_of)
            high = bisect_right(entries, (epoch, last), key=id_of)
            found += entries[low:high]
    return found
