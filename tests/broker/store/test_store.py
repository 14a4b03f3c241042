"""The store as a gate: when `durable` moves, when it stops for good; nothing blocks meanwhile."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from broker.model.history.completion import Gate
from broker.model.history.records import EnqueueRun, RawRun
from broker.model.values import FOREVER, ORIGIN, Position
from broker.store.errors import StoreCorrupt, StoreMisuse
from broker.store.store import Base, NullStore, SegmentStore, Store
from broker.store.store import open_store as open_real_store
from broker.store.sync import ThreadSync
from tests.broker.store.batches import (
    NO_BASE,
    QUEUE,
    append,
    dequeue,
    enqueue,
    message,
    messages,
    open_log,
    open_store,
)
from tests.simulation.harness.machines.virtual_disk import VirtualDisk


def test_durable_moves_when_the_sync_has_returned_and_not_before() -> None:
    store, driver, _ = open_store(VirtualDisk())
    gate: Gate = store
    kind: Store = store
    assert kind is gate and gate.applied == FOREVER
    append(store, 1, enqueue(1))
    assert store.durable == ORIGIN
    assert driver.write()
    assert store.durable == ORIGIN
    driver.sync()
    assert store.durable == Position(1, 1)


def test_batches_gather_while_a_sync_is_outstanding() -> None:
    disk = VirtualDisk()
    store, driver, _ = open_store(disk)
    append(store, 1, enqueue(1))
    driver.write()
    for n in (2, 3, 4):
        append(store, n, enqueue(n))
    assert not driver.write()
    driver.sync()
    assert store.durable == Position(1, 1)
    before = disk.operations
    assert driver.run()
    assert disk.operations == before + 2  # one write, one sync
    assert store.durable == Position(1, 4)
    assert not driver.run()


def test_a_batch_without_payload_is_not_written_and_keeps_its_order() -> None:
    store, driver, _ = open_store(VirtualDisk())
    driver.run()
    append(store, 1)
    assert store.durable == Position(1, 1)
    append(store, 2, enqueue(2))
    append(store, 3)
    assert store.durable == Position(1, 1)
    driver.write()
    append(store, 4)
    assert store.durable == Position(1, 1)
    driver.sync()
    assert store.durable == Position(1, 4)
    append(store, 5)
    assert store.durable == Position(1, 5)
    append(store, 6, enqueue(6))
    driver.write()
    append(store, 7)
    append(store, 8, enqueue(8))
    append(store, 9)
    driver.sync()
    assert store.durable == Position(1, 6)
    driver.run()
    assert store.durable == Position(1, 9)


def test_serials_tell_batches_of_one_position_apart() -> None:
    store, driver, _ = open_store(VirtualDisk())
    one = append(store, 1, enqueue(1))
    driver.run()
    two = append(store, 1, enqueue(2))
    assert store.durable == Position(1, 1)
    assert one <= store.synced < two
    driver.run()
    assert store.synced == two


def test_a_position_that_goes_back_is_a_defect() -> None:
    store, _, _ = open_store(VirtualDisk())
    append(store, 2, enqueue(2))
    with pytest.raises(StoreMisuse):
        append(store, 1, enqueue(1))


def test_a_store_begins_at_the_position_it_restored() -> None:
    disk = VirtualDisk()
    store, _, _ = open_store(disk)
    append(store, 5, enqueue(1))
    store.close()
    again, _, found = open_store(disk)
    assert messages(found) == [message(1)]
    assert again.durable == Position(1, 5)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_or_sync_is_final(operation: str) -> None:
    """Invariant 25: it never confirms again, even if the disk recovers."""
    disk = VirtualDisk()
    store, driver, _ = open_store(disk)
    told: list[str | None] = []
    store._on_durable = lambda: told.append(store.failed)
    append(store, 1, enqueue(1))
    driver.run()
    disk.failing[operation] = errno.EIO
    append(store, 2, enqueue(2))
    driver.run()
    disk.failing.clear()
    assert store.failed is not None
    assert f"could not {operation} " in store.failed and "then start the node again" in store.failed
    assert "\n" not in store.failed
    assert told == [None, store.failed]
    append(store, 3, enqueue(3))
    append(store, 4)
    store.roll(NO_BASE)
    driver.run()
    assert store.durable == Position(1, 1)
    store.close()
    assert store.durable == Position(1, 1)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failure_ends_the_thread_of_the_store_without_a_word(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node reports the reason in one line; a traceback of the thread would hide it."""
    faults: list[object] = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    disk, driver = VirtualDisk(), ThreadSync()
    store = SegmentStore(open_log(disk), driver)
    assert not list(store.recover())
    store.start(NO_BASE)
    failed = threading.Event()
    store._on_durable = lambda: failed.set() if store.failed is not None else None
    append(store, 1, enqueue(1))
    disk.failing[operation] = errno.EIO
    for n in range(2, 50):
        append(store, n, enqueue(n))
        store.roll(NO_BASE)
    assert failed.wait(10)
    append(store, 50, enqueue(50))
    assert driver._thread is not None
    driver._thread.join(10)
    assert not driver._thread.is_alive() and not faults and store.failed is not None


def test_a_full_disk_is_final_and_the_next_start_has_all_durable_data() -> None:
    disk = VirtualDisk(room=1500)
    store, driver, _ = open_store(disk)
    n = 0
    while store.failed is None:
        n += 1
        append(store, n, enqueue(n))
        driver.run()
    assert n > 3 and "No space left" in store.failed
    durable = store.durable
    store.close()
    disk.room = None
    _, _, found = open_store(disk)
    assert durable.n == n - 1
    assert messages(found)[: n - 1] == [message(i) for i in range(1, n)]


def test_a_disk_failure_at_shutdown_is_reported_too() -> None:
    disk = VirtualDisk()
    store, _, _ = open_store(disk)
    append(store, 1, enqueue(1))
    disk.failing["sync"] = errno.EIO
    store.close()
    assert store.failed is not None and store.durable == ORIGIN


def test_close_makes_pending_batches_durable() -> None:
    disk = VirtualDisk()
    store, driver, _ = open_store(disk)
    append(store, 1, enqueue(1))
    driver.write()
    append(store, 2, enqueue(2))
    store.close()
    disk.power_loss()
    assert messages(open_store(disk)[2]) == [message(1), message(2)]


def test_the_store_may_not_be_used_out_of_order() -> None:
    store, driver, _ = open_store(VirtualDisk())
    driver.run()
    with pytest.raises(StoreMisuse):
        store.sync_group()
    fresh = open_real_store("/nowhere")
    with pytest.raises(StoreMisuse):
        fresh.append(Position(1, 1), [b""])
    with pytest.raises(StoreMisuse):
        fresh.roll(NO_BASE)


def test_whole_bytes_that_are_no_records_are_damage() -> None:
    disk = VirtualDisk()
    store, driver, _ = open_store(disk)
    store.append(Position(1, 1), [b"no record"])
    driver.run()
    with pytest.raises(StoreCorrupt, match=r"segment is damaged.*its records cannot be read"):
        open_store(disk)
    other = VirtualDisk()
    store, driver, _ = open_store(other, base=Base([b"no record"], [QUEUE]))
    driver.run()
    with pytest.raises(StoreCorrupt, match="records cannot be read"):
        open_store(other)


def test_real_files_and_a_real_thread(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "store"
    store = open_real_store(str(directory), segment_bytes=5000)
    assert list(store.recover()) == []
    reached = threading.Event()
    last = Position(1, 500)
    store.start(NO_BASE, lambda: reached.set() if store.durable >= last else None)
    for n in range(1, 501):
        append(store, n, enqueue(n))
    assert reached.wait(30)
    assert store.failed is None
    append(store, 501, enqueue(501), dequeue(1, 400))
    store.close()
    again = open_real_store(str(directory), segment_bytes=5000)
    found = [record for _, records in again.recover() for record in records]
    assert messages(found) == [message(n) for n in range(401, 502)]
    assert again.notices == []
    again.start(NO_BASE)
    again.close()
    assert sum(file.stat().st_size for file in directory.iterdir()) < 40_000
    third = open_real_store(str(directory))
    assert messages(record for _, records in third.recover() for record in records) == messages(found)


def test_a_real_disk_that_refuses_stops_the_store(tmp_path: Path) -> None:
    store = open_real_store(str(tmp_path))
    assert list(store.recover()) == []
    told = threading.Event()
    tmp_path.rmdir()
    store.start(NO_BASE, told.set)
    append(store, 1, enqueue(1))
    assert told.wait(30)
    assert store.failed is not None and "No such file" in store.failed
    store.close()


def test_the_null_store_holds_nobody() -> None:
    store: Store = NullStore()
    gate: Gate = NullStore()
    assert list(store.recover()) == []
    store.start(NO_BASE)
    assert store.append(Position(1, 1), [b"x"]) == store.synced
    assert gate.durable == FOREVER and not store.roll_due
    store.roll(NO_BASE)
    store.close()


def test_runs_come_back_uncut() -> None:
    disk = VirtualDisk()
    store, driver, _ = open_store(disk)
    append(store, 1, enqueue(1, 3))
    driver.run()
    (run,) = open_store(disk)[2]
    assert isinstance(run, EnqueueRun) and isinstance(run.raws, RawRun)
