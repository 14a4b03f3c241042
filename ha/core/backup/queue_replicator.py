"""QueueReplicator: one queue of a backup while its snapshot comes in.

Owner: BrokerReplicator, from QUEUE_BEGIN to QUEUE_END. Makes calls on ReplicaModel.
"""

from __future__ import annotations

from broker.model.history.records import MessageId
from ha.core.errors import LinkError
from ha.core.ports import Dropped, IdsByEpoch, ReplicaModel
from ha.core.wire.queue_snapshot import decode_piece
from ha.core.wire.replicating_subscription import BEFORE_ALL

NOTHING: IdsByEpoch = {}
BEYOND_ALL: MessageId = (2**64 - 1, 2**64 - 1)


class QueueReplicator:
    """Works piece by piece: keeps what both hold, drops what the primary does not hold, takes what is
    missing."""

    def __init__(self, model: ReplicaModel, queue: bytes, epoch: int, live_from: int) -> None:
        self._model = model
        self.queue = queue
        self._at = BEFORE_ALL
        self._last: MessageId = (epoch, live_from - 1)
        self.dropped = self.quarantined = 0
        self.name = model.begin_queue(queue, self._last)

    def piece(self, body: bytes) -> None:
        """LinkError if it does not follow the one before."""
        upto, ids, records = decode_piece(body)
        if not self._at < upto <= self._last:
            raise LinkError(f"a piece up to {upto} after {self._at}")
        self._compare(upto, ids, records)

    def end(self) -> None:
        """Nothing more; not of later epochs either, which this primary has never heard of."""
        self._compare(self._last, NOTHING, b"")
        self._at = (self._last[0] + 1, -1)
        self._compare(BEYOND_ALL, NOTHING, b"")
        self._model.end_queue(self.queue)

    def _compare(self, upto: MessageId, ids: IdsByEpoch, records: bytes) -> None:
        dropped: Dropped = self._model.take_piece(self.queue, self._at, upto, ids, records)
        self.dropped += dropped.messages
        self.quarantined += dropped.quarantined
        self._at = upto
