"""Drives the store's syncs: the event loop or a thread in a real node, explicit calls in a simulation.

Only the driver calls `write_group`, `sync_group`, `group_synced` and `tidy`, so at most one sync is
outstanding.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.store.kernel_sync import KernelSync

LIGHT = 256 << 10
"""Most octets that the broker's thread writes itself."""
_SLOW, _WARY = 0.005, 1.0
"""Seconds that such a write may take; and for how long a thread writes instead after a slower one."""
CALM = 2
"""After so many syncs in a row during which nothing gathered, the next one wakes nobody."""


class SyncWork(Protocol):
    """The store as its driver sees it."""

    @property
    def failed(self) -> str | None: ...

    def write_group(self) -> bool: ...

    def is_light(self, most: int) -> bool: ...

    @property
    def idle(self) -> bool: ...

    @property
    def descriptor(self) -> int: ...

    def sync_group(self) -> None: ...

    def group_synced(self, result: int) -> None: ...

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


class LoopSync:
    """Small groups are written on the broker's thread, and the kernel syncs them meanwhile. New segments,
    large groups and cleaning block for longer, so a thread does all of that, until nothing is left.

    The owner calls `ready` on the broker's thread when `fileno()` is readable, as long as `watch` says so.
    A sync that nothing waits for alone, such as one that ends before the backups have answered, needs no
    wake-up of its own: the owner calls `look` first in each tick.
    """

    def __init__(self, kernel: KernelSync) -> None:
        self._kernel = kernel
        self._work: SyncWork | None = None
        self._thread: threading.Thread | None = None
        self._handed_over = threading.Event()
        self._busy = False
        """A group is being synced by the kernel, or the thread is at work."""
        self._by_thread = self._thread_done = False
        self._unsynced = False
        """A group was written, and the thread has to sync it."""
        self.after_output: Callable[[], bool] = lambda: False
        """Whether a tick's output goes first, as where backups wait for it."""
        self._due = False
        """Work has gathered, and waits for that."""
        self.unnoticed: Callable[[], bool] = lambda: False
        """Whether the end of a sync that begins now may go unnoticed until the next tick."""
        self.watch: Callable[[bool], None] = lambda on: None
        """Called with whether the owner should wait for `fileno()`."""
        self._watched = False
        self._calm = 0
        """The latest syncs during which nothing gathered, and for which nothing else waited."""
        self._stopping = False
        self._wary_until = 0.0

    def fileno(self) -> int:
        return self._kernel.fileno()

    def start(self, work: SyncWork) -> None:
        self._work = work
        self._thread = threading.Thread(target=self._run, args=(work,), name="store-sync", daemon=True)
        self._thread.start()
        self._watch(True)

    def wake(self) -> None:
        if self._busy:
            self._calm = 0
            self._watch(True)
        elif self._work is not None:
            if self.after_output():
                self._due = True
            else:
                self._begin(self._work)

    def look(self) -> None:
        """Call it first in a tick: a sync that wakes nobody may be done."""
        if self._busy and not self._watched and self._kernel.done:
            self.ready()

    def output_sent(self) -> None:
        """Call it when the output of a tick has been handed to the kernel."""
        if self._busy:  # this tick did not begin the sync, so what it brought may wait for the disk
            self._calm = 0
            self._watch(True)
        elif self._due and self._work is not None:
            self._begin(self._work)
        self._due = False

    def _watch(self, on: bool) -> None:
        if on is not self._watched:
            self._watched = on
            self.watch(on)

    def ready(self) -> None:
        """A sync of the kernel, or the thread, may be done."""
        work = self._work
        if work is None or self._stopping:
            return
        result = self._kernel.result()
        if self._by_thread:
            if not self._thread_done:
                return
            self._by_thread = self._thread_done = False
        elif result is None:
            return
        else:
            work.group_synced(result)
        self._busy = False
        self._calm += 1
        self._begin(work)

    def stop(self) -> None:
        self._stopping = True
        self._handed_over.set()
        if self._thread is not None:
            self._thread.join()
        if self._busy and not self._by_thread and self._work is not None:
            self._work.group_synced(self._kernel.wait())

    def _begin(self, work: SyncWork) -> None:
        """Work on what has gathered."""
        if self._stopping or work.failed is not None:
            return
        began = time.monotonic()
        if began < self._wary_until or not work.is_light(LIGHT):
            if not work.idle:  # or the thread and this one would wake each other until then
                self._hand_over()
            return
        if not work.write_group():
            return
        self._busy = True
        if time.monotonic() - began > _SLOW:
            self._wary_until = began + _WARY
        self._watch(self._calm < CALM or not self.unnoticed())
        try:
            self._kernel.submit(work.descriptor)
        except OSError:  # a file system without asynchronous sync, or too many requests in the system
            self._unsynced = True
            self._wary_until = began + _WARY
            self._hand_over()

    def _hand_over(self) -> None:
        self._watch(True)
        self._busy = self._by_thread = True
        self._handed_over.set()

    def _run(self, work: SyncWork) -> None:
        while True:
            self._handed_over.wait()
            self._handed_over.clear()
            if self._unsynced:
                self._unsynced = False
                work.sync_group()
            if self._stopping or work.failed is not None:
                return
            busy = True
            while busy and not self._stopping and work.failed is None:
                busy = work.write_group()
                if busy:
                    work.sync_group()
                busy = work.tidy() or busy
            self._thread_done = True
            self._kernel.tell()


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
