"""The publisher over AMQP 1.0: what it keeps, what it sends again and in which order, what it writes down."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("proton")

from tests.failover.nodes.proxy import Cut, LinkProxy
from tests.understudy.broker_thread import BrokerThread
from tests.understudy.client.amqp10.plain import ORDERS, Exchange, Queue, declare, delete, records
from tests.understudy.client.heartbeats import check_heartbeats
from understudy.client import Consumer as PlainConsumer
from understudy.client.amqp10 import ConnectFailed, NotConfirmed, Publisher, Refused

Brokers = Callable[..., BrokerThread]
SMALL: Any = Queue("small", queue_arguments={"x-max-length": 2, "x-overflow": "reject-publish"})


def numbers(broker: BrokerThread, queue: str, count: int) -> list[int]:
    """Bodies, as a consumer of the kombu kit gets them."""
    with PlainConsumer(str(broker.address), queue, "reader") as reader:
        return [int(d.body) for d in reader.deliveries(until=lambda: reader.counts.received == count)]


def tags(folder: Path, kind: str) -> list[tuple[str, int]]:
    """(`CONNECTION/LINK` of the session, tag), one by one, of the records of this kind."""
    return [
        (str(record["prod"]).rsplit(".", 1)[1], tag)
        for record in records(folder, kind)
        for tag in range(record["first"], record["last"] + 1)
    ]


def own_numbers(folder: Path) -> list[int]:
    """As they were sent."""
    found: list[int] = []
    for record in records(folder, "sent"):
        found += range(record["pfirst"], record["pfirst"] + record["last"] - record["first"] + 1)
    return found


def test_many_messages_go_through_in_order(broker: BrokerThread) -> None:
    declare(broker, ORDERS)
    with Publisher(str(broker.address), "shop", window=100) as shop:
        assert [shop.publish(b"%d" % number, "orders") for number in range(1234)] == list(range(1, 1235))
        assert shop.in_doubt <= 100
    assert (shop.counts.published, shop.counts.confirmed, shop.in_doubt) == (1234, 1234, 0)
    assert numbers(broker, "orders", 1234) == list(range(1234))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_it_moves_on_to_the_next_broker_with_what_is_in_doubt(brokers: Brokers, end: str) -> None:
    first, second = brokers(1), brokers(2)
    declare(first, ORDERS)
    declare(second, ORDERS)
    with Publisher(f"{first.address},{second.address}", "shop") as shop:
        for number in range(300):
            shop.publish(b"%d" % number, "orders")
            if number == 150:
                getattr(first, end)()
    assert (shop.counts.published, shop.counts.confirmed) == (300, 300)
    assert shop.failover.connects == 2 and len(shop.failover.outages) == 1
    with PlainConsumer(str(second.address), "orders", "peek") as peek:
        delivery = peek.receive(5.0)
        assert delivery is not None
        sure = int(delivery.body)
    assert numbers(second, "orders", 300 - sure) == list(range(sure, 300))


def test_a_broker_that_has_fallen_silent_is_given_up(brokers: Brokers) -> None:
    first, second = brokers(1), brokers(2)
    declare(first, ORDERS)
    declare(second, ORDERS)
    both = f"{first.address},{second.address}"
    with Publisher(both, "shop", heartbeat=0.2, connect_timeout=0.3) as shop:
        shop.publish(b"0", "orders")
        shop.flush(10)
        with first.frozen():
            for number in range(1, 50):
                shop.publish(b"%d" % number, "orders")
            shop.flush(10)
            assert shop.failover.address == str(second.address)
    assert (shop.counts.confirmed, shop.counts.resent) == (50, 49)
    assert numbers(second, "orders", 49) == list(range(1, 50))


def test_what_nobody_wants_is_told_and_not_among_the_confirmed(broker: BrokerThread, tmp_path: Path) -> None:
    declare(broker, Queue("orders", exchange=Exchange("shop", type="direct"), routing_key="orders"))
    told: list[int] = []
    with Publisher(str(broker.address), "shop", tmp_path, on_return=told.append) as shop:
        for key in ("orders", "nothing", "nothing", "orders"):
            shop.publish(b"x", f"/exchanges/shop/{key}")
    assert told == [2, 3]
    assert (shop.counts.confirmed, shop.counts.returned, shop.in_doubt) == (2, 2, 0)
    assert tags(tmp_path, "returned") == [("1/2", 1), ("1/2", 2)]
    assert tags(tmp_path, "sent") == [("1/1", 1), ("1/2", 1), ("1/2", 2), ("1/1", 2)]
    assert own_numbers(tmp_path) == [1, 2, 3, 4]
    routes = [record["name"] for record in records(tmp_path, "sent")]
    assert sorted(set(routes)) == ["shop|nothing", "shop|orders"]


def test_what_a_full_queue_refuses_is_told_and_not_sent_again(broker: BrokerThread) -> None:
    declare(broker, SMALL)
    told: list[tuple[int, str]] = []
    with Publisher(
        str(broker.address), "shop", on_nack=lambda number, condition, _text: told.append((number, condition))
    ) as shop:
        for _ in range(4):
            shop.publish(b"x", "small")
    assert told == [(3, "amqp:resource-limit-exceeded"), (4, "amqp:resource-limit-exceeded")]
    assert (shop.counts.confirmed, shop.counts.nacked, shop.in_doubt) == (2, 2, 0)


def test_one_may_publish_when_told_of_a_refusal(broker: BrokerThread) -> None:
    declare(broker, SMALL, ORDERS)

    def elsewhere(_number: int, _condition: str, _text: str) -> None:
        shop.publish(b"spilled", "orders")

    with Publisher(str(broker.address), "shop", window=10, on_nack=elsewhere) as shop:
        for _ in range(30):
            shop.publish(b"x", "small")
    assert (shop.counts.confirmed, shop.counts.nacked, shop.in_doubt) == (30, 28, 0)


def test_callbacks_may_publish_and_flush_however_many_refusals_there_are(broker: BrokerThread) -> None:
    """None is called from within another, however deep that would be."""
    declare(broker, SMALL, ORDERS)
    told: list[int] = []
    depth = 0

    def elsewhere(number: int, _condition: str, _text: str) -> None:
        nonlocal depth
        depth += 1
        assert depth == 1
        told.append(number)
        shop.publish(b"more", "small" if len(told) < 1500 else "orders")
        shop.flush(10)
        depth -= 1

    with Publisher(str(broker.address), "shop", on_nack=elsewhere) as shop:
        for _ in range(3):
            shop.publish(b"x", "small")
    assert told == sorted(told) and len(told) == 1500
    assert (shop.counts.confirmed, shop.counts.nacked, shop.in_doubt) == (3, 1500, 0)


def test_what_a_callback_raises_reaches_the_caller_and_costs_nothing_else(broker: BrokerThread) -> None:
    declare(broker, SMALL)
    told: list[int] = []

    def spool(number: int, _condition: str, _text: str) -> None:
        told.append(number)
        if number == 3:
            raise OSError("disk full")

    shop = Publisher(str(broker.address), "shop", on_nack=spool)
    for _ in range(2):
        shop.publish(b"x", "small")
    with pytest.raises(OSError, match="disk full"):
        shop.publish(b"x", "small")
        shop.flush(10)
    shop.publish(b"x", "small")
    shop.flush(10)
    assert (told, shop.counts.nacked, shop.counts.resent, shop.failover.connects) == ([3, 4], 2, 0, 1)
    shop.close()


def test_a_callback_may_close_the_publisher(broker: BrokerThread) -> None:
    declare(broker, SMALL)
    shop = Publisher(str(broker.address), "shop", on_nack=lambda *_: shop.close())
    for _ in range(3):
        shop.publish(b"x", "small")
    shop.flush(10)
    assert (shop.counts.nacked, shop.in_doubt) == (1, 0)


def test_order_holds_over_two_addresses_of_a_queue(broker: BrokerThread, tmp_path: Path) -> None:
    """Large messages need many frames: those of another link must not come between."""
    declare(broker, ORDERS, Queue("orders", exchange=Exchange("shop", type="fanout"), durable=True))
    pad = b" " * 3_000_000
    with Publisher(str(broker.address), "shop", tmp_path) as shop:
        for number in range(40):
            body = b"%d" % number + (pad if number % 8 == 0 else b"")
            shop.publish(body, ("orders", "/exchanges/shop")[number % 2])
    assert numbers(broker, "orders", 40) == list(range(40))


def test_more_addresses_than_links_that_are_kept(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("understudy.client.amqp10.publisher.LINKS", 3)
    declare(broker, *(Queue(f"q{number}") for number in range(8)))
    with Publisher(str(broker.address), "shop", tmp_path) as shop:
        for number in range(64):
            shop.publish(b"%d" % number, f"/queues/q{number % 8}")
    assert shop.counts.confirmed == 64
    for queue in range(8):
        assert numbers(broker, f"q{queue}", 8) == list(range(queue, 64, 8))
    sent = records(tmp_path, "sent")
    assert {record["first"] for record in sent} == {1}, "a link that is made anew is a new session"
    assert len({record["prod"] for record in sent}) == 64


def test_the_ledgers_hold_sessions_numbers_and_own_numbers(brokers: Brokers, tmp_path: Path) -> None:
    first, second = brokers(1), brokers(2)
    declare(first, ORDERS)
    declare(second, ORDERS)
    with Publisher(f"{first.address},{second.address}", "shop", tmp_path) as shop:
        for number in range(4):
            shop.publish(b"%d" % number, "orders")
        shop.flush(10)
        first.kill()
        shop.publish(b"new", "orders")
    everything = [("1/1", 1), ("1/1", 2), ("1/1", 3), ("1/1", 4), ("2/1", 1)]
    sent, numbered = tags(tmp_path, "sent"), own_numbers(tmp_path)
    assert sent[:4] + sent[-1:] == everything and numbered[:4] + numbered[-1:] == [1, 2, 3, 4, 5]
    assert tags(tmp_path, "confirmed") == everything
    rows = records(tmp_path)
    assert (rows[0]["kind"], rows[-1]["kind"]) == ("open", "seal")
    assert [record["wseq"] for record in rows] == list(range(len(rows)))


def test_one_long_wait_is_full_of_heartbeats(broker: BrokerThread, tmp_path: Path) -> None:
    with Publisher(str(broker.address), "shop", tmp_path, ledger_heartbeat=0.05) as shop:
        shop.connect(30)
        check_heartbeats(tmp_path, "shop", shop.poll)


def test_flush_says_how_many_are_not_confirmed_and_keeps_them(broker: BrokerThread) -> None:
    declare(broker, ORDERS)
    with Publisher(str(broker.address), "shop") as shop:
        shop.publish(b"1", "orders")
        shop.flush(10)
        with broker.frozen():
            shop.publish(b"2", "orders")
            with pytest.raises(NotConfirmed, match="1 message"):
                shop.flush(timeout=0.01)
    assert shop.counts.confirmed == 2


def test_a_queue_that_is_deleted_meanwhile(broker: BrokerThread) -> None:
    """The address stays good, as in 0-9-1: nobody wants what comes."""
    declare(broker, ORDERS)
    with Publisher(str(broker.address), "shop") as shop:
        shop.publish(b"1", "orders")
        shop.flush(10)
        delete(broker, ORDERS)
        shop.publish(b"2", "orders")
    assert (shop.counts.confirmed, shop.counts.returned) == (1, 1)


def test_a_virtual_host(brokers: Brokers) -> None:
    broker = brokers(1, ("abroad",))
    declare(broker, ORDERS, virtual_host="abroad")
    with Publisher(str(broker.address), "shop", virtual_host="abroad") as shop:
        shop.publish(b"x", "orders")
    assert shop.counts.confirmed == 1
    with pytest.raises(Refused, match="amqp:not-allowed"):
        Publisher(str(broker.address), "shop", virtual_host="nowhere").connect(30)


def test_wrong_credentials_are_an_error_at_once(broker: BrokerThread) -> None:
    shop = Publisher(str(broker.address), "shop", password="wrong")
    with pytest.raises(Refused, match="login refused for user 'guest'"):
        shop.connect(timeout=30)
    shop.close()


def test_no_broker_at_all_is_given_up_when_told() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1"):
            Publisher(address, "shop").connect(timeout=0.1)
        asked: list[int] = []

        def given_up() -> bool:
            asked.append(1)
            return len(asked) > 2

        with pytest.raises(ConnectFailed):
            Publisher(address, "shop", given_up=given_up).publish(b"x", "q")
        assert len(asked) == 3


def test_one_that_accepts_and_says_nothing_is_not_waited_for() -> None:
    with closing(socket.socket()) as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        shop = Publisher(f"127.0.0.1:{mute.getsockname()[1]}", "shop", connect_timeout=0.05)
        with pytest.raises(ConnectFailed, match="serves"):
            shop.connect(timeout=0.1)


def test_misuse_is_refused(broker: BrokerThread) -> None:
    with pytest.raises(ValueError, match="window"):
        Publisher("127.0.0.1:1", "shop", window=0)
    with pytest.raises(ValueError, match="address"):
        Publisher("", "shop")
    shop = Publisher(str(broker.address), "shop")
    with pytest.raises(ValueError, match="none of NAME"):
        shop.publish(b"x", "/nowhere")
    with pytest.raises(ValueError, match="user_id"):
        shop.publish(b"x", "orders", user_id=b"somebody")
    with pytest.raises(ValueError, match="cannot be sent"):
        shop.publish(b"x", "orders", headers={"nested": [1]})
    with pytest.raises(TypeError, match="colour"):
        shop.publish(b"x", "orders", colour="red")
    assert shop.counts.published == 0
    shop.close()
    shop.close()
    with pytest.raises(RuntimeError):
        shop.publish(b"late", "orders")


@pytest.mark.parametrize("how", ["RST", "FIN"])
def test_connections_that_are_cut_after_any_number_of_bytes(
    broker: BrokerThread, tmp_path: Path, how: Cut
) -> None:
    """Each message comes, those that come first in order; so does what the ledgers say of each session."""
    declare(broker, ORDERS)
    draw = random.Random(how)
    with LinkProxy(broker.address) as proxy:

        def let_in() -> bool:
            proxy.disarm()
            return False

        with Publisher(str(proxy.address), "shop", tmp_path, window=50, retry=0.001, given_up=let_in) as shop:
            for number in range(600):
                if number % 30 == 0:
                    proxy.arm(draw.randrange(1, 1200), how)
                shop.publish(b"%d" % number + b" " * draw.randrange(100), "orders")
            let_in()
    assert (shop.counts.confirmed, shop.in_doubt) == (600, 0)
    assert shop.failover.connects > 1
    came: dict[int, None] = {}
    with PlainConsumer(str(broker.address), "orders", "reader") as reader:
        for delivery in reader.deliveries(until=lambda: len(came) == 600):
            came.setdefault(int(delivery.body))
    assert list(came) == list(range(600))
    sent = tags(tmp_path, "sent")
    assert len(sent) == len(set(sent)) == 600 + shop.counts.resent
