"""A node's real data directory, written by the store itself and driven by hand, and the contents of such
directories."""

from __future__ import annotations

import os
from pathlib import Path

from broker.hooks import Hooks
from broker.model.history.history import History
from broker.model.history.record_codec import encode_record
from broker.model.history.records import Record
from broker.model.values import Position
from broker.model.vhost.vhosts import VirtualHosts
from broker.store.files import RealFiles
from broker.store.node_files import NodeFiles
from broker.store.segment_log import SegmentLog
from broker.store.store import Base, SegmentStore
from broker.store.sync import ManualSync
from ha.adapter.record_store import save_record
from ha.adapter.recovery import recover
from ha.core.record.in_sync_record import Incarnation, InSyncRecord
from tests.broker.store.batches import QUEUE, declare, dequeue, enqueue

EPOCH = 65539
SMALL = 600
"""Size of a segment in bytes: about ten messages."""


class StoredNode:
    """One process life of a node with one queue. `states[n]`: the sequences in the queue after n batches."""

    def __init__(self, folder: Path, *, cluster: bool = True, epoch: int = EPOCH) -> None:
        self.folder = folder
        self.files = NodeFiles.open(RealFiles(), str(folder), "left")
        self.driver = ManualSync()
        directory = self.files.store_directory
        self.store = SegmentStore(
            SegmentLog(RealFiles(), directory, salt=7, segment_bytes=SMALL), self.driver
        )
        list(self.store.recover())
        self.base = Base([encode_record(declare())], [QUEUE])
        self.store.start(self.base)
        self.driver.run()
        self.epoch = epoch
        self.files.raise_epoch(epoch)
        if cluster:
            self.files.set_cluster("c")
            self.save_record(owner=True)
        self.states: list[frozenset[int]] = [frozenset()]
        self.top = 0

    def save_record(self, *, owner: bool = False, in_sync: bool = False, incomplete: bool = False) -> None:
        me = Incarnation(self.files.identity.node_id, self.files.identity.incarnation)
        other = Incarnation("f" * 32, 5)
        backups = frozenset({me}) if in_sync else frozenset()
        save_record(
            self.files, InSyncRecord("c", self.epoch, 3, me if owner else other, backups, {}), incomplete
        )

    def batch(self, *records: Record) -> None:
        self.store.append(
            Position(self.epoch, len(self.states)), [encode_record(record) for record in records], records
        )
        if self.store.roll_due:
            self.store.roll(self.base)
        self.driver.run()
        assert self.store.failed is None

    def publish(self, count: int = 1) -> None:
        self.batch(enqueue(self.top + 1, count, epoch=self.epoch))
        self.states.append(self.states[-1] | set(range(self.top + 1, self.top + count + 1)))
        self.top += count

    def consume(self, sequence: int) -> None:
        self.batch(dequeue(sequence, sequence, epoch=self.epoch))
        self.states.append(self.states[-1] - {sequence})

    def work(self, batches: int, keep: int = 7) -> None:
        """Publish, and consume all messages but every `keep`th."""
        for _ in range(batches):
            self.publish()
            if self.top % keep:
                self.consume(self.top)

    @property
    def held(self) -> list[int]:
        return sorted(self.states[-1])

    @property
    def segments(self) -> list[Path]:
        return sorted((self.folder / "store").glob("*.segment"))

    def close(self) -> None:
        self.store.close()
        self.files.close()


def held_in(folder: Path) -> list[int]:
    """The sequences in the queue of `folder`, a data directory or an archive, as a start finds them."""
    vhost = VirtualHosts(Hooks(), History(), lambda: os.urandom(16)).root
    store = SegmentStore(SegmentLog(RealFiles(), str(folder / "store"), salt=9), ManualSync())
    recover(store, vhost.shared, lambda sentence: None)
    store.close()
    return sorted(sequence for sequence, _, _ in vhost.shared.queues_by_uuid[QUEUE].replica.entries())


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
