"""Consumers with `exactly_once`: what comes again after it was processed is acked, and not handed out."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.understudy.client.fake_broker import FakeFailover, broker_dies
from tests.understudy.client.test_consumer import QUEUE, arrivals, consumer
from understudy.client import NotExactlyOnce, OwnTransaction, ProcessedFile
from understudy.client.ledgers import ReplicationId


class Shop:
    """A database with one row for each message that was processed, and consumers of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        database = self.connect()
        database.execute("CREATE TABLE booked (sequence INTEGER)")
        OwnTransaction(sqlite3, database).create()
        database.close()

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=0.1)

    def booked(self) -> list[int]:
        database = self.connect()
        found = [row[0] for row in database.execute("SELECT sequence FROM booked ORDER BY rowid")]
        database.close()
        return found

    def process(self, billing: Any, database: sqlite3.Connection, timeout: float = 0.0) -> bool:
        """Receive a message, book it and ack it. False: none came."""
        delivery = billing.receive(timeout)
        if delivery is None:
            return False
        self.book(database, delivery)
        billing.ack(delivery)
        return True

    @staticmethod
    def book(database: sqlite3.Connection, delivery: Any) -> None:
        database.execute("INSERT INTO booked VALUES (?)", (delivery.id.sequence,))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture(params=["file", "own transaction"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[sqlite3.Connection], Any]:
    """The memory for a consumer that books in this database."""
    if request.param == "file":
        return lambda database: ProcessedFile(tmp_path / "billing.db")
    return lambda database: OwnTransaction(sqlite3, database)


@pytest.mark.parametrize("same_process", [True, False])
def test_what_comes_again_after_its_ack_was_lost_is_skipped_and_acked(
    shop: Shop, memory: Callable[[Any], Any], same_process: bool
) -> None:
    broker = FakeFailover()
    arrivals(broker, 1, 2)
    database = shop.connect()
    autocommit = shop.connect()
    autocommit.isolation_level = None
    own = isinstance(memory(database), OwnTransaction)
    works = database if own else autocommit
    billing = consumer(broker, exactly_once=True, processed=memory(database), ack_every=1)
    assert shop.process(billing, works) and shop.process(billing, works)
    assert broker.channel.acks == [(1, True), (2, True)]
    broker.script.append(broker_dies)
    assert billing.receive() is None
    if not same_process:
        billing.abandon()
        database = shop.connect()
        works = database if own else autocommit
        billing = consumer(broker, exactly_once=True, processed=memory(database), ack_every=1)
    arrivals(broker, 1, redelivered=True)
    arrivals(broker, 2)  # of another primary, after a forced promotion
    arrivals(broker, 3)
    assert shop.process(billing, works, 1.0)
    assert shop.booked() == [1, 2, 3]
    assert broker.channel.acks == [(1, True), (2, True), (3, True)]
    assert (billing.counts.skipped, billing.counts.received) == (2, 3 if same_process else 1)


def test_work_that_ends_after_its_connection_is_lost_counts(shop: Shop, memory: Callable[[Any], Any]) -> None:
    broker = FakeFailover()
    arrivals(broker, 1)
    database = shop.connect()
    billing = consumer(broker, exactly_once=True, processed=memory(database))
    delivery = billing.receive()
    shop.book(database, delivery)
    billing._lose()
    assert delivery is not None
    billing.ack(delivery)
    database.commit()
    arrivals(broker, 1, redelivered=True)
    arrivals(broker)
    assert billing.receive() is None
    assert (shop.booked(), billing.counts.skipped) == ([1], 1)
    billing.flush()
    assert broker.channel.acks == [(1, True)]


def test_work_without_its_ack_is_undone_and_done_again(shop: Shop) -> None:
    database = shop.connect()
    broker = FakeFailover()
    arrivals(broker, 1, 2)
    billing = consumer(broker, exactly_once=True, processed=OwnTransaction(sqlite3, database))
    with pytest.raises(ZeroDivisionError), billing:
        assert shop.process(billing, database)
        shop.book(database, billing.receive())
        raise ZeroDivisionError
    assert broker.channel.acks == [(1, True)]
    arrivals(broker, 2, redelivered=True)
    billing = consumer(broker, exactly_once=True, processed=OwnTransaction(sqlite3, database))
    rejected = billing.receive()
    shop.book(database, rejected)
    assert rejected is not None
    billing.reject(rejected, requeue=True)
    arrivals(broker, 2, redelivered=True)
    assert shop.process(billing, database)
    assert shop.booked() == [1, 2]


def test_of_two_consumers_with_one_message_the_first_to_finish_has_done_it(shop: Shop) -> None:
    """The slow one lost its connection in the midst of it."""
    slow, quick = FakeFailover(), FakeFailover()
    arrivals(slow, 1)
    arrivals(quick, 1, 2, redelivered=True)
    databases = shop.connect(), shop.connect()
    one, other = (
        consumer(broker, exactly_once=True, processed=OwnTransaction(sqlite3, database))
        for broker, database in zip((slow, quick), databases, strict=True)
    )
    late = one.receive()
    assert late is not None
    assert shop.process(other, databases[1])
    shop.book(databases[0], late)
    one.ack(late)
    assert shop.booked() == [1]
    assert one.counts.skipped == 1
    assert shop.process(other, databases[1]), "no transaction is left open"


def test_a_failed_commit_brings_the_message_back(shop: Shop) -> None:
    broker = FakeFailover()
    arrivals(broker, 1)
    database, other = shop.connect(), shop.connect()
    billing = consumer(broker, exactly_once=True, processed=OwnTransaction(sqlite3, database))
    delivery = billing.receive()
    assert delivery is not None
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        billing.ack(delivery)
    other.rollback()
    billing.ack(delivery)
    arrivals(broker, 1, redelivered=True)
    assert shop.process(billing, database)
    assert shop.booked() == [1]


def test_a_file_remembers_what_a_killed_process_did(tmp_path: Path) -> None:
    code = f"""
import os, signal
from understudy.client import ProcessedFile, ReplicationId
memory = ProcessedFile({str(tmp_path / "ids.db")!r})
memory.done(ReplicationId({QUEUE!r}, 1, 1))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == -9
    memory = ProcessedFile(tmp_path / "ids.db")
    found = [memory.has(ReplicationId(QUEUE, epoch, 1)) for epoch in (1, 2)]
    assert found == [True, False]
    assert not memory.done(ReplicationId(QUEUE, 1, 1))
    memory.close()


def test_the_oldest_ids_of_a_queue_are_let_go_of(tmp_path: Path) -> None:
    memory = ProcessedFile(tmp_path / "ids.db", keep=20)
    other = ReplicationId("f" * 32, 1, 1)
    memory.done(other)
    for sequence in range(100):
        memory.done(ReplicationId(QUEUE, 1, sequence))
    known = [sequence for sequence in range(100) if memory.has(ReplicationId(QUEUE, 1, sequence))]
    assert 20 <= len(known) <= 22
    assert known[-1] == 99 and memory.has(other)
    memory.close()


def test_new_ids_stay_when_the_clock_was_ahead_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first, seconds in ((0, 2_000_000_000), (20, 1_700_000_000)):
        monkeypatch.setattr(time, "time_ns", lambda now=seconds: now * 10**9)
        memory = ProcessedFile(tmp_path / "ids.db", keep=20)
        for sequence in range(first, first + 20):
            assert memory.done(ReplicationId(QUEUE, 1, sequence))
        assert all(memory.has(ReplicationId(QUEUE, 1, sequence)) for sequence in range(first, first + 20))
        memory.close()


def test_what_cannot_be_exactly_once_is_refused(tmp_path: Path, shop: Shop) -> None:
    broker = FakeFailover()
    with pytest.raises(ValueError, match="exactly_once needs processed"):
        consumer(broker, exactly_once=True)
    with pytest.raises(ValueError, match="processed needs exactly_once"):
        consumer(broker, processed=tmp_path / "ids.db")
    (tmp_path / "wrong.db").write_bytes(b"no database at all" * 100)
    for wrong, why in (("wrong.db", "not a database"), ("nowhere/ids.db", "unable to open")):
        with pytest.raises(NotExactlyOnce, match=why) as refused:
            consumer(broker, exactly_once=True, processed=tmp_path / wrong)
        assert "\n" not in str(refused.value)
    database = shop.connect()
    with pytest.raises(ValueError, match="name of a table"):
        OwnTransaction(sqlite3, database, table="a; DROP TABLE booked")
    database.isolation_level = None
    with pytest.raises(ValueError, match="autocommit"):
        OwnTransaction(sqlite3, database)
    arrivals(broker, 1, 2)
    billing = consumer(broker, exactly_once=True, ledger_dir=tmp_path)
    assert os.path.exists(tmp_path / "billing.processed.db")
    assert billing.receive() is not None
    with pytest.raises(RuntimeError, match="ack or reject the last message"):
        billing.receive()
    billing._lose()
    billing.close()
    broker.script.append(lambda: broker.channel.deliver(1))
    with pytest.raises(NotExactlyOnce, match="does not identify its messages"):
        consumer(broker, exactly_once=True, processed=tmp_path / "ids.db").receive()
