"""Lineage: which cluster this node belongs to, which epochs it has heard of, whose word counts here.

Owner: HaBroker. Both only ever grow: a cluster once found is never left, and an epoch once seen is never
minted. The node's number, which goes into its epochs, changes only before the first of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from itertools import count

from ha.core import codes
from ha.core.effects import AdoptCluster, TakeNumber
from ha.core.outbox import Outbox
from ha.core.record.authority import Authority, PeerAnswer
from ha.core.record.in_sync_record import EPOCH_STEP, InSyncRecord, is_beyond
from ha.core.record.local_record import LocalRecord
from ha.core.role import OwnIdentity


class Lineage:
    """`cluster_id`: None until one is found; `seen`: the highest epoch known to have been minted."""

    def __init__(
        self, me: OwnIdentity, local: LocalRecord, outbox: Outbox, epoch_seen: int, cluster_id: str | None
    ) -> None:
        self._me = me
        self._local = local
        self._out = outbox
        record = local.record
        self.seen = max(epoch_seen, record.epoch if record else 0)
        self.cluster_id = record.cluster_id if record else cluster_id
        self._sure = self.seen
        """Known by this node's own disk, and not by hearsay."""
        self._minted = epoch_seen > 0

    def saw(self, *epochs: int) -> None:
        self.seen = max(self.seen, *epochs)

    def belong(self, cluster_id: str) -> None:
        """Be of that cluster, durably, unless this node is of one already."""
        if self.cluster_id is None:
            self.cluster_id = cluster_id
            self._out.do(AdoptCluster(cluster_id))

    def mint(self, authority: Authority, known: int = 0) -> int:
        """A new epoch above `known` and all that this node has heard of."""
        self._minted = True
        return authority.mint(self._me, max(self.seen, known))

    def differ(self, peer: PeerAnswer, taken: Collection[int]) -> None:
        """If the peer has this node's number, draw one that is not in `taken`. A node that may have minted an
        epoch, or belongs to a cluster, keeps its number: two terms could get one epoch otherwise."""
        me = self._me
        if peer.number != me.number or self._minted or self.cluster_id is not None:
            return
        # Hashes of the identity, which no peer has: two nodes that draw at the same time draw two numbers.
        # No generator expression: mypyc makes a list of it, and this one has no end.
        for draw in count():
            drawn = 1 + zlib.crc32(f"{me.node_id} {draw}".encode()) % (EPOCH_STEP - 1)
            if drawn != peer.number and drawn not in taken:
                break
        self._out.log(codes.NUMBER_DRAWN.say(peer=peer.name, old=me.number, number=drawn))
        me.number = drawn
        self._out.do(TakeNumber(drawn))

    def foreign(self, answer: PeerAnswer) -> bool:
        """Of another cluster, or of none with a life of its own: its epochs mean nothing here."""
        if self.cluster_id is None:
            return False
        return answer.cluster_id != self.cluster_id and not (answer.cluster_id is None and not answer.epoch)

    def doubt(self, answer: PeerAnswer, serves_in: int | None) -> str:
        """Why what a peer of this cluster tells of its epochs is not believed; "" if it is. `serves_in`: the
        epoch in which this node is primary, None if it is not.

        A node knows of a later epoch by the record of it, and shows that. So a primary stops for nothing
        less. A node that does not serve heeds the word all the same, before it is promoted.
        """
        record = answer.record
        told = max(answer.epoch, answer.seen, answer.position.epoch, record.epoch if record else 0)
        known = max(self._sure, self._local.record.epoch if self._local.record else 0)
        if is_beyond(told, known):
            return f"tells of epoch {told}, which cannot follow {known}, the last that this node knows"
        if serves_in is not None and answer.epoch > serves_in and not self._shows(record, answer.epoch):
            return (
                f"tells of epoch {answer.epoch} and does not show the record of it: this node serves on in "
                f"epoch {serves_in}"
            )
        return ""

    def _shows(self, record: InSyncRecord | None, epoch: int) -> bool:
        return record is not None and (record.cluster_id, record.epoch) == (self.cluster_id, epoch)

    def learn(self, record: InSyncRecord | None) -> None:
        """After a record came in: its cluster and epoch are ours."""
        if record is not None:
            self.saw(record.epoch)
            self.belong(record.cluster_id)

    def adopt(self, record: InSyncRecord) -> None:
        """A peer's record, or the authority's, if it is of this cluster, and newer than this node's own."""
        known = self._local.record
        if self.cluster_id not in (None, record.cluster_id):
            return
        if known is None or (known.cluster_id == record.cluster_id and record.version > known.version):
            self._local.save(record, self._local.replica.incomplete)
            self.learn(record)
