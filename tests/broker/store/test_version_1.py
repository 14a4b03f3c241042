"""A store of version 1 (`version_1/`), before bases existed, is read and continued in the present format.

It has two lives of one node: queues `orders` and `other`, messages of epochs 1 and 2, a checkpoint at the
beginning of the second life, and two log segments after it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.model.history.record_codec import encode_record
from broker.model.history.records import Dequeue, EnqueueRun, QueueDeclare, QueueEnds, Record
from broker.model.values import Position
from broker.store.errors import StoreCorrupt
from broker.store.store import Base, SegmentStore, open_store
from tests.broker.store.batches import declare, dequeue, messages

ORDERS, OTHER = b"q" * 16, b"o" * 16
HELD = [3, 4, 5, 6, 7, 8, 9]
"""The messages of epoch 1 in `orders` when the second life began; it has dequeued 3."""


def said(numbers: list[int]) -> list[bytes]:
    return [b"message %d." % n for n in numbers]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).parent / "version_1" / "store", tmp_path / "store"))


def opened(directory: Path) -> tuple[SegmentStore, list[Record]]:
    store = open_store(str(directory), segment_bytes=600)
    return store, [record for _, records in store.recover() for record in records]


def check(found: list[Record]) -> None:
    assert messages(found, ORDERS) == said([*HELD[1:], 1, *range(5, 29)])
    assert messages(found, OTHER) == said([26, 27])


def test_it_comes_back_whole(directory: Path) -> None:
    store, found = opened(directory)
    check(found)
    assert {r.name for r in found if isinstance(r, QueueDeclare)} == {"orders", "other"}
    assert any(isinstance(r, QueueEnds) and r.ends[1].last == 9 for r in found)
    assert sum(isinstance(r, EnqueueRun) for r in found) > 3 and any(isinstance(r, Dequeue) for r in found)
    assert store.notices == []
    store.close()
    check(opened(directory)[1])  # looking has changed nothing


def test_it_continues_in_the_new_format_and_frees_its_files(directory: Path) -> None:
    store, found = opened(directory)
    before = sorted(directory.iterdir())
    assert len(before) == 3
    base = Base([encode_record(declare(ORDERS)), encode_record(declare(OTHER))], [ORDERS, OTHER])
    store.start(base)
    assert store.durable == Position(2, 5)
    store.append(Position(3, 1), [encode_record(dequeue(26, 26, OTHER, 2))], [dequeue(26, 26, OTHER, 2)])
    store.close()
    store, found = opened(directory)
    assert messages(found, ORDERS) == said([*HELD[1:], 1, *range(5, 29)])
    assert messages(found, OTHER) == said([27])
    store.start(base)
    last = [dequeue(1, 99, ORDERS, 1), dequeue(1, 99, ORDERS, 2), dequeue(1, 99, OTHER, 2)]
    store.append(Position(3, 2), [encode_record(record) for record in last], last)
    store.roll(base)
    store.close()
    assert not set(before) & set(directory.iterdir())
    assert [r for r in opened(directory)[1] if not isinstance(r, QueueDeclare)] == []


def test_a_missing_file_of_it_is_named(directory: Path) -> None:
    gone = sorted(directory.iterdir())[1]
    gone.unlink()
    with pytest.raises(StoreCorrupt, match=f"{gone.name}.*missing"):
        opened(directory)


def test_damage_to_it_is_refused(directory: Path) -> None:
    first = min(directory.iterdir())
    raw = bytearray(first.read_bytes())
    raw[len(raw) // 2] ^= 1
    first.write_bytes(raw)
    with pytest.raises(StoreCorrupt, match=first.name):
        opened(directory)
