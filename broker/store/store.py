"""The store: where durable history goes, and the gate that says how far it is safely there.

Role: takes each tick's batch from the broker's thread without ever blocking it, writes and syncs groups of
batches (one sync outstanding, the next group gathers meanwhile), and moves `durable` when a sync has
returned. `SegmentStore` is a `hooks.Gate`. Owner: the node. Callers: the node on the broker's thread
(`append`, `durable`, `failed`); a `SyncDriver` on its own thread (`write_group`, `sync_group`); nothing here
calls back but `on_durable`.

A failed write or sync is final (fsync may have dropped the very pages it could not write): `failed` is set,
`durable` never moves again, and the node stops.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from broker.model.values import FOREVER, ORIGIN, Position
from broker.store.errors import StoreMisuse
from broker.store.files import RealFiles
from broker.store.segment_log import SEGMENT_BYTES, SegmentLog, StoredBatch
from broker.store.sync import SyncDriver, ThreadSync

Payload = list[bytes]
"""The encoded records of one batch, in order."""


class Store(Protocol):
    """What the node asks of a store. It is a `broker.hooks.Gate` too."""

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

    def recover(self) -> Iterator[StoredBatch]: ...

    def rewrite(self, batches: Iterable[tuple[Position, Payload]]) -> None: ...

    def start(self, on_durable: Callable[[], None] | None = None, since: Position = ORIGIN) -> None: ...

    def append(self, position: Position, payload: Payload) -> int: ...

    def close(self) -> None: ...


class SegmentStore:
    """A segment log behind a sync driver.

    Life: `recover()` to its end, optionally `rewrite(...)`, `start(...)`, then `append` for ever, `close()`.
    """

    def __init__(self, log: SegmentLog, driver: SyncDriver) -> None:
        self._log = log
        self._driver = driver
        self._lock = threading.Lock()
        self._pending: list[tuple[Position, Payload]] = []
        self._last = ORIGIN
        self._serial = 0
        self._in_flight: tuple[Position, int] | None = None
        self._durable = ORIGIN
        self._synced = 0
        self._failed: str | None = None
        self._started = False
        self._on_durable: Callable[[], None] | None = None

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
        """Length of all segments together; shrinks only when the node is started again."""
        return self._log.stored_bytes

    @property
    def notices(self) -> list[str]:
        """What recovery repaired or removed, as sentences for the log."""
        return self._log.notices

    # -- start ---------------------------------------------------------------------------------------------

    def recover(self) -> Iterator[StoredBatch]:
        """All batches in order. A torn tail is cut and noted; damage elsewhere raises StoreCorrupt.

        To be read to its end before anything else: the cut happens there.
        """
        return self._log.recover()

    def rewrite(self, batches: Iterable[tuple[Position, Payload]]) -> None:
        """Replace all that is stored by `batches`, atomically and durably; only between recovery and start.

        An empty payload is kept too: it is how a node without messages remembers its position. Several
        batches may share one position. Blocks; raises StoreUnusable.
        """
        if self._started:
            raise StoreMisuse("rewrite is only for a store that has not started")
        self._log.rewrite(batches)

    def start(self, on_durable: Callable[[], None] | None = None, since: Position = ORIGIN) -> None:
        """Begin to sync. `since` is the restored position; it counts as durable.

        `on_durable` is called, on the driver's thread, after each move of `durable` and after a failure.
        """
        self._on_durable = on_durable
        self._durable = self._last = max(since, self._log.last_position)
        self._started = True
        self._driver.start(self)

    # -- the broker's thread -------------------------------------------------------------------------------

    def append(self, position: Position, payload: Payload) -> int:
        """Take one batch; return its serial, for those who wait for `synced` (positions may repeat).

        Never blocks on the disk and never raises for it. A batch without payload makes no write; it is
        durable as soon as all before it is. After a failure nothing is kept. StoreMisuse if the position goes
        back.
        """
        if position < self._last:
            raise StoreMisuse(f"position went back from {self._last} to {position}")
        if not self._started:
            raise StoreMisuse("append to a store that has not started")
        with self._lock:
            self._serial = serial = self._serial + 1
            self._last = position
            if self._failed is not None:
                return serial
            if payload:
                self._pending.append((position, payload))
            else:
                if not self._pending and self._in_flight is None:
                    self._durable, self._synced = position, serial
                return serial
        self._driver.wake()
        return serial

    def close(self) -> None:
        """Write and sync what is pending, unless failed; blocks for that, then lets go of the files."""
        if self._started:
            self._driver.stop()
            while self._failed is None and self.write_group():
                self.sync_group()
        try:
            self._log.close(clean=self._started and self._failed is None)
        except OSError as error:
            self._fail("seal", error)

    # -- the driver's thread -------------------------------------------------------------------------------

    def write_group(self) -> bool:
        """Hand all pending batches to the kernel. False if there was nothing to do. One caller at a time."""
        with self._lock:
            if self._in_flight is not None:
                raise StoreMisuse("a sync is outstanding already")
            if not self._pending or self._failed is not None:
                return False
            group, self._pending = self._pending, []
            self._in_flight = (self._last, self._serial)
        try:
            self._log.write(group)
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

    def __init__(self) -> None:
        self.synced = 0

    def recover(self) -> Iterator[StoredBatch]:
        return iter(())

    def rewrite(self, batches: Iterable[tuple[Position, Payload]]) -> None:
        for _ in batches:
            pass

    def start(self, on_durable: Callable[[], None] | None = None, since: Position = ORIGIN) -> None:
        """Nothing to start."""

    def append(self, position: Position, payload: Payload) -> int:
        self.synced += 1
        return self.synced

    def close(self) -> None:
        """Nothing to close."""
