"""Shared helpers of the store's tests: small batches, and a log or a store on a virtual disk, driven by
hand."""

from __future__ import annotations

from collections.abc import Iterable

from broker.model.history.record_codec import encode_record
from broker.model.history.records import Dequeue, EnqueueRun, Envelope, QueueDeclare, Record
from broker.model.values import Position, Reason, Scope
from broker.store.segment_log import SegmentLog
from broker.store.segment_reader import StoredBatch
from broker.store.store import Base, SegmentStore
from broker.store.sync import ManualSync
from tests.simulation.harness.machines.virtual_disk import VirtualDisk

DIRECTORY = "/data/store"
QUEUE = b"q" * 16
NO_BASE = Base([], [QUEUE])


def payload(n: int) -> list[bytes]:
    """Two records that name their batch, for a log, which does not decode them."""
    return [b"batch %d " % n, b"." * (n % 7)]


def batch(n: int, epoch: int = 1) -> tuple[Position, list[bytes]]:
    return Position(epoch, n), payload(n)


def stored(n: int, epoch: int = 1) -> StoredBatch:
    return StoredBatch(Position(epoch, n), b"".join(payload(n)))


class Writer:
    """A recovered log, with bases that name all segments so far, as a minimal store would write them."""

    def __init__(self, log: SegmentLog, count: Iterable[int]) -> None:
        self.log = log
        self._count = sorted(count)

    def write(self, *group: tuple[Position, list[bytes]]) -> None:
        """Write and sync one group; in a new segment if the last one is full or there is none."""
        log = self.log
        if log._file is None or log._size >= log.segment_bytes:
            log.roll(log.number + 1, log.last_position, b",".join(b"%d" % n for n in self._count))
            self._count.append(log.number)
        log.write(group)
        log.sync()


def counted(base: StoredBatch) -> list[int]:
    return [int(n) for n in base.payload.split(b",") if n]


def open_log(disk: VirtualDisk, segment_bytes: int = 1 << 20, salt: int = 7) -> SegmentLog:
    return SegmentLog(disk, DIRECTORY, segment_bytes=segment_bytes, salt=salt)


def recovered(
    disk: VirtualDisk, segment_bytes: int = 1 << 20, salt: int = 7
) -> tuple[Writer, list[StoredBatch]]:
    log = open_log(disk, segment_bytes, salt)
    found = list(log.recover(counted))
    return Writer(log, {number for number, _ in found}), [batch for _, batch in found]


def written(*groups: list[int], segment_bytes: int = 1 << 20, disk: VirtualDisk | None = None) -> VirtualDisk:
    """A disk with a log of these groups, each synced, after its process was killed."""
    disk = disk or VirtualDisk()
    writer, _ = recovered(disk, segment_bytes)
    for group in groups:
        writer.write(*(batch(n) for n in group))
    disk.kill()
    return disk


# -- stores, which look into what they are given


def message(n: int) -> bytes:
    return b"message %d." % n + b"x" * (n % 5)


def enqueue(first: int, count: int = 1, *queues: bytes, epoch: int = 1) -> EnqueueRun:
    """A record with messages first..first+count-1 for each of the queues."""
    envelope = Envelope(epoch, "", "k", persistent=True, wall_ms=0, channel=1, largest_frame=100)
    to = list(queues or (QUEUE,))
    raws = [message(n) for n in range(first, first + count)]
    return EnqueueRun(to, [first] * len(to), envelope, raws, scope=Scope.STORE)


def dequeue(first: int, last: int, queue: bytes = QUEUE, epoch: int = 1) -> Dequeue:
    return Dequeue(queue, epoch, Reason.ACKED, [(first, last)], Scope.STORE)


def declare(queue: bytes = QUEUE) -> QueueDeclare:
    return QueueDeclare(queue, queue.hex(), True, False, False, {}, "none", Scope.STORE)


def append(store: SegmentStore, n: int, *records: Record) -> int:
    """Append one batch at position (1, n), and begin a new segment if one is due."""
    serial = store.append(Position(1, n), [encode_record(record) for record in records], records)
    if store.roll_due:
        store.roll(NO_BASE)
    return serial


def open_store(
    disk: VirtualDisk, segment_bytes: int = 1 << 20, base: Base = NO_BASE
) -> tuple[SegmentStore, ManualSync, list[Record]]:
    """A store that has recovered and started, and the recovered records."""
    driver = ManualSync()
    store = SegmentStore(open_log(disk, segment_bytes), driver)
    found = [record for _, records in store.recover() for record in records]
    store.start(base)
    return store, driver, found


def messages(records: Iterable[Record], queue: bytes = QUEUE) -> list[bytes]:
    """The messages that a queue holds after these records, by sequence."""
    held: dict[tuple[int, int], bytes] = {}
    for record in records:
        if isinstance(record, EnqueueRun) and queue in record.queues:
            first = record.firsts[record.queues.index(queue)]
            raws = record.raws if isinstance(record.raws, list) else record.raws.split()
            held |= {(record.envelope.epoch, first + n): raw for n, raw in enumerate(raws)}
        elif isinstance(record, Dequeue) and record.queue == queue:
            for low, high in record.ranges:
                for seq in range(low, high + 1):
                    held.pop((record.epoch, seq), None)
    return [raw for _, raw in sorted(held.items())]


def segments(disk: VirtualDisk) -> list[str]:
    return [path for path in disk.contents() if path.endswith(".segment")]
