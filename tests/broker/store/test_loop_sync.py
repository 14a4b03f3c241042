"""Syncs by the event loop: what the kernel does, what the thread does, and who is told of a failure."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable
from itertools import count
from math import inf
from pathlib import Path

import pytest

from broker.model.values import Position
from broker.store.files import RealFiles
from broker.store.kernel_sync import KernelSync
from broker.store.segment_log import SegmentLog
from broker.store.store import SegmentStore
from broker.store.sync import CALM, LIGHT, LoopSync
from tests.broker.store.batches import NO_BASE, append, enqueue, open_log
from tests.simulation.harness.machines.virtual_disk import VirtualDisk


class Kernel(KernelSync):
    """A kernel that syncs when the test says so. `told`: the thread is done."""

    def __init__(self) -> None:
        self.results: list[int] = []
        self.submitted = 0
        self.refuses = False
        self.told = threading.Event()

    def submit(self, descriptor: int) -> None:
        if self.refuses:
            raise OSError(errno.EINVAL, "no such operation")
        self.submitted += 1

    @property
    def done(self) -> bool:
        return bool(self.results)

    def result(self) -> int | None:
        return self.results.pop() if self.results else None

    def wait(self) -> int:
        return 0

    def tell(self) -> None:
        self.told.set()


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def started(kernel: Kernel) -> tuple[SegmentStore, Callable[[], None]]:
    """A store with a segment, and what waits for the thread."""
    driver = LoopSync(kernel)
    store = SegmentStore(open_log(VirtualDisk()), driver)
    assert not list(store.recover())

    def by_thread() -> None:
        assert kernel.told.wait(10)
        kernel.told.clear()
        driver.ready()

    store.start(NO_BASE)
    by_thread()
    return store, by_thread


def ready(store: SegmentStore, kernel: Kernel, result: int) -> None:
    kernel.results.append(result)
    assert isinstance(store._driver, LoopSync)
    store._driver.ready()


Started = tuple[SegmentStore, Callable[[], None]]


def test_a_small_group_is_durable_when_the_kernel_says_so(started: Started, kernel: Kernel) -> None:
    store, _ = started
    append(store, 1, enqueue(1))
    append(store, 2, enqueue(2))
    assert store._driver.ready() is None and store.durable < Position(1, 1)  # type: ignore[attr-defined]
    ready(store, kernel, 0)
    assert store.durable == Position(1, 1)
    ready(store, kernel, 0)
    assert store.durable == Position(1, 2) and kernel.submitted == 2 and not kernel.told.is_set()


def test_a_group_waits_for_the_output_that_is_to_leave_before(started: Started, kernel: Kernel) -> None:
    store, _ = started
    driver = store._driver
    assert isinstance(driver, LoopSync)
    driver.after_output = lambda: True
    append(store, 1, enqueue(1))
    assert kernel.submitted == 0
    driver.output_sent()
    append(store, 2, enqueue(2))
    driver.output_sent()
    assert kernel.submitted == 1, "one sync at a time"
    ready(store, kernel, 0)
    assert store.durable == Position(1, 1) and kernel.submitted == 2


def test_a_sync_that_nothing_waits_for_alone_wakes_nobody(started: Started, kernel: Kernel) -> None:
    store, _ = started
    driver = store._driver
    assert isinstance(driver, LoopSync)
    driver.after_output = driver.unnoticed = lambda: True
    watched = [True]
    driver.watch = watched.append
    numbers = count(1)

    def begin() -> Position:
        append(store, number := next(numbers), enqueue(number))
        driver.output_sent()
        return Position(1, number)

    def calm() -> None:
        """Nothing gathers during so many syncs in a row."""
        for taken in count():
            begin()
            ready(store, kernel, 0)
            if not watched[-1]:
                assert taken == CALM - 1
                return

    calm()
    for _ in range(3):
        position = begin()
        assert not watched[-1]
        driver.look()
        assert store.durable < position
        kernel.results.append(0)
        driver.look()
        assert store.durable == position
    begin()
    driver.output_sent()
    assert watched[-1], "a later tick may wait for the disk alone"
    ready(store, kernel, 0)
    calm()
    begin()
    assert not watched[-1]
    append(store, next(numbers), enqueue(9))
    assert watched[-1], "more has gathered, and is to be written at once"
    ready(store, kernel, 0)
    ready(store, kernel, 0)
    driver.unnoticed = lambda: False
    for _ in range(2 * CALM):
        begin()
        ready(store, kernel, 0)
    assert watched[-1]


def test_large_groups_and_new_segments_are_the_work_of_the_thread(started: Started, kernel: Kernel) -> None:
    store, by_thread = started
    append(store, 1, enqueue(1, LIGHT // 8))
    by_thread()
    assert store.durable == Position(1, 1)
    store.roll(NO_BASE)
    append(store, 2, enqueue(LIGHT))
    by_thread()
    assert store.durable == Position(1, 2) and kernel.submitted == 0
    append(store, 3, enqueue(LIGHT + 1))
    assert kernel.submitted == 1


def test_the_thread_syncs_what_the_kernel_does_not_take(started: Started, kernel: Kernel) -> None:
    store, by_thread = started
    kernel.refuses = True
    append(store, 1, enqueue(1))
    by_thread()
    assert store.durable == Position(1, 1) and store.failed is None


def test_the_thread_rests_after_a_slow_write_until_there_is_more(started: Started, kernel: Kernel) -> None:
    store, by_thread = started
    driver = store._driver
    assert isinstance(driver, LoopSync)
    driver._wary_until = inf
    for n in (1, 2):
        append(store, n, enqueue(n))
        by_thread()
        assert store.durable == Position(1, n) and kernel.submitted == 0
        assert not driver._busy, "the thread was woken for nothing"


def test_a_failed_sync_is_final(started: Started, kernel: Kernel) -> None:
    store, _ = started
    told: list[str | None] = []
    store._on_durable = lambda: told.append(store.failed)
    append(store, 1, enqueue(1))
    ready(store, kernel, -errno.EIO)
    append(store, 2, enqueue(2))
    assert store.durable < Position(1, 1) and kernel.submitted == 1
    assert store.failed is not None and "could not sync" in store.failed and "Input/output" in store.failed
    assert told == [store.failed]
    store.close()


def test_closing_waits_for_the_kernel_and_writes_the_rest(started: Started, kernel: Kernel) -> None:
    store, _ = started
    append(store, 1, enqueue(1))
    append(store, 2, enqueue(2))
    store.close()
    assert store.durable == Position(1, 2) and store.failed is None


def test_files_are_synced_by_the_kernel(tmp_path: Path) -> None:
    try:
        kernel = KernelSync()
    except OSError as error:
        pytest.skip(f"no asynchronous I/O here: {error}")
    driver = LoopSync(kernel)
    store = SegmentStore(SegmentLog(RealFiles(), str(tmp_path)), driver)
    assert not list(store.recover())
    store.start(NO_BASE)
    for n in range(1, 20):
        append(store, n, enqueue(n))
        while store.durable < Position(1, n):
            assert select.select([driver], [], [], 10)[0]
            driver.ready()
    store.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernel.submit(-1)
    os.close(kernel.fileno())
    again = SegmentStore(SegmentLog(RealFiles(), str(tmp_path)), LoopSync(Kernel()))
    assert max(position for position, _ in again.recover()) == Position(1, 19)
