"""What the client kits on kombu and on Proton have in common, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import kombu.entity
import pytest

from tests.understudy.broker_thread import BrokerThread
from understudy import client

ORDERS: Any = getattr(kombu.entity, "Queue")("orders", durable=True)  # noqa: B009 (kombu is half typed)


@pytest.fixture(params=["kombu", "proton"])
def kit(request: pytest.FixtureRequest) -> Any:
    if request.param == "kombu":
        return client
    pytest.importorskip("proton")
    return import_module("understudy.client.amqp10")


@pytest.fixture
def broker(kit: Any) -> Iterator[BrokerThread]:
    """It has a queue `orders`, and speaks what the kit speaks."""
    protocols = None if kit is client else import_module("broker.amqp10.connection").PROTOCOLS
    with BrokerThread(protocols=protocols) as running:
        with client.Publisher(str(running.address), "declarer", declare=[ORDERS]) as declarer:
            declarer.connect(20)
        yield running


def test_a_timeout_holds_while_no_broker_serves(kit: Any, broker: BrokerThread) -> None:
    shop = kit.Publisher(str(broker.address), "shop", connect_timeout=0.2)
    billing = kit.Consumer(str(broker.address), "orders", "billing", connect_timeout=0.2)
    shop.publish(b"0", "orders")
    shop.flush(20)
    billing.connect()
    asked = iter((False, False, True))
    with broker.frozen():
        shop.publish(b"1", "orders")
        shop._lose()
        billing._lose()
        with pytest.raises(kit.NotConfirmed, match="1 message"):
            shop.flush(0.05)
        shop.poll(0.05)
        assert billing.receive(0.05) is None
        assert list(billing.deliveries(until=lambda: next(asked), poll=0.05)) == []
    shop.flush(20)
    assert (shop.in_doubt, shop.counts.confirmed) == (0, 2)
    while billing.receive(5.0) is None:
        pass
    shop.close()
    billing.close()


def test_short_timeouts_get_to_every_broker_in_turn(kit: Any, broker: BrokerThread) -> None:
    with closing(socket.socket()) as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        both = f"127.0.0.1:{mute.getsockname()[1]},{broker.address}"
        with kit.Publisher(both, "shop", connect_timeout=0.2) as shop:
            for _ in range(20):
                shop.poll()
                if shop.failover.connected:
                    break
            assert shop.failover.address == str(broker.address)


def test_an_error_of_given_up_gives_up(kit: Any) -> None:
    """An OSError, say of a file that it looks for, is no lost connection."""
    asked: list[int] = []

    def given_up() -> bool:
        asked.append(1)
        if len(asked) > 3:
            raise KeyboardInterrupt
        raise FileNotFoundError("no such flag")

    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        shop = kit.Publisher(f"127.0.0.1:{taken.getsockname()[1]}", "shop", given_up=given_up)
        with pytest.raises(kit.ConnectFailed, match="no such flag"):
            shop.connect()
    assert len(asked) == 1


# -- exactly once


def drained(broker: BrokerThread, count: int, queue: str = "orders") -> list[int]:
    """The bodies of so many messages, and of all that come soon after."""
    with client.Consumer(str(broker.address), queue, "reader") as reader:
        found = [int(d.body) for d in reader.deliveries(until=lambda: reader.counts.received == count)]
        while (more := reader.receive(0.05)) is not None:
            found.append(int(more.body))
    return found


def publish(shop: Any, first: int, last: int) -> None:
    for number in range(first, last + 1):
        assert shop.publish(b"%d" % number, "orders") == number


def test_what_a_dead_process_was_not_sure_of_comes_once(
    kit: Any, broker: BrokerThread, tmp_path: Path
) -> None:
    """The older process has 600 in doubt when the newer one begins, and is fenced."""
    older = kit.Publisher(str(broker.address), "shop", tmp_path, exactly_once=True, window=1000)
    assert older.resume() == 1
    publish(older, 1, 700)
    newer = kit.Publisher(str(broker.address), "shop", tmp_path, exactly_once=True)
    first = newer.resume()
    assert first <= 700
    publish(newer, first, 900)
    newer.flush(20)
    assert drained(broker, 900) == list(range(1, 901))
    for _ in range(2):
        with pytest.raises(kit.Fenced, match=r"not go on: .*a newer process.*known from number"):
            older.publish(b"0", "orders")
            older.flush(20)
    older.close()
    newer.close()
    with kit.Publisher(str(broker.address), "shop", tmp_path, exactly_once=True) as third:
        assert third.next_number >= 901
        third.publish(b"0", "orders")
    assert drained(broker, 1) == [0]


def test_a_lost_connection_and_refused_messages_leave_each_message_once(
    kit: Any, broker: BrokerThread, tmp_path: Path
) -> None:
    small: Any = getattr(kombu.entity, "Queue")(  # noqa: B009
        "small", durable=True, queue_arguments={"x-max-length": 2, "x-overflow": "reject-publish"}
    )
    with client.Publisher(str(broker.address), "declarer", declare=[small]) as declarer:
        declarer.connect(20)
    refused: list[int] = []
    shop = kit.Publisher(
        str(broker.address),
        "shop",
        tmp_path,
        exactly_once=True,
        on_nack=lambda number, *_: refused.append(number),
    )
    with shop:
        for number in range(1, 401):
            to = "small" if number % 5 == 0 else "orders"
            assert shop.publish(b"%d" % number, to) == number
            if number in (100, 250):
                shop._lose()
    fives = list(range(5, 401, 5))
    assert drained(broker, 320) == [number for number in range(1, 401) if number % 5]
    kept = drained(broker, 2, "small")
    assert len(kept) == 2 and sorted(refused) == [number for number in fives if number not in kept]


def test_a_message_for_nowhere_is_refused_and_the_rest_comes_once(
    kit: Any, broker: BrokerThread, tmp_path: Path
) -> None:
    nowhere = ("/exchanges/none/q",) if kit is not client else ("q", "none")
    with kit.Publisher(str(broker.address), "shop", tmp_path, exactly_once=True) as shop:
        publish(shop, 1, 20)
        shop.publish(b"21", *nowhere)
        with pytest.raises(kit.Refused):
            shop.flush(20)
        publish(shop, 22, 30)
    assert drained(broker, 29) == [*range(1, 21), *range(22, 31)]
    assert (shop.counts.nacked, shop.counts.confirmed) == (1, 29)


def test_a_publisher_whose_numbers_are_lost_sends_nothing(
    kit: Any, broker: BrokerThread, tmp_path: Path
) -> None:
    with kit.Publisher(str(broker.address), "shop", tmp_path / "1", exactly_once=True) as shop:
        publish(shop, 1, 3)
    shop = kit.Publisher(str(broker.address), "shop", tmp_path / "2", exactly_once=True)
    with pytest.raises(kit.NotExactlyOnce, match=r"as a new publisher: .*bring it back"):
        shop.publish(b"0", "orders")
    shop.close()
    with kit.Publisher(str(broker.address), "shop", tmp_path / "3", exactly_once=True) as shop:
        assert shop.resume(at=3) == 3
        publish(shop, 3, 4)
    assert drained(broker, 4) == [1, 2, 3, 4]


def test_what_comes_again_after_it_was_processed_is_skipped(
    kit: Any, broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acks are lost with the connection."""
    with kit.Publisher(str(broker.address), "shop") as shop:
        for n in range(5):
            shop.publish(b"%d" % n, "orders")
    with kit.Consumer(
        str(broker.address), "orders", "billing", exactly_once=True, processed=tmp_path / "ids.db"
    ) as billing:
        seen = []
        with monkeypatch.context() as lost:
            lost.setattr(billing, "_say_acks", lambda _: None)
            for _ in range(3):
                delivery = billing.receive(20)
                seen.append(bytes(delivery.body))
                billing.ack(delivery)
            billing.flush()
        billing._lose()
        for _ in range(2):
            delivery = billing.receive(20)
            seen.append(bytes(delivery.body))
            billing.ack(delivery)
        assert seen == [b"%d" % n for n in range(5)]
        assert (billing.counts.skipped, billing.counts.received) == (3, 5)
    with kit.Consumer(str(broker.address), "orders", "billing") as billing:
        assert billing.receive(0.2) is None
