"""MirrorFeed: sends one queue of this broker to a follower of another cluster.

Owner: MirrorSource. Makes calls on SourceModel. After Qpid's ReplicatingSubscription, which does the same
between standalone brokers there.

It is a cursor on the queue, oldest message first, which ends at the newest and waits there. A piece is read
right after a flush, and says which ids the queue holds of one stretch at that moment. Ids only grow, so
nothing can come into a stretch that the cursor has passed; messages that leave it are told as history tells
them. So no message waits in memory for a slow follower: the queue itself is the buffer. Only ids that have
left are gathered, as ranges, up to a limit.
"""

from __future__ import annotations

from broker.model.history.records import Dequeue, MessageId, Piece
from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.values import Reason
from ha.core.errors import LinkError
from ha.core.mirror.ports import SourceModel
from ha.core.mirror.wire import MirrorFrame, encode_number
from ha.core.ports import IdsByEpoch
from ha.core.wire.link import frame
from ha.core.wire.queue_snapshot import encode_piece
from ha.core.wire.replicating_subscription import BEFORE_ALL, LOOK_MOST, MEAN_FIRST, cut

WINDOW = 4 << 20
"""Octets sent and not yet acknowledged, above which nothing more is sent."""
SHARE = 256 << 10
"""About how many octets are read in a tick: publishers are never held for long."""
MOST_RANGES = 100_000
"""Ranges of ids that have left, and are not sent, above which the follower has to compare anew."""


class MirrorFeed:
    """See the module. `peer`: the follower's connection; `name`: the name that it gave."""

    def __init__(self, peer: int, name: str, queue: bytes, has: IdsByEpoch) -> None:
        self.peer = peer
        self.name = name
        self.queue = queue
        self._has = has
        self._at = BEFORE_ALL
        self._left: dict[tuple[int, Reason], ReplicationIdSet] = {}
        self._ranges = 0
        self._begun = False
        self.whole = False
        self._total = -1
        self._mean = MEAN_FIRST
        self.sent = 0
        self.received = 0
        self.hungry = False
        """There is more to read, and the follower would take it."""

    # -- what history says

    def left(self, gone: Dequeue) -> bool:
        """Messages have left the queue. False once they are too many to gather."""
        epoch, passed = self._at
        if gone.epoch > epoch:
            return True
        ids = self._left.setdefault((gone.epoch, gone.reason), ReplicationIdSet())
        for first, last in gone.ranges:
            if gone.epoch < epoch or first <= passed:
                ids.add_range(first, last if gone.epoch < epoch else min(last, passed))
        self._ranges += len(gone.ranges)
        if self._ranges > MOST_RANGES:
            self._ranges = sum(len(some.ranges()) for some in self._left.values())
        return self._ranges <= MOST_RANGES

    def acknowledged(self, received: int) -> None:
        """LinkError if it was never sent."""
        if not self.received <= received <= self.sent:
            raise LinkError(f"acknowledged {received} bytes of {self.sent}")
        self.received = received

    # -- what goes out

    def read(self, model: SourceModel) -> list[bytes]:
        """This tick's share of the stream, as much as the follower's window allows."""
        out: list[bytes] = []
        limit = min(SHARE, WINDOW - (self.sent - self.received))
        last = model.last_id(self.queue)
        if limit > 0:
            if not self._begun:
                self._begun = True
                out += frame(MirrorFrame.DECLARED, [model.declared(self.queue)])
            out += self._gone(model)
            out += self._pieces(model, last, limit)
            total = model.total(self.queue)
            if total != self._total:
                self._total = total
                out += frame(MirrorFrame.TOTAL, [encode_number(total)])
            self.sent += sum(map(len, out))
        self.hungry = not self._reached(last) and self.sent - self.received < WINDOW
        return out

    def _reached(self, last: MessageId) -> bool:
        return self.whole and self._at >= last

    def _gone(self, model: SourceModel) -> list[bytes]:
        left, self._left, self._ranges = self._left, {}, 0
        records = [
            Dequeue(self.queue, epoch, reason, ids.ranges()) for (epoch, reason), ids in left.items() if ids
        ]
        return frame(MirrorFrame.LEFT, model.encode(records)) if records else []

    def _pieces(self, model: SourceModel, last: MessageId, limit: int) -> list[bytes]:
        out: list[bytes] = []
        looks = LOOK_MOST
        while limit > 0 and looks > 0 and not self._reached(last):
            look = min(LOOK_MOST, limit // self._mean * 9 // 8 + 16)
            looks -= look
            part = self._piece(model, model.piece(self.queue, self._at, look), last, limit)
            limit -= sum(map(len, part))
            out += part
            if self._at >= last and not self.whole:
                self.whole, self._has = True, {}
                out += frame(MirrorFrame.WHOLE, [])
        return out

    def _piece(self, model: SourceModel, piece: Piece, last: MessageId, limit: int) -> list[bytes]:
        """As much of it as `limit` allows; no frame if it has nothing for the follower."""
        entries, upto = piece
        if upto is None or upto > last:
            upto = last
        upto, ids, missing = cut(entries, upto, self._has, limit)
        self._at = upto
        if not entries and self.whole:
            return []  # the follower holds nothing of what came and went
        records = model.encode_runs(self.queue, missing)
        part = frame(MirrorFrame.PIECE, [encode_piece(upto, ids), *records])
        if entries:
            self._mean = sum(map(len, part)) // len(entries) + 1
        return part
