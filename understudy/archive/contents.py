"""Reads a copied store to its end, as the start of a node would. Called by `take`.

Messages are counted by their ids and not kept, so a store of any size needs little memory.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from broker.hooks import Hooks
from broker.model.history.history import History
from broker.model.history.records import Dequeue, EnqueueRun, Record
from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.vhost.vhosts import VirtualHosts
from broker.store.files import RealFiles
from broker.store.segment_log import SegmentLog
from broker.store.store import SegmentStore
from broker.store.sync import ManualSync
from understudy.archive.manifest import CopiedQueue, Progress

_Held = dict[bytes, dict[int, ReplicationIdSet]]
"""Ids by queue and epoch."""


class Miscounted(Exception):
    """The bases of the store count messages that its segments do not hold, or the reverse."""


class Contents(NamedTuple):
    queues: list[CopiedQueue]
    exchanges: int
    bindings: int
    epoch: int
    """The highest epoch of any position or message."""


def read_back(directory: str, progress: Progress) -> Contents:
    """Read the store in `directory`. As in any start, a torn tail is cut and the last segment is sealed.

    Raises StoreError if the store is damaged, Miscounted if its segments and its bases disagree.
    """
    log = SegmentLog(RealFiles(), directory, salt=int.from_bytes(os.urandom(8), "little"))
    store = SegmentStore(log, ManualSync())
    vhosts = VirtualHosts(Hooks(), History(), lambda: os.urandom(16))
    held: _Held = {}
    last, told = 0, 0
    for position, records in store.recover():
        last = max(last, position.epoch)
        for record in records:
            if not _count(held, record):
                vhosts.apply(record)
        progress(store.progress[0] - told)
        told = store.progress[0]
    store.close()
    _compare(store, held, vhosts)
    queues = [
        CopiedQueue(name=queue.title, uuid=queue.uuid.hex(), messages=_sum(held.get(queue.uuid, {})))
        for queue in sorted(vhosts.queues_by_uuid.values(), key=lambda queue: (queue.title, queue.uuid))
    ]
    everywhere = [exchange for vhost in vhosts for exchange in vhost.exchanges.values()]
    exchanges = [exchange for exchange in everywhere if not exchange.built_in]
    bindings = sum(len(exchange.bindings) for exchange in everywhere)
    epochs = [epoch for uuid in vhosts.queues_by_uuid for epoch in held.get(uuid, ())]
    return Contents(queues, len(exchanges), bindings, max([last, *epochs]))


def _count(held: _Held, record: Record) -> bool:
    """Count the messages of a record. Returns False for a record that is not about messages."""
    if isinstance(record, EnqueueRun):
        for queue, first in zip(record.queues, record.firsts, strict=True):
            ids = held.setdefault(queue, {}).setdefault(record.envelope.epoch, ReplicationIdSet())
            ids.add_range(first, first + record.count - 1)
        return True
    if isinstance(record, Dequeue):
        known = held.get(record.queue, {}).get(record.epoch)
        if known is not None:
            for low, high in record.ranges:
                known.discard_range(low, high)
        return True
    return False


def _sum(epochs: dict[int, ReplicationIdSet]) -> int:
    return sum(len(ids) for ids in epochs.values())


def _compare(store: SegmentStore, held: _Held, vhosts: VirtualHosts) -> None:
    """Check that the segments held all messages that the bases count. Raises Miscounted."""
    counted: dict[bytes, int] = dict.fromkeys(vhosts.queues_by_uuid, 0)
    for queue, _, first, last, _ in store.index.ranges():
        if queue in counted:
            counted[queue] += last - first + 1
    for uuid, wanted in counted.items():
        found = _sum(held.get(uuid, {}))
        if found != wanted:
            name = vhosts.queues_by_uuid[uuid].title
            raise Miscounted(f"it holds {found} messages of queue {name!r}, but counts {wanted}")
