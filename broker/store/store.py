"""The store: it writes durable history, and its gate says up to where history is on disk.

The broker's thread hands over each tick's batch and never blocks. Groups of batches are written and synced,
with one sync outstanding while the next group gathers. `durable` moves when a sync returns. A full segment is
followed by a new one, and segments without live messages are removed. `SegmentStore` is a `Gate`. Owner: the
node. Callers: the node on the broker's thread (`append`, `roll`, `durable`, `failed`), and a `SyncDriver`,
on one thread at a time (`write_group`, `sync_group` or `group_synced`, `tidy`). The only callback is
`on_durable`.

A failed write or sync is final, because fsync may have dropped the pages that it could not write. `failed` is
set, `durable` never moves again, and the node stops.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

from broker.model.history.record_codec import CorruptRecord, decode_records
from broker.model.history.records import Record
from broker.model.values import FOREVER, ORIGIN, Position
from broker.store.base_codec import decode_base, encode_base
from broker.store.cleaning import Cleaning, choose
from broker.store.errors import StoreCorrupt, StoreMisuse, StoreUnusable
from broker.store.files import RealFiles
from broker.store.live_index import LiveIndex, LiveRanges, SegmentUse
from broker.store.live_runs import lacks, live_records, runs_of
from broker.store.segment_format import FRAME_HEAD_BYTES, HEADER_BYTES
from broker.store.segment_log import SEGMENT_BYTES, SegmentLog
from broker.store.segment_reader import StoredBatch
from broker.store.sync import SyncDriver, ThreadSync

_EMPTIED = 4
"""With more empty segments than this, a new segment begins early, so that a purge frees its disk space."""

Payload = list[bytes]
"""The encoded records of one batch, in order."""


class Base(NamedTuple):
    """The state besides messages, for the beginning of a segment."""

    records: Payload
    """Encoded records that rebuild definitions and ends."""
    queues: Collection[bytes]
    """UUIDs of all existing queues."""


class _Write(NamedTuple):
    position: Position
    payload: Payload


class _Roll(NamedTuple):
    number: int
    position: Position
    base: bytes
    keep: frozenset[int]
    """Segments that count once the base is on disk."""
    cleaning: Cleaning | None
    """To be worked on when everything before this segment is sealed."""


class Store(Protocol):
    """What the node needs from a store, which is also a `Gate`."""

    @property
    def applied(self) -> Position: ...

    @property
    def durable(self) -> Position: ...

    @property
    def synced(self) -> int:
        """The highest serial (as `append` returned it) up to which everything is on disk."""

    @property
    def failed(self) -> str | None:
        """Why the node must stop now, as a sentence that says what to do; None if the store works."""

    @property
    def roll_due(self) -> bool:
        """The segment is full: call `roll`."""

    @property
    def stored_bytes(self) -> int:
        """Approximate bytes on disk."""

    @property
    def syncs(self) -> int:
        """How often groups of history were synced."""

    @property
    def notices(self) -> list[str]:
        """What recovery repaired or removed, as sentences for the log."""

    @property
    def progress(self) -> tuple[int, int]:
        """During recovery: bytes read, and bytes to be read."""

    def recover(self) -> Iterator[tuple[Position, Sequence[Record]]]: ...

    def start(
        self, base: Base, on_durable: Callable[[], None] | None = None, since: Position = ORIGIN
    ) -> None: ...

    def append(self, position: Position, payload: Payload, records: Iterable[Record] = ()) -> int: ...

    def roll(self, base: Base) -> None: ...

    def close(self) -> None: ...


class SegmentStore:
    """A segment log with a sync driver, and the index of its live messages.

    Life cycle: `recover()` to its end, `start(...)`, then `append`, with `roll` when due, and `close()`.
    """

    def __init__(self, log: SegmentLog, driver: SyncDriver) -> None:
        self._log = log
        self._driver = driver
        self._lock = threading.Lock()
        self._pending: list[_Write | _Roll] = []
        self._last = ORIGIN
        self._serial = 0
        self._in_flight: tuple[Position, int] | None = None
        self._keep: frozenset[int] | None = None
        self._job: Cleaning | None = None
        self._durable = ORIGIN
        self._synced = 0
        self.syncs = 0
        self._failed: str | None = None
        self._started = False
        self._on_durable: Callable[[], None] | None = None
        self.index = LiveIndex()
        """Only the broker's thread reads and changes it."""
        self._current = 0
        """The segment that `append` writes to."""
        self._base_size = 0
        self._read = 0
        self._highest = 0
        self._cleaning: Cleaning | None = None

    # -- the gate ------------------------------------------------------------------------------------------

    @property
    def applied(self) -> Position:
        """FOREVER: a store does not delay anything that waits only for memory."""
        return FOREVER

    @property
    def durable(self) -> Position:
        """The highest position up to which everything appended is synced."""
        return self._durable

    @property
    def synced(self) -> int:
        return self._synced

    @property
    def failed(self) -> str | None:
        return self._failed

    @property
    def stored_bytes(self) -> int:
        return sum(use.size for use in self.index.segments.values())

    @property
    def notices(self) -> list[str]:
        return self._log.notices

    @property
    def progress(self) -> tuple[int, int]:
        return self._read, self._log.to_read

    # -- start ---------------------------------------------------------------------------------------------

    def recover(self) -> Iterator[tuple[Position, Sequence[Record]]]:
        """All held state, as records in an order that applies. A torn tail is cut and noted; other damage
        raises StoreCorrupt.

        Read it to its end before any other call, because the cut happens there.
        """
        base: list[tuple[Position, Sequence[Record]]] = []
        lacking: list[tuple[Position, Sequence[Record]]] = []
        older: dict[int, LiveRanges] = {}

        def live(found: StoredBatch) -> Collection[int]:
            self.index, records = decode_base(found.payload)
            base.append((found.position, records))
            lacking.append((found.position, list(filter(lacks, records))))
            older.update(self.index.by_segment(self.index.live_segments()))
            return older.keys()

        number = 0
        try:
            for number, batch in self._log.recover(live):
                yield from base
                base.clear()
                size = FRAME_HEAD_BYTES + len(batch.payload)
                self._read += size
                if number not in older:  # for older segments the base has the sizes
                    self._grown(number, size)
                    yield from lacking
                    lacking.clear()
                yield batch.position, self._records(number, batch, older.get(number))
        except CorruptRecord as error:
            path = self._log.reader.path(number) if number else self._log.current_path
            raise StoreCorrupt(path, 0, f"its records cannot be read ({error})") from error
        yield from (*base, *lacking)
        self._highest = self._log.number

    def _records(self, number: int, batch: StoredBatch, live: LiveRanges | None) -> Sequence[Record]:
        """The live records of an older segment; all records of the newest, or of a store without bases."""
        if live is None:
            records = decode_records(batch.payload)
            self.index.records(number, records)
            return records
        return [record for run in runs_of(batch.payload) for record in live_records(run, live)]

    def start(
        self, base: Base, on_durable: Callable[[], None] | None = None, since: Position = ORIGIN
    ) -> None:
        """Begin to sync, with a new segment. `since` is the restored position; it counts as durable.

        `on_durable` is called on the driver's thread after each move of `durable` and after a failure.
        """
        self._on_durable = on_durable
        self._durable = self._last = max(since, self._log.last_position)
        self._started = True
        self._driver.start(self)
        self.roll(base)

    # -- the broker's thread -------------------------------------------------------------------------------

    def append(self, position: Position, payload: Payload, records: Iterable[Record] = ()) -> int:
        """Take one batch. Returns its serial, to compare with `synced` (positions may repeat).

        `records`: the records encoded in `payload`. Never blocks on the disk, and never raises because of it.
        A batch without payload is not written; it is durable as soon as everything before it is. After a
        failure nothing is kept. Raises StoreMisuse if the position goes back.
        """
        if position < self._last:
            raise StoreMisuse(f"position went back from {self._last} to {position}")
        if not self._started:
            raise StoreMisuse("append to a store that has not started")
        if payload:
            self.index.records(self._current, records)
            self._grown(self._current, FRAME_HEAD_BYTES + sum(map(len, payload)))
        with self._lock:
            self._serial = serial = self._serial + 1
            self._last = position
            if self._failed is not None:
                return serial
            if payload:
                self._pending.append(_Write(position, payload))
            else:
                if not self._pending and self._in_flight is None:
                    self._durable, self._synced = position, serial
                return serial
        self._driver.wake()
        return serial

    @property
    def roll_due(self) -> bool:
        if (self._cleaning is not None and self._cleaning.done) or len(self.index.emptied) > _EMPTIED:
            return True
        # A base larger than its segment must not be written for every batch.
        size = self.index.segments[self._current].size - self._base_size
        return size >= max(self._log.segment_bytes, self._base_size)

    def roll(self, base: Base) -> None:
        """Begin a new segment. `base`: the state after all batches appended so far."""
        if not self._started:
            raise StoreMisuse("a store that has not started has no segment")
        index, cleaning = self.index, self._cleaning
        index.forget_all_but(base.queues)
        if cleaning is not None and cleaning.over:
            if cleaning.done:
                index.moved(cleaning.segments, cleaning.number, cleaning.size)
            self._cleaning = cleaning = None
        keep = index.live_segments()
        raw = encode_base(index, base.records)
        if self._current in index.segments:
            self._grown(self._current, FRAME_HEAD_BYTES)  # its seal
        self._current = self._highest = number = self._highest + 1
        if cleaning is None:
            cleaning = self._plan()
        if cleaning is not None:
            keep |= {cleaning.number, *cleaning.segments}
        index.segments = {n: use for n, use in index.segments.items() if n in keep}
        index.emptied.clear()
        self._base_size = HEADER_BYTES + FRAME_HEAD_BYTES + len(raw)
        self._grown(number, self._base_size)
        with self._lock:
            if self._failed is not None:
                return
            self._pending.append(_Roll(number, self._last, raw, frozenset({number, *keep}), cleaning))
            self._cleaning = cleaning
        self._driver.wake()

    def _plan(self) -> Cleaning | None:
        """A cleaning worth starting now, or None."""
        chosen = choose(self.index, self._current, self._log.segment_bytes)
        if not chosen:
            return None
        self._highest += 1
        return Cleaning(self._log, self._highest, self._last, self.index.by_segment(chosen))

    def _grown(self, number: int, size: int) -> None:
        use = self.index.segments.get(number)
        if use is None:
            use = self.index.segments[number] = SegmentUse()
        use.size += size

    def close(self) -> None:
        """Write and sync pending batches (unless failed), which blocks, and close the files."""
        if self._started:
            self._driver.stop()
            while self._failed is None and self.write_group():
                self.sync_group()
                self.tidy()
        try:
            self._log.close(clean=self._started and self._failed is None)
        except (OSError, StoreUnusable) as error:
            self._fail("seal", error)

    # -- the driver's thread -------------------------------------------------------------------------------

    def write_group(self) -> bool:
        """Hand all pending batches to the kernel. False if there was nothing to do. One caller at a time."""
        with self._lock:
            if self._failed is not None:
                return False
            if self._in_flight is not None:
                raise StoreMisuse("a sync is outstanding already")
            if not self._pending:
                return False
            group, self._pending = self._pending, []
            self._in_flight = (self._last, self._serial)
        try:
            for kind, items in groupby(group, type):
                if kind is _Write:
                    self._log.write(items)  # type: ignore[arg-type]
                    continue
                for roll in items:
                    if isinstance(roll, _Roll):
                        self._log.roll(roll.number, roll.position, roll.base)
                        self._keep, self._job = roll.keep, roll.cleaning
        except Exception as error:  # a defect must stop the node too, not only this thread
            self._fail("write", error)
            return False
        return True

    def is_light(self, most: int) -> bool:
        """Whether `write_group` would write at most so many octets, and nothing would remain to be tidied."""
        octets = 0
        with self._lock:
            for one in self._pending:
                if type(one) is not _Write:
                    return False
                octets += sum(map(len, one.payload))
        return octets <= most and self._keep is None and (self._job is None or self._job.over)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to write and nothing to tidy."""
        with self._lock:
            return not self._pending and self._keep is None and (self._job is None or self._job.over)

    @property
    def descriptor(self) -> int:
        """Of the file to be synced after `write_group`; -1 if it has none."""
        return self._log.descriptor

    def sync_group(self) -> None:
        """Sync what `write_group` wrote, then move `durable` and call `on_durable`."""
        try:
            self._log.sync()
        except Exception as error:
            self._fail("sync", error)
            return
        self._moved()

    def group_synced(self, result: int) -> None:
        """What `write_group` wrote has been synced by way of `descriptor`. `result`: 0, or the negative
        number of an error."""
        if result < 0:
            self._fail("sync", OSError(-result, os.strerror(-result)))
            return
        self._log.was_synced()
        self._moved()

    def _moved(self) -> None:
        with self._lock:
            if self._in_flight is None:
                raise StoreMisuse("there is no write to sync")
            self._durable, self._synced = self._in_flight
            self._in_flight = None
            self.syncs += 1
            if not self._pending:  # batches that arrived meanwhile had no payload
                self._durable, self._synced = self._last, self._serial
        if self._on_durable is not None:
            self._on_durable()

    def tidy(self) -> bool:
        """After a sync: remove segments that no longer count, and copy a piece of the current cleaning.
        Returns whether work is left."""
        keep, self._keep = self._keep, None
        job = self._job
        if self._failed is not None:
            return False
        try:
            if keep is not None:
                self._log.retain(keep)
            return job is not None and not job.over and job.step()
        except Exception as error:
            self._fail("clean up", error)
            return False

    def _fail(self, what: str, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) and error.strerror else repr(error)
        with self._lock:
            self._pending.clear()
            self._failed = (
                f"the store could not {what} {self._log.current_path}: {why}; this node stops and confirms "
                f"nothing more. See to the disk (space, health), then start the node again"
            )
        if self._on_durable is not None:
            self._on_durable()


def open_store(directory: str, *, segment_bytes: int = SEGMENT_BYTES) -> SegmentStore:
    """The store of a real node: the kernel's files and a sync thread. Nothing is touched before `recover`."""
    salt = int.from_bytes(os.urandom(8), "little")
    log = SegmentLog(RealFiles(), directory, salt=salt, segment_bytes=segment_bytes)
    return SegmentStore(log, ThreadSync())


class NullStore:
    """Stores nothing and delays nothing. For a node without durability, and for tests."""

    applied = FOREVER
    durable = FOREVER
    failed: str | None = None
    roll_due = False
    stored_bytes = 0
    syncs = 0
    progress = (0, 0)

    def __init__(self) -> None:
        self.synced = 0
        self.notices: list[str] = []

    def recover(self) -> Iterator[tuple[Position, Sequence[Record]]]:
        return iter(())

    def start(
        self, base: Base, on_durable: Callable[[], None] | None = None, since: Position = ORIGIN
    ) -> None:
        """Does nothing."""

    def append(self, position: Position, payload: Payload, records: Iterable[Record] = ()) -> int:
        self.synced += 1
        return self.synced

    def roll(self, base: Base) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
