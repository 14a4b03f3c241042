"""How far history got: of each queue and epoch, which ids it ever had. What a node that returns holds beyond
that is divergent; what lies within, and is gone, history has dequeued (invariant 15).

Kept by queues, and for a while by `Graves` for queues that were deleted. Written to the store and told to
joiners as `QueueEnds`. Two milestones after nobody can hold a message of it any more an end is forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from broker.model.history.replication_id_set import Range, ReplicationIdSet


class EpochEnd(NamedTuple):
    """Sequences 1..last were in history but for `lacking`, which a forced promotion lost.

    `settled`: no message of it was held any more at the last milestone.
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


def after_milestone(ends: EpochEnds, held: Collection[int], epoch: int) -> EpochEnds:
    """What is left of `ends` where messages of the epochs `held` are held: of those before `epoch`, settled
    ends go, and ends without messages settle.
    """
    left: EpochEnds = {}
    for number, end in ends.items():
        if number >= epoch or number in held:
            left[number] = end._replace(settled=False)
        elif not end.settled:
            left[number] = end._replace(settled=True)
    return left


class Graves:
    """Ends of the replicated queues that history has deleted, by UUID, oldest first; at most `MOST`.

    One that is forgotten too early does no harm: what returns of its queue is exported for no need.
    """

    MOST = 10_000

    def __init__(self) -> None:
        self._ends: dict[bytes, EpochEnds] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[tuple[bytes, EpochEnds]]:
        return iter(list(self._ends.items()))

    def get(self, queue: bytes) -> EpochEnds | None:
        """None if no such queue was deleted, or that is forgotten."""
        return self._ends.get(queue)

    def bury(self, queue: bytes, ends: EpochEnds) -> None:
        """A queue is deleted, or another's history says so; without `ends` it is as if it had never been."""
        self._ends.pop(queue, None)
        if ends:
            self._ends[queue] = ends
        if len(self._ends) > self.MOST:
            del self._ends[next(iter(self._ends))]

    def milestone(self) -> None:
        """What was settled goes, the rest settles."""
        self._ends = {
            queue: {epoch: end._replace(settled=True) for epoch, end in ends.items()}
            for queue, ends in self._ends.items()
            if not all(end.settled for end in ends.values())
        }
