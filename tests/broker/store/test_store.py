"""The store as a gate: when `durable` moves, when it never moves again; nobody is blocked meanwhile."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from broker.hooks import Gate
from broker.model.values import FOREVER, ORIGIN, Position
from broker.store.errors import StoreMisuse
from broker.store.segment_log import StoredBatch
from broker.store.store import NullStore, Store
from broker.store.store import open_store as open_real_store
from tests.broker.store.batches import batch, open_store, stored
from tests.simulation.virtual_disk import VirtualDisk


def test_durable_moves_when_the_sync_has_returned_and_not_before() -> None:
    store, driver, _ = open_store(VirtualDisk())
    gate: Gate = store
    kind: Store = store
    assert kind is gate and gate.applied == FOREVER
    store.append(*batch(1))
    assert store.durable == ORIGIN
    assert driver.write()
    assert store.durable == ORIGIN
    driver.sync()
    assert store.durable == Position(1, 1)


def test_batches_gather_while_a_sync_is_outstanding() -> None:
    disk = VirtualDisk()
    store, driver, _ = open_store(disk)
    store.append(*batch(1))
    driver.write()
    for n in (2, 3, 4):
        store.append(*batch(n))
    assert not driver.write()
    driver.sync()
    assert store.durable == Position(1, 1)
    before = disk.operations
    assert driver.run()
    assert disk.operations == before + 2  # one write, one sync
    assert store.durable == Position(1, 4)
    assert not driver.run()


def test_a_batch_without_payload_makes_no_write_and_follows_what_precedes_it() -> None:
    disk = VirtualDisk()
    store, driver, _ = open_store(disk)
    store.append(Position(1, 1), [])
    assert store.durable == Position(1, 1)
    store.append(*batch(2))
    store.append(Position(1, 3), [])
    assert store.durable == Position(1, 1)
    driver.write()
    store.append(Position(1, 4), [])
    assert store.durable == Position(1, 1)
    driver.sync()
    assert store.durable == Position(1, 4)
    store.append(Position(1, 5), [])
    assert store.durable == Position(1, 5)
    store.append(*batch(6))
    driver.write()
    store.append(Position(1, 7), [])
    store.append(*batch(8))
    store.append(Position(1, 9), [])
    driver.sync()
    assert store.durable == Position(1, 6)
    driver.run()
    assert store.durable == Position(1, 9)


def test_serials_tell_batches_of_one_position_apart() -> None:
    store, driver, _ = open_store(VirtualDisk())
    one = store.append(Position(1, 1), [b"part one"])
    driver.run()
    two = store.append(Position(1, 1), [b"part two"])
    assert store.durable == Position(1, 1)
    assert one <= store.synced < two
    driver.run()
    assert store.synced == two


def test_a_position_that_goes_back_is_a_defect() -> None:
    store, _, _ = open_store(VirtualDisk())
    store.append(*batch(2))
    with pytest.raises(StoreMisuse):
        store.append(*batch(1))


def test_a_store_begins_at_the_position_it_restored() -> None:
    disk = VirtualDisk()
    store, _, _ = open_store(disk)
    store.append(*batch(5))
    store.close()
    again, _, found = open_store(disk)
    assert found == [stored(5)]
    assert again.durable == Position(1, 5)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_or_sync_is_final(operation: str) -> None:
    """Invariant 25: it never confirms on, even if the disk recovers."""
    disk = VirtualDisk()
    store, driver, _ = open_store(disk)
    told: list[str | None] = []
    store._on_durable = lambda: told.append(store.failed)
    store.append(*batch(1))
    driver.run()
    disk.failing[operation] = errno.EIO
    store.append(*batch(2))
    driver.run()
    disk.failing.clear()
    assert store.failed is not None
    assert f"could not {operation} " in store.failed and "then start the node again" in store.failed
    assert "\n" not in store.failed
    assert told == [None, store.failed]
    store.append(*batch(3))
    store.append(Position(1, 4), [])
    driver.run()
    assert store.durable == Position(1, 1)
    store.close()
    assert store.durable == Position(1, 1)


def test_a_full_disk_is_final_and_the_next_start_finds_what_was_durable() -> None:
    disk = VirtualDisk(room=250)
    store, driver, _ = open_store(disk)
    n = 0
    while store.failed is None:
        n += 1
        store.append(*batch(n))
        driver.run()
    assert "No space left" in store.failed
    durable = store.durable
    store.close()
    disk.room = None
    _, _, found = open_store(disk)
    assert durable.n == n - 1
    assert found[: n - 1] == [stored(i) for i in range(1, n)]


def test_a_disk_that_fails_at_the_end_is_told_too() -> None:
    disk = VirtualDisk()
    store, _, _ = open_store(disk)
    store.append(*batch(1))
    disk.failing["sync"] = errno.EIO
    store.close()
    assert store.failed is not None and store.durable == ORIGIN


def test_close_makes_what_is_pending_durable() -> None:
    disk = VirtualDisk()
    store, driver, _ = open_store(disk)
    store.append(*batch(1))
    driver.write()
    store.append(*batch(2))
    store.close()
    disk.power_loss()
    assert open_store(disk)[2] == [stored(1), stored(2)]


def test_the_store_may_not_be_rewritten_or_used_out_of_order() -> None:
    store, _, _ = open_store(VirtualDisk())
    with pytest.raises(StoreMisuse):
        store.rewrite([])
    with pytest.raises(StoreMisuse):
        store.sync_group()


def test_real_files_and_a_real_thread(tmp_path: Path) -> None:
    store = open_real_store(str(tmp_path / "deep" / "store"), segment_bytes=2000)
    assert list(store.recover()) == []
    reached = threading.Event()
    last = Position(1, 500)
    store.start(lambda: reached.set() if store.durable >= last else None)
    for n in range(1, 501):
        store.append(*batch(n))
    assert reached.wait(30)
    assert store.failed is None
    store.append(*batch(501))
    store.close()
    again = open_real_store(str(tmp_path / "deep" / "store"))
    found = list(again.recover())
    assert found == [stored(n) for n in range(1, 502)]
    assert again.notices == []
    again.rewrite((b.position, [b.payload]) for b in found)
    again.close()
    assert len(list((tmp_path / "deep" / "store").iterdir())) == 1
    third = open_real_store(str(tmp_path / "deep" / "store"))
    assert list(third.recover()) == found


def test_a_real_disk_that_refuses_stops_the_store(tmp_path: Path) -> None:
    store = open_real_store(str(tmp_path))
    assert list(store.recover()) == []
    told = threading.Event()
    store.start(told.set)
    tmp_path.rmdir()
    store.append(*batch(1))
    assert told.wait(30)
    assert store.failed is not None and "No such file" in store.failed
    store.close()


def test_the_null_store_holds_nobody() -> None:
    store: Store = NullStore()
    gate: Gate = NullStore()
    assert list(store.recover()) == []
    store.rewrite(iter([batch(1)]))
    store.start()
    assert store.append(*batch(1)) == store.synced
    assert gate.durable == FOREVER
    store.close()


def test_stored_batches_are_values() -> None:
    assert StoredBatch(Position(1, 1), b"x") == (Position(1, 1), b"x")
