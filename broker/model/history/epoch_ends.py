"""The ids that history ever had, for each queue and epoch.

A returning node's messages outside these ids are divergent. Ids inside that are gone were dequeued by history
(invariant 15). Queues keep their ends, and `DeletedQueues` keeps those of deleted queues for a while.
`QueueEnds` records carry them to the store and to joining nodes. An end is forgotten two history checkpoints
after no node can hold a message of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from broker.model.history.replication_id_set import Range, ReplicationIdSet


class EpochEnd(NamedTuple):
    """Sequences 1..last were in history, except `lacking`, which a forced promotion lost.

    `settled`: no message of this epoch was held at the last history checkpoint.
    """

    last: int
    lacking: tuple[Range, ...] = ()
    settled: bool = False

    def had(self) -> ReplicationIdSet:
        """The ids as a set."""
        ids = ReplicationIdSet([(0, self.last)])
        for first, last in self.lacking:
            ids.discard_range(first, last)
        return ids


EpochEnds = dict[int, EpochEnd]
"""By epoch."""


def had(ends: EpochEnds) -> dict[int, ReplicationIdSet]:
    """All ids that history ever had, by epoch."""
    return {epoch: end.had() for epoch, end in ends.items()}


def after_history_checkpoint(ends: EpochEnds, held: Collection[int], epoch: int) -> EpochEnds:
    """`ends` after a history checkpoint, if messages of the epochs `held` are held. Of the epochs before
    `epoch`, settled ends go, and ends without messages become settled."""
    left: EpochEnds = {}
    for number, end in ends.items():
        if number >= epoch or number in held:
            left[number] = end._replace(settled=False)
        elif not end.settled:
            left[number] = end._replace(settled=True)
    return left


class DeletedQueues:
    """The deleted-queue history: ends of replicated queues that were deleted, by UUID, oldest first; at most
    `MOST`.

    Forgetting one too early does no harm: messages of its queue that come back are quarantined needlessly.
    """

    MOST = 10_000

    def __init__(self) -> None:
        self._ends: dict[bytes, EpochEnds] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[tuple[bytes, EpochEnds]]:
        return iter(list(self._ends.items()))

    def get(self, queue: bytes) -> EpochEnds | None:
        """None if no such queue was deleted, or if its deletion is forgotten."""
        return self._ends.get(queue)

    def add(self, queue: bytes, ends: EpochEnds) -> None:
        """Note that a queue is deleted, here or in received history. Without `ends`, as if it had never
        existed."""
        self._ends.pop(queue, None)
        if ends:
            self._ends[queue] = ends
        if len(self._ends) > self.MOST:
            del self._ends[next(iter(self._ends))]

    def history_checkpoint(self) -> None:
        """Drop the settled ends, and settle the rest."""
        self._ends = {
            queue: {epoch: end._replace(settled=True) for epoch, end in ends.items()}
            for queue, ends in self._ends.items()
            if not all(end.settled for end in ends.values())
        }
