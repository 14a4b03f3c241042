"""The client kit with real py-amqp, over real sockets, against real brokers in threads of this process."""

from __future__ import annotations

import json
import math
import select
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import kombu.entity
import pytest
from amqp.exceptions import AccessRefused, AMQPError, NotAllowed, NotFound

from tests.understudy.broker_thread import BrokerThread
from tests.understudy.client.heartbeats import check_heartbeats
from understudy.client import ConnectFailed, Consumer, Publisher, QueueGone, Refused

ORDERS: Any = getattr(kombu.entity, "Queue")("orders", durable=True)  # noqa: B009 (kombu is half typed)


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as running:
        yield running


def test_many_messages_go_through_in_order_with_ids(broker: BrokerThread) -> None:
    count = 1234
    with Publisher(str(broker.address), "shop", declare=[ORDERS], window=100) as shop:
        for number in range(count):
            shop.publish(b"%d" % number, "orders")
    assert (shop.counts.confirmed, shop.in_doubt) == (count, 0)
    with Consumer(str(broker.address), "orders", "billing") as billing:
        got = [
            (int(delivery.body), delivery.id.sequence if delivery.id else None)
            for delivery in billing.deliveries(until=lambda: billing.counts.received == count)
        ]
    assert got == [(number, number + 1) for number in range(count)]
    assert billing.counts.acked == count


def test_what_a_callback_publishes_follows_earlier_messages(broker: BrokerThread, tmp_path: Path) -> None:
    """py-amqp would read a frame within each publish, and the callback's message leave before that."""
    with Publisher(str(broker.address), "shop", tmp_path, declare=[ORDERS]) as shop:
        shop._hear_every = math.inf
        shop._on_return = lambda *_: shop.publish(b"by the callback", "orders")
        shop.publish(b"returned", "nowhere", mandatory=True)
        arrived = select.poll()
        arrived.register(shop.failover.connection.connection.sock, select.POLLIN)
        assert arrived.poll(20_000)
        shop.publish(b"by the caller", "orders")
        shop.flush(20)
    with Consumer(str(broker.address), "orders", "billing") as billing:
        until = lambda: billing.counts.received == 2  # noqa: E731
        assert [d.body for d in billing.deliveries(until=until)] == [b"by the caller", b"by the callback"]
    records = [json.loads(line) for line in (next(tmp_path.iterdir())).read_text().splitlines()]
    runs = [r for r in records if r["kind"] == "sent"]
    assert all(r["first"] == r["pfirst"] for r in runs)
    assert [r["name"] for r in runs for _ in range(r["first"], r["last"] + 1)] == [
        "|nowhere", "|orders", "|orders",
    ]  # fmt: skip


def test_a_consumer_of_another_virtual_host_says_so_in_its_ledger(tmp_path: Path) -> None:
    with BrokerThread(vhosts=("abroad",)) as broker:
        there: Any = {"virtual_host": "abroad", "declare": [ORDERS]}
        with Publisher(str(broker.address), "shop", **there) as shop:
            shop.publish(b"x", "orders")
        with Consumer(str(broker.address), "orders", "billing", tmp_path, **there) as billing:
            assert billing.receive(10) is not None
    (path,) = tmp_path.iterdir()
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["name"] for r in records if r["kind"] == "definition"] == ["abroad/orders"]


def test_one_long_wait_is_full_of_heartbeats(broker: BrokerThread, tmp_path: Path) -> None:
    with Consumer(
        str(broker.address), "orders", "billing", tmp_path, declare=[ORDERS], ledger_heartbeat=0.05
    ) as billing:
        billing.connect(30)
        check_heartbeats(tmp_path, "billing", billing.receive)
    with Publisher(str(broker.address), "shop", tmp_path, ledger_heartbeat=0.05) as shop:
        shop.connect(30)
        check_heartbeats(tmp_path, "shop", shop.poll)
    for path in tmp_path.iterdir():
        kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
        assert (kinds[0], kinds[-1]) == ("open", "seal"), kinds


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_publisher_moves_on_to_the_next_broker_with_what_is_in_doubt(end: str) -> None:
    with BrokerThread(1) as first, BrokerThread(2) as second:
        with Publisher(f"{first.address},{second.address}", "shop", declare=[ORDERS]) as shop:
            for number in range(300):
                shop.publish(b"%d" % number, "orders")
                if number == 150:
                    getattr(first, end)()
        assert (shop.counts.published, shop.counts.confirmed) == (300, 300)
        assert shop.failover.connects == 2
        assert len(shop.failover.outages) == 1
        sure = 300 - _first_number(second)
        assert _numbers(second, sure) == list(range(300 - sure, 300))


def _first_number(broker: BrokerThread) -> int:
    with Consumer(str(broker.address), "orders", "peek") as peek:
        delivery = peek.receive(5.0)
        assert delivery is not None
        return int(delivery.body)


def _numbers(broker: BrokerThread, count: int) -> list[int]:
    with Consumer(str(broker.address), "orders", "all") as everything:
        return [int(d.body) for d in everything.deliveries(until=lambda: everything.counts.received == count)]


def test_unacked_messages_come_again_flagged(broker: BrokerThread) -> None:
    with Publisher(str(broker.address), "shop", declare=[ORDERS]) as shop:
        for number in range(3):
            shop.publish(b"%d" % number, "orders")
    with Consumer(str(broker.address), "orders", "hasty") as hasty:
        taken = [hasty.receive(5.0) for _ in range(3)]
        assert taken[0] is not None
        hasty.ack(taken[0])
    with Consumer(str(broker.address), "orders", "next") as after:
        again = [after.receive(5.0) for _ in range(2)]
    assert [(d.body, d.redelivered) for d in again if d is not None] == [(b"1", True), (b"2", True)]


def test_a_mandatory_message_that_nobody_wants_comes_back(broker: BrokerThread) -> None:
    returned: list[tuple[int, int, str]] = []
    with Publisher(
        str(broker.address), "shop", declare=[ORDERS], on_return=lambda *what: returned.append(what)
    ) as shop:
        shop.publish(b"wanted", "orders", mandatory=True)
        shop.publish(b"unwanted", "nowhere", mandatory=True)
        shop.publish(b"wanted too", "orders")
    assert [(sequence, code) for sequence, code, _ in returned] == [(2, 312)]
    assert (shop.counts.confirmed, shop.counts.returned) == (2, 1)


def test_a_missing_exchange_is_an_error_and_no_endless_retry(broker: BrokerThread) -> None:
    shop = Publisher(str(broker.address), "shop")
    shop.publish(b"lost", "key", exchange="missing")
    with pytest.raises(Refused, match=r"404 .*missing"):
        shop.flush(timeout=10)
    shop.close()


def test_a_missing_queue_is_an_error(broker: BrokerThread) -> None:
    with (
        Consumer(str(broker.address), "missing", "billing") as billing,
        pytest.raises(NotFound, match="missing"),
    ):
        billing.receive(5.0)


def test_a_deleted_queue_ends_the_consumer(broker: BrokerThread) -> None:
    with Consumer(str(broker.address), "orders", "billing", declare=[ORDERS]) as billing:
        billing.connect()
        other = Publisher(str(broker.address), "other")
        other.connect()
        ORDERS(other._session.channel).delete()  # type: ignore[union-attr]
        with pytest.raises(QueueGone):
            billing.receive(5.0)
        other.close()


def test_wrong_credentials_are_an_error_at_once(broker: BrokerThread) -> None:
    shop = Publisher(str(broker.address), "shop", password="wrong")
    with pytest.raises(AccessRefused):
        shop.connect(timeout=30)
    shop.close()


def test_a_virtual_host_that_is_not_there_is_an_error_at_once(broker: BrokerThread) -> None:
    shop = Publisher(str(broker.address), "shop", virtual_host="nowhere")
    with pytest.raises(NotAllowed, match="nowhere"):
        shop.connect(timeout=30)
    billing = Consumer(str(broker.address), "orders", "billing", virtual_host="nowhere")
    with pytest.raises(NotAllowed, match="nowhere"):
        billing.connect(timeout=30)


def test_a_declaration_that_ends_the_connection_is_not_retried(
    broker: BrokerThread,
) -> None:
    odd: Any = getattr(kombu.entity, "Exchange")("odd", type="no-such-type")  # noqa: B009
    shop = Publisher(str(broker.address), "shop", declare=[odd], given_up=lambda: True)
    begun: list[int] = []
    begin = shop._begin

    def count(deadline: float | None) -> Any:
        begun.append(1)
        assert len(begun) == 1, "it is tried again"
        return begin(deadline)

    shop._begin = count  # type: ignore[method-assign]
    with pytest.raises(AMQPError, match="no-such-type"):
        shop.connect()
    assert shop.failover.connection is None


def test_no_broker_at_all_is_given_up_when_told() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        shop = Publisher(address, "shop")
        with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1"):
            shop.connect(timeout=0.1)
        asked: list[int] = []

        def given_up() -> bool:
            asked.append(1)
            return len(asked) > 2

        impatient = Publisher(address, "shop", given_up=given_up)
        with pytest.raises(ConnectFailed):
            impatient.publish(b"x", "q")
        assert len(asked) == 3
