"""A store of version 2 (`version_2/`) is read and continued in the present format, with directory entries.

It has one life of a node: exchange `events`, queue `orders` bound to it, and messages 1 to 22 of epoch 1, of
which 1 to 7 are gone, in segments of 600 octets.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.model.history.record_codec import encode_record
from broker.model.history.records import Bind, EntryPut, ExchangeDeclare, QueueDeclare, Record
from broker.model.values import Position, Scope
from broker.store.segment_format import HEADER_BYTES, VERSION, unpack_header
from broker.store.store import Base, SegmentStore, open_store
from tests.broker.store.batches import messages

ORDERS = b"q" * 16
ALICE = EntryPut("user", "", "alice", {"password_hash": "", "tags": []}, Scope.STORE | Scope.LINK)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).parent / "version_2" / "store", tmp_path / "store"))


def opened(directory: Path) -> tuple[SegmentStore, list[Record]]:
    store = open_store(str(directory), segment_bytes=600)
    return store, [record for _, records in store.recover() for record in records]


def version_of(path: Path) -> int:
    return unpack_header(path.read_bytes()[:HEADER_BYTES]).version


def test_it_comes_back_whole_and_goes_on_with_entries(directory: Path) -> None:
    assert {version_of(path) for path in directory.glob("*.segment")} == {2}
    store, found = opened(directory)
    definitions = [r for r in found if isinstance(r, QueueDeclare | ExchangeDeclare | Bind)]
    assert {getattr(r, "name", "") for r in definitions} == {"orders", "events", ""}
    assert messages(found, ORDERS) == [b"message %d." % n for n in range(8, 23)]
    assert store.notices == []
    unique = {encode_record(record): None for record in definitions}
    store.start(Base([*unique, encode_record(ALICE)], [ORDERS]))
    store.append(Position(2, 1), [encode_record(ALICE)], [ALICE])
    store.close()
    assert VERSION in {version_of(path) for path in directory.glob("*.segment")}
    _, found = opened(directory)
    assert ALICE in found and messages(found, ORDERS) == [b"message %d." % n for n in range(8, 23)]
