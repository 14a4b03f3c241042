"""The consumer of the client kit: batches of acks, what a lost connection takes along, what is written
down.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.understudy.client.fake_broker import FakeFailover, broker_dies
from understudy.client import Consumer, QueueGone
from understudy.client.ledgers import ReplicationId, parse_replication_id

QUEUE = "0123456789abcdef0123456789abcdef"


def consumer(broker: FakeFailover, **arguments: Any) -> Consumer:
    made = Consumer("127.0.0.1:1", "orders", "billing", **arguments)
    made.failover = broker  # type: ignore[assignment]
    return made


def arrivals(broker: FakeFailover, *sequences: int, epoch: int = 65537, redelivered: bool = False) -> None:
    """A step of the script: messages of these sequences arrive; delivery tags count from 1, as ever."""

    def arrive() -> None:
        for sequence in sequences:
            channel = broker.channel
            channel.delivered += 1
            channel.deliver(channel.delivered, f"{QUEUE}:{epoch}:{sequence}", redelivered=redelivered)

    broker.script.append(arrive)


def ledgers(directory: Path, kind: str) -> list[tuple[int, int, int, str | None]]:
    (path,) = directory.glob("*.ledger.jsonl")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [(r["epoch"], r["first"], r["last"], r.get("reason")) for r in found if r["kind"] == kind]


def test_it_asks_for_ids_and_a_prefetch() -> None:
    broker = FakeFailover()
    arrivals(broker, 1)
    billing = consumer(broker, prefetch=100)
    delivery = billing.receive()
    assert delivery is not None
    assert delivery.id == ReplicationId(QUEUE, 65537, 1)
    assert str(delivery.id) == f"{QUEUE}:65537:1"
    assert broker.channel.prefetch == 100
    assert broker.channel.consuming["queue"] == "orders"
    assert broker.channel.consuming["arguments"] == {"x-replication-id": True}


def test_a_slow_consumer_is_not_silent_while_it_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With deliveries at hand, too: nothing is waited for then."""
    now = 100.0
    monkeypatch.setattr("understudy.client.ledgers.time.monotonic", lambda: now)
    broker = FakeFailover()
    arrivals(broker, 1, 2, 3, 4)
    billing = consumer(broker, ledger_dir=tmp_path)
    for now in (100.0, 103.0, 106.0, 109.0):  # noqa: B007
        assert billing.receive() is not None
    (path,) = tmp_path.glob("*.ledger.jsonl")
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert kinds.count("received") + kinds.count("heartbeat") >= 3


def test_a_stall_does_not_date_what_was_handed_out_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have come again to somebody else meanwhile, and be acked: no delivery after its ack."""
    broker = FakeFailover()
    arrivals(broker, 1, 2)
    billing = consumer(broker, ledger_dir=tmp_path)
    began = time.time_ns() // 1000
    monkeypatch.setattr("understudy.client.ledgers.wall_microseconds", lambda: began)
    billing.receive()
    monkeypatch.setattr("understudy.client.ledgers.wall_microseconds", lambda: began + 60_000_000)
    billing.receive()
    billing.flush()
    (path,) = tmp_path.glob("*.ledger.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(r["first"], r["ts_us"]) for r in rows if r["kind"] == "received"] == [(1, began)]


def test_acks_go_in_batches_and_cover_what_was_handed_out() -> None:
    broker = FakeFailover()
    arrivals(broker, *range(1, 8))
    billing = consumer(broker, ack_every=3, ack_interval=60.0)
    for _ in range(7):
        delivery = billing.receive()
        assert delivery is not None
        billing.ack(delivery)
    assert broker.channel.acks == [(3, True), (6, True)]
    billing.close()
    assert broker.channel.acks == [(3, True), (6, True), (7, True)]
    assert billing.counts.acked == 7


def test_what_is_not_handled_is_not_acked() -> None:
    broker = FakeFailover()
    arrivals(broker, 1, 2, 3)
    billing = consumer(broker, ack_every=10, prefetch=10)
    first = billing.receive()
    billing.receive()
    assert first is not None
    billing.ack(first)
    billing.close()
    assert broker.channel.acks == [(1, True)]


def test_a_wait_acks_what_is_due() -> None:
    broker = FakeFailover()
    arrivals(broker, 1)
    arrivals(broker)
    billing = consumer(broker, ack_interval=0.01)
    delivery = billing.receive()
    assert delivery is not None
    billing.ack(delivery)
    assert billing.receive(1.0) is None
    assert broker.channel.acks == [(1, True)]


def test_a_lost_connection_takes_acks_and_undelivered_messages_along() -> None:
    broker = FakeFailover()
    arrivals(broker, 1, 2, 3)
    billing = consumer(broker)
    first = billing.receive()
    assert first is not None
    billing.ack(first)
    second = billing.receive()
    assert second is not None
    third = billing.receive()
    broker.script.append(broker_dies)
    assert billing.receive() is None
    billing.ack(second)  # of a connection that is gone: nothing to say
    assert third is not None
    billing.reject(third, requeue=True)
    arrivals(broker, 1, 2, redelivered=True)
    again = billing.receive()
    assert again is not None
    assert again.redelivered
    billing.ack(again)
    billing.close()
    assert broker.channels[0].acks == []
    assert broker.channels[1].acks == [(1, True)]
    assert (billing.counts.received, billing.counts.redelivered, billing.counts.acked) == (4, 1, 1)


def test_a_reject_sends_the_acks_before_it() -> None:
    broker = FakeFailover()
    arrivals(broker, 1, 2)
    billing = consumer(broker)
    first, second = billing.receive(), billing.receive()
    assert first is not None
    assert second is not None
    billing.ack(first)
    billing.reject(second, requeue=False)
    assert broker.channel.acks == [(1, True)]
    assert broker.channel.rejects == [(2, False)]


def test_the_loop_acks_each_message_once_the_next_is_asked_for() -> None:
    broker = FakeFailover()
    arrivals(broker, 1, 2, 3)
    billing = consumer(broker)
    seen: list[int] = []
    for delivery in billing.deliveries(until=lambda: len(seen) == 3):
        seen.append(delivery.tag)
    billing.close()
    assert seen == [1, 2, 3]
    assert broker.channel.acks == [(3, True)]


def test_a_deleted_queue_is_told_after_what_had_arrived() -> None:
    broker = FakeFailover()
    arrivals(broker, 1)
    broker.script.append(lambda: broker.channel.consuming["on_cancel"]("tag"))
    billing = consumer(broker)
    assert billing.receive() is not None
    with pytest.raises(QueueGone, match="orders"):
        billing.receive()


def test_a_queue_that_the_next_broker_has_is_not_gone() -> None:
    broker = FakeFailover()

    def deleted_and_dead() -> None:
        broker.channel.consuming["on_cancel"]("tag")
        broker_dies()

    broker.script.append(deleted_and_dead)
    arrivals(broker)
    arrivals(broker, 1)
    billing = consumer(broker)
    assert [billing.receive(), billing.receive()] == [None, None]
    assert billing.receive() is not None


def test_the_ledgers_keep_arrival_order_and_gather_acks(tmp_path: Path) -> None:
    broker = FakeFailover()
    arrivals(broker, 1, 2, 3, 5, 4, 6)
    arrivals(broker, 3, 4, epoch=131073, redelivered=True)
    billing = consumer(broker, ledger_dir=tmp_path)
    for _ in range(8):
        delivery = billing.receive()
        assert delivery is not None
        billing.ack(delivery)
    billing.close()
    assert ledgers(tmp_path, "received") == [
        (65537, 1, 3, None),
        (65537, 5, 5, None),
        (65537, 4, 4, None),
        (65537, 6, 6, None),
        (131073, 3, 4, "redelivered"),
    ]
    assert ledgers(tmp_path, "acked") == [(65537, 1, 6, None), (131073, 3, 4, None)]


def test_what_an_ack_covers_is_in_the_ledgers_and_counted(tmp_path: Path) -> None:
    """It is acked at the broker: if that one's ledger ends too early, ours is the only witness."""
    broker = FakeFailover()
    arrivals(broker, 1, 2, 3, 4, 5)
    billing = consumer(broker, ledger_dir=tmp_path)
    deliveries = [billing.receive() for _ in range(4)]
    assert deliveries[1] is not None and deliveries[3] is not None
    billing.reject(deliveries[1], requeue=False)
    billing.ack(deliveries[3])
    billing.close()
    assert broker.channel.acks == [(4, True)]
    assert billing.counts.acked == 3
    assert ledgers(tmp_path, "acked") == [(65537, 1, 1, None), (65537, 3, 4, None)]


@pytest.mark.parametrize("what", ["basic_ack", "basic_reject"])
def test_an_interrupt_in_the_middle_of_an_ack_costs_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Half a frame may have left. What was not said comes again, and is not in the ledgers as acked."""
    broker = FakeFailover()
    arrivals(broker, 1, 2)
    billing = consumer(broker, ledger_dir=tmp_path, ack_every=1)
    delivery = billing.receive()
    assert delivery is not None

    def interrupt(*_arguments: Any, **_more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(broker.channel, what, interrupt)
    with pytest.raises(KeyboardInterrupt):
        billing.ack(delivery) if what == "basic_ack" else billing.reject(delivery, requeue=True)
    assert not broker.connected
    arrivals(broker, 1, 2, redelivered=True)
    for _ in range(2):
        again = billing.receive()
        assert again is not None and again.redelivered
        billing.ack(again)
    billing.close()
    assert (billing.counts.acked, broker.channels[1].acks) == (2, [(1, True), (2, True)])
    assert ledgers(tmp_path, "acked") == [(65537, 1, 2, None)]


def test_any_number_of_rejects_is_remembered() -> None:
    """The broker would close the channel for a second word on any of them."""
    broker = FakeFailover()
    arrivals(broker, *range(1, 101))
    billing = consumer(broker, ack_every=1)
    deliveries = [delivery for _ in range(100) if (delivery := billing.receive()) is not None]
    for delivery in deliveries:
        billing.reject(delivery, requeue=False)
    for delivery in deliveries:
        billing.ack(delivery)
    assert (len(broker.channel.rejects), broker.channel.acks) == (100, [])


def test_ids_that_are_none() -> None:
    """From a broker that gives no ids the header is a publisher's own, and may be anything."""
    assert parse_replication_id(f"{QUEUE}:1:2") == ReplicationId(QUEUE, 1, 2)
    odd = (f"{QUEUE}:²:1", f"{QUEUE}:1:{'9' * 5000}", 'a"b:1:2', f"{QUEUE}:1:2\n")
    for wrong in (None, 7, "", "a:b", f"{QUEUE}:1", f"{QUEUE}:x:1", f"{QUEUE}:1:2:3", *odd):
        assert parse_replication_id(wrong) is None


def test_a_prefetch_below_the_ack_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="prefetch"):
        Consumer("127.0.0.1:1", "orders", "billing", prefetch=10, ack_every=50)


def test_a_message_rejected_in_the_loop_is_not_acked_by_the_loop() -> None:
    """The broker would close the channel for the ack of a tag that is settled."""
    broker = FakeFailover()
    arrivals(broker, *range(1, 5))
    billing = consumer(broker, ack_every=1)
    seen = iter(billing.deliveries(until=lambda: billing.counts.received == 4))
    for delivery in seen:
        if delivery.tag == 3:
            billing.reject(delivery, requeue=False)
    assert broker.channel.acks == [(1, True), (2, True), (4, True)]
    assert billing.counts.acked == 3


def test_what_is_done_with_is_acked_once_whatever_the_order() -> None:
    broker = FakeFailover()
    arrivals(broker, *range(1, 5))
    billing = consumer(broker, ack_every=10)
    first, second, third, fourth = (billing.receive() for _ in range(4))
    assert first and second and third and fourth
    for delivery in (third, first, third):
        billing.ack(delivery)
    billing.flush()
    billing.ack(second)
    billing.reject(third, requeue=True)
    billing.ack(fourth)
    billing.flush()
    assert broker.channel.acks == [(3, True), (4, True)]


def test_nothing_comes_once_it_is_closed() -> None:
    """The ledger is sealed: what was handed out now would not be in it."""
    broker = FakeFailover()
    arrivals(broker, 1, 2)
    billing = consumer(broker)
    seen: list[int] = []
    for delivery in billing.deliveries():
        seen.append(delivery.tag)
        billing.close()
    for late in (billing.receive, billing.connect):
        with pytest.raises(RuntimeError, match="closed"):
            late()
    assert (seen, len(broker.channels), broker.channel.acks) == ([1], 1, [])


def test_a_close_that_is_interrupted_seals_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FakeFailover()
    arrivals(broker, 1)
    billing = consumer(broker, ledger_dir=tmp_path)
    billing.receive()

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(broker, "close", interrupt)
    with pytest.raises(KeyboardInterrupt):
        billing.close()
    (path,) = tmp_path.glob("*.ledger.jsonl")
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert (kinds[-2:], ledgers(tmp_path, "received")) == (["received", "seal"], [(65537, 1, 1, None)])
