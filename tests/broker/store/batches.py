"""What the store's tests share: small batches, and a store on a virtual disk that is driven by hand."""

from __future__ import annotations

from broker.model.values import Position
from broker.store.segment_log import SegmentLog, StoredBatch
from broker.store.store import SegmentStore
from broker.store.sync import ManualSync
from tests.simulation.virtual_disk import VirtualDisk

DIRECTORY = "/data/store"


def payload(n: int) -> list[bytes]:
    """Two records that say which batch they are of."""
    return [b"batch %d " % n, b"." * (n % 7)]


def batch(n: int, epoch: int = 1) -> tuple[Position, list[bytes]]:
    return Position(epoch, n), payload(n)


def stored(n: int, epoch: int = 1) -> StoredBatch:
    return StoredBatch(Position(epoch, n), b"".join(payload(n)))


def open_log(disk: VirtualDisk, segment_bytes: int = 1 << 20, salt: int = 7) -> SegmentLog:
    return SegmentLog(disk, DIRECTORY, segment_bytes=segment_bytes, salt=salt)


def recovered(disk: VirtualDisk, segment_bytes: int = 1 << 20) -> tuple[SegmentLog, list[StoredBatch]]:
    log = open_log(disk, segment_bytes)
    return log, list(log.recover())


def written(*groups: list[int], segment_bytes: int = 1 << 20, disk: VirtualDisk | None = None) -> VirtualDisk:
    """A disk whose log got these groups, each synced, by a process that was then killed."""
    disk = disk or VirtualDisk()
    log, _ = recovered(disk, segment_bytes)
    for group in groups:
        log.write([batch(n) for n in group])
        log.sync()
    disk.kill()
    return disk


def open_store(
    disk: VirtualDisk, segment_bytes: int = 1 << 20, *, compact: bool = False
) -> tuple[SegmentStore, ManualSync, list[StoredBatch]]:
    """A store that has recovered, perhaps compacted, and started; and what it recovered."""
    driver = ManualSync()
    store = SegmentStore(open_log(disk, segment_bytes), driver)
    found = list(store.recover())
    if compact:
        store.rewrite((b.position, [b.payload]) for b in found)
    store.start()
    return store, driver, found


def segments(disk: VirtualDisk) -> list[str]:
    return [path for path in disk.contents() if path.endswith(".segment")]
