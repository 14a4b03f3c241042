"""LocalRecord: this node's own copy of the in-sync record, and its replica state.

Owner: HaBroker. Both copies of the record, in memory and fsynced, follow what is known to be committed.
"""

from __future__ import annotations

from ha.core.effects import SaveRecord
from ha.core.outbox import Outbox
from ha.core.record.in_sync_record import InSyncRecord
from ha.core.record.replica_state import ReplicaState


class LocalRecord:
    """`record`: the newest that this node knows of, or None; `replica`: how far its queues can be trusted."""

    def __init__(self, record: InSyncRecord | None, replica: ReplicaState, outbox: Outbox) -> None:
        self.record = record
        self.replica = replica
        self._out = outbox

    def save(self, record: InSyncRecord, incomplete: bool) -> None:
        """Keep `record`, in memory and on disk."""
        self.record, self.replica.incomplete = record, incomplete
        self._out.do(SaveRecord(record, self.replica.incomplete_on_disk))

    def heed_disk(self, synced: int) -> None:
        """The disk has all up to that mark."""
        if self.record is not None and self.replica.synced(synced):
            self.save(self.record, self.replica.incomplete)

    def mark_incomplete(self) -> None:
        """From now on. Saves decided before, and still to be made, must not take the mark back."""
        self.replica.incomplete = True
        self._out.mark_saves_incomplete()
