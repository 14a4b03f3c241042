"""Withheld: what a member that its new primary expects has been told to drop, and has not dropped yet.

Owner: ReplicaVhost. While such a member catches up it can be promoted, and nothing that it is told is
confirmed to anybody before it has all. Queues come one after the other: a message that moved (a dead letter,
a transaction) may have left the one and not be in the other yet. So what it held before stays until
everything is here, and then goes at once; or it goes back to what it held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from broker.model.epoch_ends import EpochEnds
from broker.model.records import Dequeue, Record
from broker.model.values import Reason, Scope
from ha.core.ports import IdsByEpoch


@dataclass(slots=True)
class Withheld:
    """`since`: messages of this epoch, or of later ones, nobody was told of that they are safe."""

    since: int
    ends: dict[bytes, EpochEnds]
    """How far history had got in each queue before that."""
    told: list[Dequeue] = field(default_factory=list)
    """Of history, and not applied."""
    dropped: list[Dequeue] = field(default_factory=list)
    """Of comparisons with the primary, for the store only."""

    def begin_again(self) -> None:
        """Another primary tells what is to be dropped, of all that is here."""
        self.told, self.dropped = [], []

    def split(self, records: Sequence[Record]) -> list[Record]:
        """Keep the dequeues that are to wait; the others."""
        now: list[Record] = []
        for record in records:
            if type(record) is Dequeue and record.epoch < self.since:
                self.told.append(record)
            else:
                now.append(record)
        return now

    def drop(self, queue: bytes, ids: IdsByEpoch) -> IdsByEpoch:
        """Those of `ids` that are to be dropped later, and not now."""
        later = {epoch: gone for epoch, gone in ids.items() if epoch < self.since}
        for epoch, gone in later.items():
            self.dropped.append(Dequeue(queue, epoch, Reason.DROPPED, gone.ranges(), Scope.STORE))
        return later

    def ends_of(self, queue: bytes) -> EpochEnds:
        """As they were. A queue that was not there had none."""
        return self.ends.get(queue, {})

    def newer(self, epochs: Iterable[int]) -> list[int]:
        """Those of which nothing was confirmed."""
        return [epoch for epoch in epochs if epoch >= self.since]
