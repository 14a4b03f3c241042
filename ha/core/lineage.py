"""Lineage: which cluster this node belongs to, which epochs it has heard of, whose word counts here.

Owner: HaBroker. Both only ever grow: a cluster once found is never left, and an epoch once seen is never
minted.
"""

from __future__ import annotations

from ha.core.authority import PeerAnswer
from ha.core.effects import AdoptCluster
from ha.core.in_sync_record import InSyncRecord
from ha.core.role import Context


class Lineage:
    """`cluster_id`: None until one is found; `seen`: the highest epoch known to have been minted."""

    def __init__(self, context: Context, epoch_seen: int, cluster_id: str | None) -> None:
        self._c = context
        record = context.record
        self.seen = max(epoch_seen, record.epoch if record else 0)
        self.cluster_id = record.cluster_id if record else cluster_id

    def saw(self, *epochs: int) -> None:
        self.seen = max(self.seen, *epochs)

    def belong(self, cluster_id: str) -> None:
        """Be of that cluster, durably, unless this node is of one already."""
        if self.cluster_id is None:
            self.cluster_id = cluster_id
            self._c.do(AdoptCluster(cluster_id))

    def foreign(self, answer: PeerAnswer) -> bool:
        """Of another cluster, or of none with a life of its own: its epochs mean nothing here."""
        if self.cluster_id is None:
            return False
        return answer.cluster_id != self.cluster_id and not (answer.cluster_id is None and not answer.epoch)

    def learn(self, record: InSyncRecord | None) -> None:
        """After a record came in: its cluster and epoch are ours."""
        if record is not None:
            self.saw(record.epoch)
            self.belong(record.cluster_id)

    def adopt(self, record: InSyncRecord) -> None:
        """A peer's record, or the authority's, if it is of this cluster, and newer than this node's own."""
        known = self._c.record
        if self.cluster_id not in (None, record.cluster_id):
            return
        if known is None or (known.cluster_id == record.cluster_id and record.version > known.version):
            self._c.save(record, self._c.copy.incomplete)
            self.learn(record)
