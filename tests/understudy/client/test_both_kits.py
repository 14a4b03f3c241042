"""What the client kits on kombu and on Proton have in common, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
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
