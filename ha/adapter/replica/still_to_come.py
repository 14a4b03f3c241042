"""StillToCome: the queues of which this link may still bring older messages, and what history itself lacks of
them.

Owner: ReplicaVhost. Makes no calls. A queue that is deleted while they come is noted as lacking what had not
come: a node that is promoted by force then does not know what became of those messages. Once the copy is
complete that is known: they were deleted with the queue.
"""

from __future__ import annotations

from broker.model.history.epoch_ends import DeletedQueues
from broker.model.history.records import QueueEnds, Record
from broker.model.history.replication_id_set import Range
from broker.model.queue.queue import Queue
from broker.model.values import Scope


class StillToCome:
    def __init__(self) -> None:
        self._lost: dict[bytes, dict[int, tuple[Range, ...]]] = {}
        """What a forced promotion has lost of each, by epoch."""

    def begin(self) -> None:
        """A primary is about to define its queues; nothing has come yet."""
        self._lost.clear()

    def add(self, queue: Queue) -> None:
        """That queue comes, perhaps once more: the primary has said how far its history goes."""
        if queue.uuid not in self._lost:
            ends = queue.replica.ends()
            self._lost[queue.uuid] = {epoch: end.lacking for epoch, end in ends.items() if end.lacking}

    def all_here(self, deleted_queues: DeletedQueues) -> list[Record]:
        """The corrected ends of the queues that were deleted meanwhile."""
        found: list[Record] = []
        for queue, lost in self._lost.items():
            ends = deleted_queues.get(queue)
            right = {epoch: end._replace(lacking=lost.get(epoch, ())) for epoch, end in (ends or {}).items()}
            if ends is not None and ends != right:
                found.append(QueueEnds(queue, right, True, Scope.STORE))
        self._lost.clear()
        return found
