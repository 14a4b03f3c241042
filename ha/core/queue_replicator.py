"""QueueReplicator: one queue of a backup while its snapshot comes in.

Owner: BrokerReplicator, from QUEUE_BEGIN to QUEUE_END. Makes calls on ReplicaModel.
"""

from __future__ import annotations

from ha.core.ports import IdsByEpoch, ReplicaModel
from ha.core.queue_snapshot import minus, total


class QueueReplicator:
    """Keeps what is common, drops what the primary has not, takes what is missing."""

    def __init__(self, model: ReplicaModel, queue: bytes, ids: IdsByEpoch) -> None:
        self._model = model
        self.queue = queue
        begun = model.begin_queue(queue, ids)
        self.name, self.dropped, self.quarantined = begun.name, begun.dropped, begun.quarantined
        self.kept = total(begun.held)
        self.missing = total(minus(ids, begun.held))
        """Messages still to come when the snapshot began; what is dequeued meanwhile never comes."""

    def runs(self, payload: bytes) -> None:
        self._model.add_runs(self.queue, payload)

    def end(self) -> None:
        self._model.end_queue(self.queue)
