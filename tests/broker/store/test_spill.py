"""The overflow on disk: blocks come back or a fault is reported; files without needed blocks are removed."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from broker import codes
from broker.store import spill as spill_module
from broker.store.errors import StoreCorrupt, StoreUnusable
from broker.store.files import RealFiles
from broker.store.spill import Spill
from tests.conftest import SEED
from tests.simulation.harness.machines.virtual_disk import VirtualDisk
from understudy.shared.codes import Coded

DIRECTORY = "/data/overflow"


class Made:
    """A spill on a virtual disk, with a thread that tests can block."""

    def __init__(self, disk: VirtualDisk | None = None) -> None:
        self.disk = disk or VirtualDisk()
        self.resident = 0
        self.told: list[Coded] = []
        self.spill = Spill(self.disk, DIRECTORY, 1000, lambda: self.resident, self.told.append)

    def files(self) -> list[str]:
        return sorted(path for path in self.disk.contents() if path.startswith(DIRECTORY))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    monkeypatch.setattr(spill_module, "FILE_BYTES", 100)
    made = Made()
    made.spill.start()
    yield made
    made.spill.close()
    assert made.files() == []


def settled(spill: Spill, condition: Callable[[], bool]) -> None:
    """Wait until the thread is done; puts a block to wake it."""
    done = threading.Event()
    for _ in range(30_000):
        if condition():
            return
        spill._work.set()
        done.wait(0.001)
    raise AssertionError("the thread has not come to it")


def test_blocks_come_back_from_memory_and_from_disk(made: Made) -> None:
    blocks = {made.spill.put(b"%d" % n * n): b"%d" % n * n for n in range(1, 60)}
    assert all(made.spill.get(number) == data for number, data in blocks.items())
    made.spill.flush()
    assert not made.spill._memory
    assert all(made.spill.get(number) == data for number, data in blocks.items())
    for number in blocks:
        made.spill.drop(number)


def test_files_go_with_their_last_block(made: Made) -> None:
    numbers = []
    for _ in range(10):
        numbers.append(made.spill.put(b"x" * 90))
        made.spill.flush()
    assert len(made.files()) == 5  # two blocks fill one
    for number in numbers[:5]:
        made.spill.drop(number)
    settled(made.spill, lambda: len(made.files()) == 3)
    assert made.spill.get(numbers[5]) == b"x" * 90


def test_blocks_dropped_before_their_write_are_not_written(made: Made) -> None:
    held = threading.Event()
    write, made.spill._append = made.spill._append, lambda group: (held.wait(30), write(group))[1]  # type: ignore[method-assign]
    first = made.spill.put(b"a" * 10)
    others = [made.spill.put(b"b" * 10) for _ in range(5)]
    for number in [first, *others]:
        made.spill.drop(number)
    held.set()
    made.spill.flush()
    assert made.spill._pending == 0 and not made.spill._places
    assert all(live == 0 for live in made.spill._live.values())


def test_blocks_read_ahead_are_read_once(made: Made) -> None:
    numbers = [made.spill.put(b"%d" % n * 10) for n in range(3)]
    made.spill.flush()
    reads: list[object] = []
    read = made.spill._read
    made.spill._read = lambda place: (reads.append(place), read(place))[1]  # type: ignore[method-assign]
    for number in numbers:
        made.spill.ahead(number)
    settled(made.spill, lambda: len(made.spill._ahead) == 3)
    assert [made.spill.get(number) for number in numbers] == [b"0" * 10, b"1" * 10, b"2" * 10]
    assert len(reads) == 3
    for number in numbers:
        made.spill.drop(number)
    assert made.spill._ahead_bytes == 0


def test_it_asks_for_the_excess_only_once(made: Made) -> None:
    assert made.spill.wanted() == 0
    made.resident = 1500
    assert made.spill.wanted() == 500
    made.spill._pending = 200
    assert made.spill.wanted() == 300
    made.spill._pending = 1 << 40
    assert made.spill.wanted() == 0
    made.spill._pending = 0


def test_an_unwritable_disk_loses_nothing_and_is_logged_once(made: Made) -> None:
    made.disk.failing["write"] = errno.ENOSPC
    numbers = [made.spill.put(b"%d" % n) for n in range(5)]
    made.spill.flush()
    made.resident = 10**9
    assert made.spill.wanted() == 0
    assert [made.spill.get(number) for number in numbers] == [b"%d" % n for n in range(5)]
    numbers.append(made.spill.put(b"more"))
    assert made.spill.get(numbers[-1]) == b"more"
    (told,) = made.told
    assert told == codes.OVERFLOW.say(directory=DIRECTORY, cause="No space left on device")
    made.disk.failing.clear()


def test_a_changed_block_is_never_served(made: Made) -> None:
    number = made.spill.put(b"m" * 50)
    made.spill.flush()
    (path,) = made.files()
    made.disk.damage(path, 20)
    with pytest.raises(StoreCorrupt, match=path):
        made.spill.get(number)
    assert made.spill.failed is not None and path in made.spill.failed
    made.spill.ahead(number)
    settled(made.spill, lambda: not made.spill._wanted_ahead)
    with pytest.raises(StoreCorrupt):
        made.spill.get(number)
    made.disk.unlink(path)
    with pytest.raises(StoreUnusable, match=rf"cannot read {path}.*this node stops"):
        made.spill.get(number)
    made.disk.place(path, b"")


def test_a_start_discards_only_files_of_an_earlier_life() -> None:
    disk = VirtualDisk()
    disk.make_directory(DIRECTORY)
    disk.place(f"{DIRECTORY}/00000007.overflow", b"old")
    disk.place(f"{DIRECTORY}/notes.txt", b"mine")
    made = Made(disk)
    made.spill.start()
    assert made.files() == [f"{DIRECTORY}/notes.txt"]
    made.spill.close()
    disk.read_only = True
    with pytest.raises(StoreUnusable, match=f"cannot use {DIRECTORY}.*Read-only"):
        disk.place(f"{DIRECTORY}/00000008.overflow", b"old")
        Made(disk).spill.start()


def test_many_blocks_in_any_order_on_real_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_module, "FILE_BYTES", 50_000)
    random, held = Random(SEED), dict[int, bytes]()
    spill = Spill(RealFiles(), str(tmp_path / "overflow"), 0, lambda: 0, lambda text: None)
    spill.start()
    for _ in range(3000):
        what = random.random()
        if what < 0.5 or not held:
            data = random.randbytes(random.randrange(2000))
            held[spill.put(data)] = data
        elif what < 0.7:
            spill.ahead(random.choice([*held]))
        else:
            number = random.choice([*held])
            assert spill.get(number) == held[number]
            if random.random() < 0.8:
                spill.drop(number)
                del held[number]
    for number, data in held.items():
        assert spill.get(number) == data
        spill.drop(number)
    settled(spill, lambda: len(list((tmp_path / "overflow").iterdir())) <= 1)
    spill.close()
    assert list((tmp_path / "overflow").iterdir()) == []
