"""Recovery: a node's store back into its virtual host, at start; and the checkpoint that replaces the old
segments.

Called by Node.start, once, before anything is served or joined.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.model.queue_replica import group_runs
from broker.model.record_codec import decode_records, encode_record
from broker.model.values import ORIGIN, Position, Scope
from broker.model.vhost import VirtualHost
from ha.adapter.primary_vhost import scoped

if TYPE_CHECKING:
    from broker.store.store import Store

ENTRIES_A_BATCH = 2000


def recover(store: Store, vhost: VirtualHost) -> Position:
    """Replay, then compact. The position of the last batch on disk. StoreError if the store is damaged."""
    position = ORIGIN
    for batch in store.recover():
        for record in decode_records(batch.payload):
            vhost.apply(record)
        position = max(position, batch.position)
    if position > ORIGIN:
        store.rewrite(_checkpoint(vhost, position))
    return position


def _checkpoint(vhost: VirtualHost, position: Position) -> Iterator[tuple[Position, list[bytes]]]:
    """Everything the store sees, as batches that share the restored position."""
    ends = [record for record in vhost.ends(Scope.STORE) if record.ends]
    yield position, [encode_record(record) for record in (*vhost.definitions(Scope.STORE), *ends)]
    for queue in vhost.queues.values():
        if not queue.scope & Scope.STORE:
            continue
        entries = [entry for entry in queue.held_entries() if entry[1].persistent]
        for at in range(0, len(entries), ENTRIES_A_BATCH):
            runs = group_runs(queue.uuid, entries[at : at + ENTRIES_A_BATCH])
            yield position, [encode_record(scoped(run, queue.scope)) for run in runs]
