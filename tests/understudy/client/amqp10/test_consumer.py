"""The consumer over AMQP 1.0: batches of acks, what a lost connection takes along, what is written down."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("proton")

from proton import Condition, Event, EventType

from tests.failover.nodes.proxy import Cut, LinkProxy
from tests.understudy.broker_thread import BrokerThread
from tests.understudy.client.amqp10.plain import ORDERS, Exchange, Queue, declare, delete, records
from tests.understudy.client.amqp10.scripted import Scripted, Served
from tests.understudy.client.heartbeats import check_heartbeats
from tests.understudy.client.interrupts import interrupted
from understudy.client import Consumer as PlainConsumer
from understudy.client import Publisher as PlainPublisher
from understudy.client.amqp10 import Consumer, Delivery, Publisher, QueueGone, Refused

Brokers = Callable[..., BrokerThread]


def fill(broker: BrokerThread, count: int, first: int = 0) -> None:
    with Publisher(str(broker.address), "shop") as shop:
        for number in range(first, first + count):
            shop.publish(b"%d" % number, "orders")


def taken(consumer: Consumer, count: int) -> list[Delivery]:
    """That many, not acked; a connection that is lost meanwhile is one more question."""
    found: list[Delivery] = []
    for _ in range(count + 5):
        if len(found) < count and (delivery := consumer.receive(10)) is not None:
            found.append(delivery)
    assert len(found) == count
    return found


def rest(broker: BrokerThread, queue: str = "orders") -> list[bytes]:
    """What another consumer finds, in order, and takes."""
    with PlainConsumer(str(broker.address), queue, "after") as after:
        found = []
        while (delivery := after.receive(0.1)) is not None:
            found.append(bytes(delivery.body))  # type: ignore[arg-type]
            after.ack(delivery)
    return found


def test_many_messages_come_in_order_with_ids(broker: BrokerThread) -> None:
    declare(broker, ORDERS)
    fill(broker, 1234)
    with Consumer(str(broker.address), "orders", "billing") as billing:
        got = [
            (int(delivery.body), delivery.id.sequence if delivery.id else None)
            for delivery in billing.deliveries(until=lambda: billing.counts.received == 1234)
        ]
    assert got == [(number, number + 1) for number in range(1234)]
    assert (billing.counts.acked, billing.counts.redelivered) == (1234, 0)
    assert rest(broker) == []


def test_no_more_comes_than_is_asked_for(broker: BrokerThread) -> None:
    """`prefetch` counts what is not acked, as in 0-9-1, whatever was handed out."""
    declare(broker, ORDERS)
    fill(broker, 10)
    with Consumer(str(broker.address), "orders", "billing", prefetch=4, ack_every=2) as billing:
        first = taken(billing, 4)
        assert billing.receive(0.1) is None
        billing.ack(first[1])
        assert [delivery.body for delivery in taken(billing, 2)] == [b"4", b"5"]
        assert billing.receive(0.1) is None
    assert billing.counts.acked == 2
    assert rest(broker) == [b"%d" % number for number in range(2, 10)]


def test_unacked_messages_come_again_flagged(broker: BrokerThread) -> None:
    declare(broker, ORDERS)
    fill(broker, 3)
    with Consumer(str(broker.address), "orders", "hasty") as hasty:
        hasty.ack(taken(hasty, 3)[0])
    with Consumer(str(broker.address), "/queues/orders", "next") as after:
        again = taken(after, 2)
    assert [(d.body, d.redelivered) for d in again] == [(b"1", True), (b"2", True)]
    assert after.counts.redelivered == 2


def test_one_that_is_rejected_is_given_back_or_away(broker: BrokerThread) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    declare(broker, Queue("orders", queue_arguments=dead), Queue("dead"))
    fill(broker, 4)
    with Consumer(str(broker.address), "orders", "billing") as billing:
        one, two, three, four = taken(billing, 4)
        billing.ack(one)
        billing.reject(two, requeue=False)
        billing.reject(four, requeue=True)
        billing.ack(four)  # done with before: it and those before it are left as they are
        [again] = taken(billing, 1)
        assert (again.body, again.redelivered) == (b"3", True)
        billing.ack(again)
        assert again.tag not in (one.tag, two.tag, three.tag, four.tag)
    assert rest(broker) == []
    assert rest(broker, "dead") == [b"1"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_it_moves_on_to_the_next_broker(brokers: Brokers, end: str) -> None:
    first, second = brokers(1), brokers(2)
    declare(first, ORDERS)
    declare(second, ORDERS)
    fill(first, 5)
    with Consumer(f"{first.address},{second.address}", "orders", "billing") as billing:
        early = taken(billing, 3)
        getattr(first, end)()
        fill(second, 2, first=10)
        assert taken(billing, 2)[0].body == b"3", "it had come already"
        assert [delivery.body for delivery in taken(billing, 1)] == [b"10"]
        billing.ack(early[0])  # of another connection: nobody waits for it
        billing.flush()
    assert (billing.counts.received, billing.counts.acked, billing.failover.connects) == (6, 0, 2)
    assert rest(second) == [b"10", b"11"]


def test_a_broker_that_has_fallen_silent_is_given_up(brokers: Brokers) -> None:
    first, second = brokers(1), brokers(2)
    declare(first, ORDERS)
    declare(second, ORDERS)
    fill(second, 1)
    with Consumer(
        f"{first.address},{second.address}", "orders", "billing", heartbeat=0.2, connect_timeout=0.3
    ) as billing:
        billing.connect()
        with first.frozen():
            while (delivery := billing.receive(10)) is None:
                pass
            assert delivery.body == b"0" and billing.failover.address == str(second.address)


def test_the_ledgers_hold_what_came_and_what_was_acked(broker: BrokerThread, tmp_path: Path) -> None:
    declare(broker, ORDERS)
    fill(broker, 6)
    with Consumer(str(broker.address), "orders", "billing", tmp_path, ack_every=2) as billing:
        for delivery in taken(billing, 6)[:4]:
            billing.ack(delivery)
    rows = records(tmp_path, "definition", "received", "acked")
    assert [row["kind"] for row in rows] == ["definition", "received", "acked"]
    assert rows[0]["name"] == "orders"
    assert [(row["first"], row["last"]) for row in rows[1:]] == [(1, 6), (1, 4)]
    assert records(tmp_path)[-1]["kind"] == "seal"


def test_another_virtual_host_is_named_in_the_ledgers(brokers: Brokers, tmp_path: Path) -> None:
    broker = brokers(1, ("abroad",))
    there: Any = {"virtual_host": "abroad"}
    declare(broker, ORDERS, **there)
    with Publisher(str(broker.address), "shop", **there) as shop:
        shop.publish(b"x", "orders")
    with Consumer(str(broker.address), "orders", "billing", tmp_path, **there) as billing:
        taken(billing, 1)
    assert [row["name"] for row in records(tmp_path, "definition")] == ["abroad/orders"]


def test_one_long_wait_is_full_of_heartbeats(broker: BrokerThread, tmp_path: Path) -> None:
    declare(broker, ORDERS)
    with Consumer(str(broker.address), "orders", "billing", tmp_path, ledger_heartbeat=0.05) as billing:
        billing.connect(30)
        check_heartbeats(tmp_path, "billing", billing.receive)


def test_large_messages(broker: BrokerThread) -> None:
    declare(broker, ORDERS)
    bodies = [bytes([number]) * 5_000_000 for number in range(3)]
    with Publisher(str(broker.address), "shop") as shop:
        for body in bodies:
            shop.publish(body, "orders")
    with Consumer(str(broker.address), "orders", "billing") as billing:
        assert [delivery.body for delivery in taken(billing, 3)] == bodies


def test_what_kombu_published_and_the_other_way_round(broker: BrokerThread) -> None:
    declare(broker, ORDERS, Queue("mail", exchange=Exchange("news", type="topic"), routing_key="*.mail"))
    there = str(broker.address)
    with PlainPublisher(there, "plain") as plain:
        plain.publish("grüße", "shop.mail", "news", headers={"size": 7}, message_id="m1")
    with Consumer(there, "mail", "billing") as billing:
        [delivery] = taken(billing, 1)
        billing.ack(delivery)
    assert (delivery.body, delivery.properties.message_id) == ("grüße", "m1")
    assert (delivery.headers, delivery.exchange, delivery.routing_key) == ({"size": 7}, "news", "shop.mail")
    with Publisher(there, "shop") as shop:
        shop.publish("grüße", "/exchanges/news/a.mail", headers={"size": 8}, correlation_id="c1", priority=3)
    with PlainConsumer(there, "mail", "reader") as reader:
        got = reader.receive(10)
    assert got is not None
    assert (got.body, got.headers["size"], got.properties["correlation_id"]) == ("grüße", 8, "c1")


def test_a_missing_queue_is_an_error(broker: BrokerThread) -> None:
    with Consumer(str(broker.address), "missing", "billing") as billing:
        with pytest.raises(Refused, match="missing") as caught:
            billing.receive(5.0)
        assert caught.value.condition == "amqp:not-found"


def test_a_deleted_queue_ends_the_consumer(broker: BrokerThread) -> None:
    declare(broker, ORDERS)
    with Consumer(str(broker.address), "orders", "billing") as billing:
        billing.connect()
        delete(broker, ORDERS)
        with pytest.raises(QueueGone):
            billing.receive(5.0)


def test_what_was_handled_before_its_queue_went_is_not_said_to_be_acked(
    broker: BrokerThread, tmp_path: Path
) -> None:
    """What had come is handed out, then QueueGone is raised, however often."""
    declare(broker, ORDERS)
    fill(broker, 4)
    with Consumer(str(broker.address), "orders", "billing", tmp_path, prefetch=50) as billing:
        first, second = taken(billing, 2)
        billing.ack(first)
        delete(broker, ORDERS)
        billing.failover.wait(10, billing._pulse)
        billing.ack(second)
        billing.reject(second, requeue=True)
        assert [delivery.body for delivery in taken(billing, 2)] == [b"2", b"3"]
        for _ in range(2):
            with pytest.raises(QueueGone):
                billing.receive(0)
        billing.flush()
    assert (billing.counts.acked, records(tmp_path, "acked")) == (0, [])


def test_a_permission_that_is_taken_away_is_an_error(broker: BrokerThread) -> None:
    """Nothing is acked that was not handed out, and the next try says it again."""

    def script(_served: Served, kind: EventType, what: Any) -> None:
        if kind is Event.LINK_REMOTE_OPEN:
            what.source.copy(what.remote_source)
            what.open()
            what.condition = Condition("amqp:unauthorized-access", "not any more")
            what.close()

    with Scripted(script) as peer, Consumer(peer.address, "orders", "billing") as billing:
        for _ in range(2):
            with pytest.raises(Refused, match="consuming from queue 'orders': not any more"):
                billing.receive(5)


def test_an_interrupt_at_any_place_acks_nothing_that_nobody_saw(broker: BrokerThread) -> None:
    declare(broker, ORDERS)
    at, more = 0, True
    seen: set[int] = set()
    while more:
        at += 1
        fill(broker, 4, first=4 * at)
        there = set(range(4 * at, 4 * at + 4))
        with Consumer(str(broker.address), "orders", "billing", ack_every=2, ack_interval=60.0) as billing:
            billing.connect()

            def handle(delivery: Delivery | None) -> None:
                if delivery is not None:
                    seen.add(int(delivery.body))
                    billing.ack(delivery)

            def one_by_one(there: set[int] = there) -> None:
                while not there <= seen:
                    handle(billing.receive(5))

            more = interrupted(at, one_by_one)
            while not there <= seen:
                delivery = billing.receive(1) or billing.receive(1)
                missing = sorted(there - seen)
                assert delivery is not None, (
                    f"{missing} are gone, and nobody saw them: interrupted at place {at}"
                )
                handle(delivery)
    assert at > 100


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="exchange"):
        Consumer("127.0.0.1:1", "/exchanges/shop/key", "billing")
    with pytest.raises(ValueError, match="none of NAME"):
        Consumer("127.0.0.1:1", "/nowhere", "billing")
    with pytest.raises(ValueError, match="prefetch"):
        Consumer("127.0.0.1:1", "orders", "billing", prefetch=10, ack_every=20)
    with pytest.raises(ValueError, match="prefetch"):
        Consumer("127.0.0.1:1", "orders", "billing", prefetch=0, ack_every=0)


@pytest.mark.parametrize("how", ["RST", "FIN"])
def test_connections_that_are_cut_after_any_number_of_bytes(
    broker: BrokerThread, tmp_path: Path, how: Cut
) -> None:
    """All is handed out, the first time in order; a second time only flagged; and all is acked in the end."""
    declare(broker, ORDERS)
    fill(broker, 600)
    draw = random.Random(how)
    seen: dict[int, None] = {}
    with LinkProxy(broker.address) as proxy:

        def let_in() -> bool:
            proxy.disarm()
            return False

        with Consumer(
            str(proxy.address), "orders", "billing", tmp_path, retry=0.001, given_up=let_in, ack_every=10
        ) as billing:
            for delivery in billing.deliveries(until=lambda: len(seen) == 600):
                number = int(delivery.body)
                assert delivery.redelivered or number not in seen
                seen[number] = None
                if draw.random() < 0.05:
                    proxy.arm(draw.randrange(1, 20_000), how)
            proxy.disarm()
            billing.flush()
    assert list(seen) == list(range(600))
    assert billing.failover.connects > 1
    received = sum(r["last"] - r["first"] + 1 for r in records(tmp_path, "received"))
    assert received == billing.counts.received >= 600
