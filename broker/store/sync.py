"""Drives the store's syncs: a thread in a real node, explicit calls in a simulation.

Only the driver calls `write_group`, `sync_group` and `tidy`, so at most one sync is outstanding.
"""

from __future__ import annotations

import threading
from typing import Protocol


class SyncWork(Protocol):
    """The store as its driver sees it."""

    @property
    def failed(self) -> str | None: ...

    def write_group(self) -> bool: ...

    def sync_group(self) -> None: ...

    def tidy(self) -> bool: ...


class SyncDriver(Protocol):
    """Runs the work. The broker's thread may call `wake` at any time; it does not block."""

    def start(self, work: SyncWork) -> None: ...

    def wake(self) -> None: ...

    def stop(self) -> None:
        """Return once no work is running and none will be."""


class ThreadSync:
    """One daemon thread: sleeps until woken, then writes, syncs and tidies until nothing is left."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self, work: SyncWork) -> None:
        self._thread = threading.Thread(target=self._run, args=(work,), name="store-sync", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        if not self._event.is_set():
            self._event.set()

    def stop(self) -> None:
        self._stopping = True
        self._event.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, work: SyncWork) -> None:
        while not self._stopping and work.failed is None:
            self._event.wait()
            self._event.clear()
            busy = True
            while busy and not self._stopping and work.failed is None:
                busy = work.write_group()
                if busy:
                    work.sync_group()
                busy = work.tidy() or busy


class ManualSync:
    """The caller syncs: `run()` for a whole round, or `write()` and later `sync()`, to crash in between."""

    def __init__(self) -> None:
        self._work: SyncWork | None = None
        self.wanted = False
        """The store has something to write."""
        self.writing = False
        """A write is not synced yet."""

    def start(self, work: SyncWork) -> None:
        self._work = work

    def wake(self) -> None:
        self.wanted = True

    def stop(self) -> None:
        if self.writing:
            self.sync()

    def write(self) -> bool:
        """Write pending batches to the (virtual) kernel. False if there are none, or a sync is due first."""
        if self._work is None or self.writing or not self.wanted:
            return False
        self.wanted = False
        self.writing = self._work.write_group()
        return self.writing

    def sync(self) -> None:
        """Finish the outstanding write, if there is one."""
        if self._work is not None and self.writing:
            self.writing = False
            self._work.sync_group()
            self._work.tidy()

    def run(self) -> bool:
        """Run one whole round. False if there was nothing to do."""
        if not self.writing and not self.write():
            return False
        self.sync()
        return True
