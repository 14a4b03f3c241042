"""PendingDrops: the drops that an expected member has been told of and has not made yet.

Owner: ReplicaVhost. While such a member catches up it can be promoted, and nothing that it is told is
confirmed to any publisher before its copy is complete. Queues come one after the other: a message that moved
(a dead letter, a transaction) may have left one queue and not be in the other yet. So what the member held
before stays until everything is here. Then it is dropped at once, or the member goes back to what it held.

A queue that is deleted goes at once, with its messages, which may have moved as well. From then on there is
no way back, and this node is not promotable before its copy is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.model.history.epoch_ends import EpochEnds
from broker.model.history.marks import Marks
from broker.model.history.recent_ids import RecentIds
from broker.model.history.records import Dequeue, Record
from broker.model.values import Reason, Scope
from ha.core.ports import IdsByEpoch


@dataclass(slots=True)
class PendingDrops:
    """`since`: the epoch in which the member was expected first; no client was told that anything of it is
    safe."""

    since: int
    before: dict[bytes, tuple[IdsByEpoch, EpochEnds]]
    """What each queue held then, and how far history had got in it; also of deleted ones. One that was never
    there is not here."""
    marks: dict[bytes, Marks]
    """The marks of each queue then."""
    recent: dict[bytes, RecentIds]
    """The message ids that each queue with a window for them knew then."""
    told: list[Dequeue] = field(default_factory=list)
    """Of history, and not applied."""
    dropped: list[Dequeue] = field(default_factory=list)
    """Of comparisons with the primary, for the store only."""
    beyond: dict[bytes, IdsByEpoch] = field(default_factory=dict)
    """Those of them that the primary's history never had, by queue: to quarantine before they go."""
    ended: set[bytes] = field(default_factory=set)
    """Queues that were deleted, with what they held then: of these it cannot go back."""

    def begin_again(self) -> None:
        """Another primary says what is to be dropped, of all that is here."""
        self.told, self.dropped, self.beyond = [], [], {}

    def end(self, queue: bytes) -> None:
        """The queue is deleted at once: its name may be taken again."""
        if self.before.get(queue, ({}, {}))[0]:
            self.ended.add(queue)

    def split(self, records: Sequence[Record]) -> list[Record]:
        """Keep the dequeues that are to wait; the others."""
        now: list[Record] = []
        for record in records:
            if type(record) is Dequeue and record.epoch < self.since:
                self.told.append(record)
            else:
                now.append(record)
        return now

    def drop(self, queue: bytes, ids: IdsByEpoch, beyond: IdsByEpoch) -> IdsByEpoch:
        """Those of `ids` that are to be dropped later, and not now; `beyond` are for quarantine then."""
        later = self._earlier(ids)
        for epoch, gone in later.items():
            self.dropped.append(Dequeue(queue, epoch, Reason.DROPPED, gone.ranges(), Scope.STORE))
        kept = self.beyond.setdefault(queue, {})
        for epoch, gone in self._earlier(beyond).items():
            kept[epoch] = kept[epoch].union(gone) if epoch in kept else gone
        return later

    def _earlier(self, ids: IdsByEpoch) -> IdsByEpoch:
        return {epoch: some for epoch, some in ids.items() if epoch < self.since}
