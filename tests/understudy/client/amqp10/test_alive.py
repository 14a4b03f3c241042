"""Both ends of a long life: an application that is slow, and a broker that takes nothing for a while. The
broker is a process of its own."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("proton")
from proton import EventType

from tests.understudy.broker_thread import BrokerThread
from tests.understudy.client.amqp10.plain import ORDERS, declare, records
from tests.understudy.client.amqp10.scripted import Scripted, Served
from tests.understudy.serving import serving
from understudy.client import Publisher as PlainPublisher
from understudy.client.amqp10 import ConnectFailed, Consumer, Publisher

LARGE = b" " * 2_000_000


@contextmanager
def a_broker(tmp_path: Path, *settings: str) -> Iterator[str]:
    """Its address. It has a queue `orders`, and wants a sign of life each second."""
    options = [word for setting in ("broker.heartbeat=1s", *settings) for word in ("--set", setting)]
    with serving(tmp_path / "node", *options) as running:
        with PlainPublisher(str(running.amqp), "declarer", declare=[ORDERS]) as declarer:
            declarer.connect(20)
        yield str(running.amqp)


def work(seconds: float) -> None:
    """The application is busy, and calls nothing."""
    threading.Event().wait(seconds)


def test_messages_that_came_ahead_are_worked_through_slowly(tmp_path: Path) -> None:
    """Longer than the broker waits for a sign of life: 2 s."""
    with a_broker(tmp_path) as address:
        with Publisher(address, "shop") as shop:
            for number in range(8):
                shop.publish(b"%d" % number, "orders")
        with Consumer(address, "orders", "billing") as billing:
            last = None
            for _ in range(8):
                while (delivery := billing.receive(5)) is None:
                    pass
                last = delivery
                work(0.4)
            assert last is not None and last.body == b"7"
            billing.ack(last)
            billing.flush()
            assert (billing.counts.acked, billing.failover.connects) == (8, 1)
        with Consumer(address, "orders", "after") as after:
            assert after.receive(0.2) is None


def test_one_message_takes_long_and_flush_is_called_meanwhile(tmp_path: Path) -> None:
    with a_broker(tmp_path) as address:
        with Publisher(address, "shop") as shop:
            for _ in range(2):
                shop.publish(b"x", "orders")
        with Consumer(address, "orders", "billing") as billing:
            while (delivery := billing.receive(5)) is None:
                pass
            for _ in range(8):
                work(0.4)
                billing.flush()
            billing.ack(delivery)
            billing.flush()
            assert (billing.counts.acked, billing.failover.connects) == (1, 1)
        with Consumer(address, "orders", "after") as after:
            assert after.receive(5) is not None
            assert after.receive(0.2) is None, "one was acked"


def test_a_publisher_that_only_publishes_hears_what_became_of_it(tmp_path: Path) -> None:
    """Neither `poll` nor `flush`, and a window that is never full."""
    with a_broker(tmp_path) as address, Publisher(address, "shop", tmp_path / "ledgers") as shop:
        shop.publish(b"0", "orders")
        until = time.monotonic() + 20
        while not shop.counts.confirmed and time.monotonic() < until:
            work(0.06)
            shop.publish(b"x", "orders")
        assert shop.counts.published < 50
        work(0.06)
        shop.publish(b"x", "orders")
        noted = records(tmp_path / "ledgers", "confirmed")
        assert noted and (noted[0]["first"], noted[0]["last"]) >= (1, 1)
        assert records(tmp_path / "ledgers", "sent")


def test_a_broker_that_is_low_on_memory_reads_nothing_for_a_while(tmp_path: Path) -> None:
    """Longer than its life is judged by, on either side: nothing is sent twice, nothing is stuck."""
    with a_broker(tmp_path, "broker.memory_limit=8MiB") as address:
        stop = threading.Event()
        consumed: list[int] = []

        def consume() -> None:
            with Consumer(address, "orders", "billing", prefetch=2, ack_every=1) as billing:
                for delivery in billing.deliveries(until=stop.is_set):
                    assert not delivery.redelivered
                    consumed.append(int(bytes(delivery.body)[:2]))

        thread = threading.Thread(target=consume)
        relief = threading.Timer(3.0, thread.start)
        began = time.monotonic()
        with Publisher(address, "shop", tmp_path / "ledgers", heartbeat=0.5) as shop:
            relief.start()
            for number in range(20):
                shop.publish(b"%02d" % number + LARGE, "orders")
            shop.flush(30)
            assert time.monotonic() - began > 3.0, "it was held up"
            for _ in range(3):
                shop.publish(LARGE, "/exchanges/amq.direct/nobody")
            shop.flush(30)
            assert (shop.counts.confirmed, shop.counts.returned, shop.counts.resent) == (20, 3, 0)
            assert shop.failover.connects == 1
        relief.join()
        until = time.monotonic() + 20
        while len(consumed) < 20 and time.monotonic() < until:
            work(0.05)
        stop.set()
        thread.join(20)
    assert consumed == list(range(20))


def test_no_timeout_is_none_at_all(broker: BrokerThread) -> None:
    declare(broker, ORDERS)
    with (
        Publisher(str(broker.address), "shop") as shop,
        Consumer(str(broker.address), "orders", "b") as billing,
    ):
        shop.connect()
        billing.connect()
        with broker.frozen():
            began = time.monotonic()
            for _ in range(20):
                shop.poll(0)
                assert billing.receive(timeout=0) is None
            assert time.monotonic() - began < 1.0


def test_a_timeout_holds_where_a_broker_lets_in_and_does_not_serve() -> None:
    def script(_served: Served, _kind: EventType, _what: Any) -> None:
        """Not even an attach is answered."""

    with Scripted(script) as peer:
        with Consumer(peer.address, "orders", "billing", connect_timeout=0.1) as billing:
            assert billing.receive(0.05) is None
            assert peer.connections == 1
        asked: list[int] = []

        def given_up() -> bool:
            asked.append(1)
            return len(asked) == 3

        billing = Consumer(peer.address, "orders", "billing", connect_timeout=0.1, given_up=given_up)
        with billing, pytest.raises(ConnectFailed, match="gave up while no broker served"):
            billing.connect()
        assert len(asked) == 3


def test_what_a_signal_handler_raises_reaches_the_caller(broker: BrokerThread) -> None:
    """A TimeoutError is an OSError, and yet no lost connection."""

    def enough(*_: object) -> None:
        raise TimeoutError("enough")

    declare(broker, ORDERS)
    before = signal.signal(signal.SIGALRM, enough)
    try:
        with Publisher(str(broker.address), "shop") as shop:
            shop.connect()
            with broker.frozen(), pytest.raises(TimeoutError, match="enough"):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                shop.publish(b"1", "orders")
            assert shop.in_doubt == 1
            shop.flush(10)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert shop.counts.confirmed == 1
