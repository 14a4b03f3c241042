"""Mutants of the copy: snapshots, live batches and dequeues that make a backup differ from its primary."""

from __future__ import annotations

from typing import Any

from broker.model import history
from broker.model.queue_replica import ReplicaContents
from broker.model.replication_id_set import Range
from ha.core.broker_replicator import BrokerReplicator
from ha.core.link import parse_batch
from ha.core.replicating_subscription import ReplicatingSubscription
from tests.simulation.mutants.mutant import Mutant, Patch, never


def _skip_every_ninth(batch: Any) -> Any:
    def broken(self: BrokerReplicator, body: bytes) -> None:
        head = parse_batch(body)
        if head.position.n % 9:
            batch(self, body)
        else:
            self.applied, self.sent_at = head.position, head.sent_at

    return broken


def _skip_the_first(read: Any) -> Any:
    def broken(self: ReplicatingSubscription, model: Any, limit: int) -> Any:
        if self._slices and not self._at:
            self._slices[0] = self._slices[0][1:]
        return read(self, model, limit)

    return broken


def _end_before_the_last(read: Any) -> Any:
    def broken(self: ReplicatingSubscription, model: Any, limit: int) -> Any:
        if len(self._slices) == 1:
            self._slices[0] = self._slices[0][:-1]
        return read(self, model, limit)

    return broken


def _one_beyond(to_ranges: Any) -> Any:
    def broken(seqs: list[int]) -> list[Range]:
        return [(first, last + 1) for first, last in to_ranges(seqs)]

    return broken


def _drop_nothing(keep_only: Any) -> Any:
    return lambda self, ids: 0


MUTANTS = (
    Mutant(
        "acknowledge a batch and drop it",
        "The backup acknowledges a batch whose records it never applied.",
        (2,),
        (Patch(BrokerReplicator, "_batch", _skip_every_ninth),),
    ),
    Mutant(
        "forget dequeues on the backup",
        "A backup keeps what consumers have acknowledged, and delivers all of it again once it is promoted.",
        (13,),
        (Patch(ReplicaContents, "dequeue", never),),
    ),
    Mutant(
        "dequeue one too many",
        "An off-by-one in dequeue ranges: on the backup the message behind those that left goes with them.",
        (13,),
        (Patch(history, "to_ranges", _one_beyond),),
    ),
    Mutant(
        "lose a message of a snapshot",
        "A chunk of the snapshot begins one message too late.",
        (13,),
        (Patch(ReplicatingSubscription, "read", _skip_the_first),),
    ),
    Mutant(
        "end a snapshot before its last message",
        "A joiner is ready with a gap at the tail of a queue (Qpid 5973).",
        (13,),
        (Patch(ReplicatingSubscription, "read", _end_before_the_last),),
    ),
    Mutant(
        "keep what the primary has not",
        "A rejoining node keeps messages that the new primary's history never had, or has dequeued.",
        (13,),
        (Patch(ReplicaContents, "keep_only", _drop_nothing),),
    ),
)
