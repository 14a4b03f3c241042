"""The store: where durable history goes, and the gate that says how far it is safely there.

Role: takes each tick's batch from the broker's thread without ever blocking it, writes and syncs groups of
batches (one sync outstanding, the next group gathers meanwhile), and moves `durable` when a sync has
returned; begins a new segment when one is full, and gives back those of which nothing is held any more.
`SegmentStore` is a `Gate`. Owner: the node. Callers: the node on the broker's thread (`append`, `roll`,
`durable`, `failed`); a `SyncDriver` on its own thread (`write_group`, `sync_group`, `tidy`); nothing here
calls back but `on_durable`.

A failed write or sync is final (fsync may have dropped the very pages it could not write): `failed` is set,
`durable` never moves again, and the node stops.
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
"""A new segment is begun early when more than so many hold nothing any more: a purge gives its space back."""

Payload = list[bytes]
"""The encoded records of one batch, in order."""


class Base(NamedTuple):
    """What there is besides messages, for the beginning of a segment."""

    records: Payload
    """Encoded; they rebuild definitions and ends."""
    queues: Collection[bytes]
    """UUIDs of all queues that there are."""


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
    """To be worked on once all before this segment is sealed."""


class Store(Protocol):
    """What the node asks of a store. It is a `Gate` too."""

    @property
    def applied(self) -> Position: ...

    @property
    def durable(self) -> Position: ...

    @property
    def synced(self) -> int:
        """Highest serial (as `append` returned it) up to which all is on disk."""

    @property
    def failed(self) -> str | None:
        """Why the node must stop now, as a sentence that says what to do; None while all is well."""

    @property
    def roll_due(self) -> bool:
        """The segment is full: give `roll` what the next one begins with."""

    @property
    def stored_bytes(self) -> int:
        """About how many bytes of disk it takes."""

    @property
    def notices(self) -> list[str]:
        """What recovery repaired or removed, as sentences for the log."""

    @property
    def progress(self) -> tuple[int, int]:
        """While it recovers: bytes read, and bytes to be read."""

    def recover(self) -> Iterator[tuple[Position, Sequence[Record]]]: ...

    def start(
        self, base: Base, on_durable: Callable[[], None] | None = None, since: Position = ORIGIN
    ) -> None: ...

    def append(self, position: Position, payload: Payload, records: Iterable[Record] = ()) -> int: ...

    def roll(self, base: Base) -> None: ...

    def close(self) -> None: ...


class SegmentStore:
    """A segment log behind a sync driver, and the index of what is live in it.

    Life: `recover()` to its end, `start(...)`, then `append` for ever, and `roll` when it is due, `close()`.
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
        self._failed: str | None = None
        self._started = False
        self._on_durable: Callable[[], None] | None = None
        self.index = LiveIndex()
        """The broker's thread alone looks at it and changes it."""
        self._current = 0
        """The segment of what is appended now."""
        self._base_size = 0
        self._read = 0
        self._highest = 0
        self._cleaning: Cleaning | None = None

    # -- the gate ------------------------------------------------------------------------------------------

    @property
    def applied(self) -> Position:
        """A store holds back nobody who waits for memory only."""
        return FOREVER

    @property
    def durable(self) -> Position:
        """Highest position such that everything appended up to it is synced."""
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
        """All that is held, as records in an order that applies. A torn tail is cut and noted; damage
        elsewhere raises StoreCorrupt.

        To be read to its end before anything else: the cut happens there.
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
                if number not in older:  # the base says how long those are
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
        """Of an older segment what is live; of the newest, or of a store without bases, all."""
        if live is None:
            records = decode_records(batch.payload)
            self.index.records(number, records)
            return records
        return [record for run in runs_of(batch.payload) for record in live_records(run, live)]

    def start(
        self, base: Base, on_durable: Callable[[], None] | None = None, since: Position = ORIGIN
    ) -> None:
        """Begin to sync, with a new segment. `since` is the restored position; it counts as durable.

        `on_durable` is called, on the driver's thread, after each move of `durable` and after a failure.
        """
        self._on_durable = on_durable
        self._durable = self._last = max(since, self._log.last_position)
        self._started = True
        self._driver.start(self)
        self.roll(base)

    # -- the broker's thread -------------------------------------------------------------------------------

    def append(self, position: Position, payload: Payload, records: Iterable[Record] = ()) -> int:
        """Take one batch; return its serial, for those who wait for `synced` (positions may repeat).

        `records`: what `payload` is of. Never blocks on the disk and never raises for it. A batch without
        payload makes no write; it is durable as soon as all before it is. After a failure nothing is kept.
        StoreMisuse if the position goes back.
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
        # A base that outgrows its segment is not to be written at every batch.
        size = self.index.segments[self._current].size - self._base_size
        return size >= max(self._log.segment_bytes, self._base_size)

    def roll(self, base: Base) -> None:
        """Begin a new segment. `base` is so after all that was appended, and before what will be."""
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
        """What is worth to be cleaned up now."""
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
        """Write and sync what is pending, unless failed; blocks for that, then lets go of the files."""
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

    def sync_group(self) -> None:
        """Sync what `write_group` wrote, then move `durable` and tell."""
        try:
            self._log.sync()
        except Exception as error:
            self._fail("sync", error)
            return
        with self._lock:
            if self._in_flight is None:
                raise StoreMisuse("there is no write to sync")
            self._durable, self._synced = self._in_flight
            self._in_flight = None
            if not self._pending:  # what came meanwhile had no payload
                self._durable, self._synced = self._last, self._serial
        if self._on_durable is not None:
            self._on_durable()

    def tidy(self) -> bool:
        """Give back, after a sync, what counts no more, and copy a piece of what is scattered. Is there
        more to do?"""
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
    """Keeps nothing and holds nobody: for a node without durability, and for tests."""

    applied = FOREVER
    durable = FOREVER
    failed: str | None = None
    roll_due = False
    stored_bytes = 0
    progress = (0, 0)

    def __init__(self) -> None:
        self.synced = 0
        self.notices: list[str] = []

    def recover(self) -> Iterator[tuple[Position, Sequence[Record]]]:
        return iter(())

    def start(
        self, base: Base, on_durable: Callable[[], None] | None = None, since: Position = ORIGIN
    ) -> None:
        """Nothing to start."""

    def append(self, position: Position, payload: Payload, records: Iterable[Record] = ()) -> int:
        self.synced += 1
        return self.synced

    def roll(self, base: Base) -> None:
        """Nothing to begin."""

    def close(self) -> None:
        """Nothing to close."""
