"""Disk space: segments without live messages are removed, and scattered messages are copied together.

A crash at any of these file operations loses nothing that was durable.
"""

from __future__ import annotations

import errno
import threading
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from broker.model.history.record_codec import encode_record
from broker.model.values import Position
from broker.store.cleaning import choose
from broker.store.errors import StoreCorrupt, StoreUnusable
from broker.store.live_index import LiveIndex, SegmentUse
from broker.store.store import Base, SegmentStore
from broker.store.store import open_store as open_real_store
from broker.store.sync import ManualSync
from tests.broker.store.batches import (
    DIRECTORY,
    NO_BASE,
    append,
    dequeue,
    enqueue,
    message,
    messages,
    open_store,
    segments,
)
from tests.conftest import SEED
from tests.simulation.harness.machines.virtual_disk import Crash, VirtualDisk

SMALL = 2000


def size(disk: VirtualDisk) -> int:
    return sum(map(len, disk.contents().values()))


def test_a_queue_that_is_always_nearly_empty_stays_small() -> None:
    disk = VirtualDisk()
    store, driver, _ = open_store(disk, SMALL)
    largest = 0
    for n in range(1, 2001):
        append(store, n, enqueue(n), *([dequeue(n - 3, n - 3)] if n > 3 else []))
        driver.run()
        largest = max(largest, size(disk))
    assert largest < 3 * SMALL
    assert store.stored_bytes == size(disk)
    assert messages(open_store(disk)[2]) == [message(n) for n in (1998, 1999, 2000)]


def _octets_in(folder: Path) -> int:
    """The octets of all files. A file that the sync thread removes meanwhile counts as empty."""
    octets = 0
    for file in folder.iterdir():
        with suppress(FileNotFoundError):
            octets += file.stat().st_size
    return octets


def test_200_000_messages_through_a_nearly_empty_queue_on_real_files(tmp_path: Path) -> None:
    segment = 1 << 20
    store = open_real_store(str(tmp_path), segment_bytes=segment)
    assert list(store.recover()) == []
    moved = threading.Event()
    store.start(NO_BASE, moved.set)
    run, largest, passed = 200, 0, 0
    for n in range(1, 1001):
        first = (n - 1) * run + 1
        records = [enqueue(first, run)] + ([dequeue(first - run, first - 1)] if n > 1 else [])
        passed += sum(len(encode_record(record)) for record in records)
        append(store, n, *records)
        if n % 50 == 0:
            while store.durable < Position(1, n):
                assert moved.wait(30)
                moved.clear()
            largest = max(largest, _octets_in(tmp_path))
    store.close()
    assert passed > 4 * segment
    assert largest < 3 * segment
    again = open_real_store(str(tmp_path), segment_bytes=segment)
    found = [record for _, records in again.recover() for record in records]
    assert messages(found) == [message(n) for n in range(199_801, 200_001)]


def fill(store: SegmentStore, driver: ManualSync, kept: range, upto: int, first: int = 1) -> None:
    """Enqueue and dequeue each message, except those in `kept`."""
    for n in range(first, upto + 1):
        append(store, n, enqueue(n), *([] if n in kept else [dequeue(n, n)]))
        driver.run()


def test_scattered_live_messages_are_copied_together() -> None:
    disk = VirtualDisk()
    store, driver, _ = open_store(disk, SMALL)
    kept = range(1, 4000, 50)
    fill(store, driver, kept, 4000)
    assert len(segments(disk)) < 30  # some 300 were begun, and each third had a message that is held
    assert size(disk) < 15 * SMALL
    assert messages(open_store(disk)[2]) == [message(n) for n in kept]
    append(store, 4001, dequeue(1, 4000))
    for n in range(4002, 4100):
        append(store, n, enqueue(n), dequeue(n, n))
        driver.run()
    assert size(disk) < 3 * SMALL
    assert messages(open_store(disk)[2]) == []


def until_it_cleans() -> tuple[VirtualDisk, SegmentStore, ManualSync, int]:
    """Keep every fifth message, up to the batch at which the store plans a copy. Returns the number of
    messages."""
    disk = VirtualDisk()
    store, driver, _ = open_store(disk, SMALL)
    n = 0
    while store._cleaning is None:
        n += 1
        append(store, n, enqueue(n), *([] if n % 5 == 0 else [dequeue(n, n)]))
        if store._cleaning is None:
            driver.run()
    return disk, store, driver, n


def test_a_message_dequeued_during_its_copy_does_not_come_back() -> None:
    disk, store, driver, n = until_it_cleans()
    held, cleaning = list(range(5, n + 1, 5)), store._cleaning
    assert cleaning is not None
    append(store, n, dequeue(held[0], held[0]))
    driver.run()
    append(store, n, dequeue(held[1], held[1]))
    driver.run()
    assert cleaning.done
    wanted = [message(m) for m in held[2:]]
    assert messages(open_store(copy_of(disk), SMALL)[2]) == wanted
    append(store, n)
    driver.run()
    assert cleaning.number in store.index.live_segments()
    assert not cleaning.segments & store.index.segments.keys()
    assert messages(open_store(copy_of(disk), SMALL)[2]) == wanted


def copy_of(disk: VirtualDisk) -> VirtualDisk:
    made = VirtualDisk()
    made.make_directory(DIRECTORY)
    for path, data in disk.contents().items():
        made.place(path, data)
    return made


def test_lives_that_each_leave_a_little_do_not_leave_a_file_each() -> None:
    disk = VirtualDisk()
    for life in range(1, 60):
        store, driver, _ = open_store(disk, SMALL)
        append(store, life, enqueue(life))
        driver.run()
        append(store, life)
        driver.run()
        disk.kill()
    assert len(segments(disk)) < 24
    assert messages(open_store(disk)[2]) == [message(n) for n in range(1, 60)]


def test_a_purge_gives_the_space_back_at_once() -> None:
    disk = VirtualDisk()
    store, driver, _ = open_store(disk, SMALL)
    for n in range(1, 201):
        append(store, n, enqueue(n))
        driver.run()
    assert size(disk) > 10 * SMALL
    append(store, 201, dequeue(1, 200))
    driver.run()
    assert size(disk) < 2 * SMALL


def test_a_deleted_queue_takes_no_space() -> None:
    disk = VirtualDisk()
    store, driver, _ = open_store(disk, SMALL)
    append(store, 1, enqueue(1, 100))
    driver.run()
    store.roll(Base([], []))
    driver.run()
    assert size(disk) < 300
    assert open_store(disk)[2] == []


def test_a_disk_too_full_to_copy_goes_on_without_the_copy() -> None:
    disk, store, driver, n = until_it_cleans()
    cleaning = store._cleaning
    assert cleaning is not None
    driver.write()
    driver.writing = False
    store.sync_group()
    disk.failing["write"] = errno.ENOSPC
    assert not store.tidy()
    disk.failing.clear()
    assert cleaning.given_up and store.failed is None
    assert not any(path.endswith(".new") for path in disk.contents())
    fill(store, driver, range(0), n + 50, n + 1)
    assert messages(open_store(disk)[2]) == [message(m) for m in range(5, n + 1, 5)]


def test_damage_that_a_copy_meets_stops_the_node_and_changes_nothing() -> None:
    disk, store, driver, _ = until_it_cleans()
    assert store._cleaning is not None
    victim = store._log.reader.path(min(store._cleaning.segments))
    disk.damage(victim, disk.size(victim) // 2)
    driver.run()
    assert store.failed is not None and "could not clean up" in store.failed and victim in store.failed
    disk.kill()
    with pytest.raises(StoreCorrupt, match=victim):
        open_store(disk)


def test_the_most_wasteful_segments_that_fit_into_one_are_chosen() -> None:
    index = LiveIndex()
    index.segments = {
        n: SegmentUse(stored=100, live=live, size=100) for n, live in enumerate([0, 90, 5, 1, 9])
    }
    assert choose(index, 4, 10) == [3, 2]
    assert choose(index, 4, 5) == [3]
    assert choose(index, 4, 1000) == []  # no more is dead than is worth it
    index.segments = {n: SegmentUse(stored=10, live=10, size=10) for n in range(20)}
    assert len(choose(index, 19, 100)) == 10
    assert choose(index, 19, 50) == []


class Life:
    """A random history on a store, with its own account of the messages that may and must be held."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.n = self.top = 0
        self.held: list[set[int]] = [set()]
        """The contents after each batch so far."""
        self.durable = 0

    def run(self, disk: VirtualDisk, batches: int) -> None:
        store, driver, found = open_store(disk, 700)
        self.check(messages(found))
        durable_before = self.n
        for _ in range(batches):
            self.n += 1
            held = set(self.held[-1])
            records = []
            if self.random.random() < 0.7:
                count = self.random.choice((1, 1, 5))
                records.append(enqueue(self.top + 1, count))
                held |= set(range(self.top + 1, self.top + count + 1))
                self.top += count
            for seq in self.random.sample(sorted(held), min(len(held), self.random.choice((0, 1, 3)))):
                if self.random.random() < 0.8 or seq % 7:
                    records.append(dequeue(seq, seq))
                    held.discard(seq)
            self.held.append(held)
            append(store, self.n, *records)
            if self.random.random() < 0.6:
                driver.write()
                self.durable = max(self.durable, store.durable.n, durable_before)
                driver.sync()
                self.durable = max(self.durable, store.durable.n)
        store.close()
        self.durable = self.n

    def check(self, found: list[bytes]) -> None:
        """Check that the recovered contents are those after some batch, not before the last durable one.
        Continue from there."""
        now = sorted(found)
        fits = [n for n in range(self.durable, self.n + 1) if sorted(map(message, self.held[n])) == now]
        assert fits, f"{found} was held after no batch from {self.durable} to {self.n}"
        self.n = fits[-1]
        self.held = self.held[: self.n + 1]
        self.durable = self.n
        self.top = max(self.top, *self.held[-1], 0)


LOSSES = ("killed", "power", "torn")


def crash_twice(seed: int, loss: str, crash_at: int, history: int) -> None:
    """Two lives that end in a crash, the first at file operation `crash_at`, and two that end cleanly."""
    random, disk, life = Random(seed * 1000 + crash_at), VirtualDisk(), Life(Random(history))
    for at in (crash_at, random.randrange(5, 100)):
        disk.crash_at = disk.operations + at
        disk.crash_random = random if loss == "torn" else None
        try:
            life.run(disk, 120)
        except Crash:
            pass
        if loss == "killed":
            disk.kill()
        else:
            disk.power_loss(random if loss == "torn" else None)
    disk.crash_at = None
    life.run(disk, 10)
    life.check(messages(open_store(disk)[2]))


@pytest.mark.parametrize("apart", [3, pytest.param(1, marks=pytest.mark.system)])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_crash_at_any_file_operation_loses_nothing_durable(loss: str, apart: int) -> None:
    """The crashes are at other operations in each run, so many of them `apart`."""
    calm = VirtualDisk()
    Life(Random(1)).run(calm, 120)
    assert calm.operations > 200
    for crash_at in range(SEED % apart, calm.operations, apart):
        crash_twice(SEED, loss, crash_at, history=1)


def test_crashes_at_random_in_random_histories_lose_nothing_durable() -> None:
    random = Random(SEED)
    for _ in range(150):
        history = random.randrange(10**6)
        crash_twice(SEED, random.choice(LOSSES), random.randrange(300), history)


def test_a_changed_byte_is_refused_or_does_not_matter() -> None:
    whole, random = VirtualDisk(), Random(SEED)
    life = Life(Random(2))
    life.run(whole, 120)
    wanted = messages(open_store(copy_of(whole))[2])
    assert len(segments(whole)) > 3
    refused = 0
    for path, data in whole.contents().items():
        for offset in random.sample(range(len(data)), min(len(data), 40)):
            disk = copy_of(whole)
            disk.damage(path, offset, flip=1 << random.randrange(8))
            try:
                found = messages(open_store(disk)[2])
            except (StoreCorrupt, StoreUnusable) as error:  # of closed.json: another format
                refused += 1
                assert path in str(error) and "\n" not in str(error)
            else:
                assert found == wanted
    assert refused > 40


def test_room_that_only_the_copy_did_not_find_is_no_failure_of_the_disk() -> None:
    """The simulation requires of a serving node (25) what its store had to have on disk."""
    disk, store, driver, n = until_it_cleans()
    driver.write()
    driver.writing = False
    store.sync_group()
    disk.room = 10
    assert not store.tidy()
    assert store.failed is None and disk.failures == 0
    append(store, n + 100, enqueue(n + 1))
    driver.run()
    assert store.failed is not None and disk.failures == 1
