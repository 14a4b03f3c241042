"""A broker that does not read: for a memory alarm, because its own output is not read, or because it
hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kombu.entity
import pytest

from broker.settings import BrokerSettings
from tests.understudy.broker_thread import BrokerThread
from tests.understudy.client.fake_broker import FakeFailover
from tests.understudy.client.test_publisher import bodies, publisher
from understudy.client import ConnectFailed, Consumer, NotConfirmed, Publisher

ORDERS: Any = getattr(kombu.entity, "Queue")("orders", durable=True)  # noqa: B009 (kombu is half typed)
MIB = 2**20
LONGER_THAN_PY_AMQP_HOLDS_OUT = 2.5
"""Seconds; its sockets end a connection after one, once the kernel has probed it."""


class Publishing(threading.Thread):
    """Publishes on a thread of its own. `again`: it had to connect once more."""

    def __init__(self, broker: BrokerThread, work: Callable[[Publisher], object], **options: Any) -> None:
        super().__init__(name="publishing")
        self.again, self._stop_now = threading.Event(), threading.Event()
        self.shop = Publisher(
            str(broker.address), "shop", declare=[ORDERS], given_up=self._stop_now.is_set, **options
        )
        begin = self.shop._begin

        def begin_and_tell(deadline: float | None) -> Any:
            if self.shop.failover.connects:
                self.again.set()
            return begin(deadline)

        self.shop._begin = begin_and_tell  # type: ignore[method-assign]
        self._work = work
        self.start()

    def run(self) -> None:
        with self.shop:
            self._work(self.shop)

    def finish(self, broker: BrokerThread) -> bool:
        """Did it come to its end?"""
        self.join(30)
        done = not self.is_alive()
        self._stop_now.set()
        if not done:
            broker.kill()
            self.join(30)
        return done


def test_a_memory_alarm_holds_a_publisher_up_and_multiplies_nothing() -> None:
    count = 60
    with BrokerThread(settings=BrokerSettings(memory_limit=4 * MIB)) as broker:

        def work(shop: Publisher) -> None:
            for number in range(count):
                shop.publish(b"%02d" % number + b" " * 500_000, "orders")
            shop.flush()

        publishing = Publishing(broker, work)
        with Publisher(str(broker.address), "other") as other:
            other.connect()
            while not other.blocked:
                other.poll(5)
            assert other.blocked == "low on memory"
            assert not publishing.again.wait(LONGER_THAN_PY_AMQP_HOLDS_OUT)
            assert publishing.shop.in_doubt
            with Consumer(str(broker.address), "orders", "billing") as billing:
                until = lambda: billing.counts.received == count  # noqa: E731
                numbers = [int(d.body[:2]) for d in billing.deliveries(until=until)]
            assert publishing.finish(broker)
            while other.blocked:
                other.poll(5)
        assert numbers == list(range(count))
        assert (publishing.shop.counts.confirmed, publishing.shop.counts.resent) == (count, 0)


@pytest.mark.parametrize("size", [100, MIB])
def test_returns_and_confirms_are_read_while_messages_are_written(size: int) -> None:
    """Else the broker, whose output nobody takes, takes no more input, and both wait for ever."""
    count = 20_000 if size == 100 else 100
    with BrokerThread() as broker:

        def work(shop: Publisher) -> None:
            for _ in range(count):
                shop.publish(b" " * size, "nowhere", mandatory=True)
            shop.flush()

        publishing = Publishing(broker, work, window=count + 1)
        assert publishing.finish(broker)
        assert (publishing.shop.counts.returned, publishing.shop.failover.connects) == (count, 1)


def test_what_a_broker_that_hangs_did_not_take_goes_out_once_it_goes_on(tmp_path: Path) -> None:
    with BrokerThread() as broker:

        def work(shop: Publisher) -> None:
            shop.connect()
            hangs.wait(30)
            for number in range(30):
                shop.publish(b"%02d" % number + b" " * MIB, "orders")
            shop.flush()

        hangs = threading.Event()
        publishing = Publishing(broker, work)
        with broker.frozen():
            hangs.set()
            assert not publishing.again.wait(LONGER_THAN_PY_AMQP_HOLDS_OUT)
        assert publishing.finish(broker)
        with Consumer(str(broker.address), "orders", "all") as everything:
            until = lambda: everything.counts.received == 30  # noqa: E731
            assert [int(d.body[:2]) for d in everything.deliveries(until=until)] == list(range(30))
            assert everything.receive(0.2) is None


def test_a_broker_that_has_fallen_silent_is_given_up() -> None:
    """Whatever waits in the socket: it is heartbeats that say whether it lives."""
    with BrokerThread(1) as first, BrokerThread(2) as second:
        shop = Publisher(f"{first.address},{second.address}", "shop", declare=[ORDERS], heartbeat=1)
        shop.connect()
        with first.frozen():
            for _ in range(3):
                shop.publish(b" " * MIB, "orders")
            shop.flush(30)
            assert (shop.failover.address, shop.counts.confirmed) == (str(second.address), 3)
        shop.close()


def test_a_consumer_takes_leave_while_publishers_are_blocked() -> None:
    """Its acks are read before its connection goes."""
    with BrokerThread(settings=BrokerSettings(memory_limit=4 * MIB)) as broker:
        publishing = Publishing(broker, lambda shop: [shop.publish(b" " * MIB, "orders") for _ in range(12)])
        with Publisher(str(broker.address), "other") as other:
            other.connect()
            while not other.blocked:
                other.poll(5)
        with Consumer(str(broker.address), "orders", "billing", prefetch=2, ack_every=2) as billing:
            while (delivery := billing.receive(5)) is None:
                pass
            billing.ack(delivery)
        with Consumer(str(broker.address), "orders", "after") as after:
            until = lambda: after.counts.received == 11  # noqa: E731
            assert sum(1 for _ in after.deliveries(until=until)) == 11
            assert publishing.finish(broker)
            assert after.receive(0.2) is None


def test_publish_returns_once_its_message_has_left() -> None:
    """Whoever calls nothing for a while has published all the same."""
    with BrokerThread() as broker, Publisher(str(broker.address), "shop", declare=[ORDERS]) as shop:
        for _ in range(4):
            shop.publish(b" " * 15 * MIB, "orders")
            assert not shop.failover.unsent
        with Consumer(str(broker.address), "orders", "billing") as billing:
            until = lambda: billing.counts.received == 4  # noqa: E731
            assert sum(1 for _ in billing.deliveries(until=until)) == 4


def test_a_flush_says_that_the_broker_takes_nothing() -> None:
    broker = FakeFailover()
    shop = publisher(broker)
    shop.publish(b"1", "q")
    broker.blocked, broker.held_up = "low on memory", True
    broker.script.append(lambda: None)
    with pytest.raises(
        NotConfirmed, match=r"^1 messages are .*: the broker accepts no messages now \(low on mem"
    ):
        shop.flush(0)
    assert shop.blocked == "low on memory"


def test_who_gives_up_does_not_wait_for_a_broker_that_takes_nothing() -> None:
    broker = FakeFailover()
    asked = iter((False, True))
    shop = publisher(broker, given_up=lambda: next(asked))
    shop.publish(b"1", "q")
    broker.blocked, broker.held_up = "low on memory", True
    broker.script.append(lambda: None)
    with pytest.raises(
        ConnectFailed, match=r"^gave up while the broker accepted no messages: low on memory$"
    ):
        shop.publish(b"2", "q")
    assert (shop.counts.published, shop.in_doubt, broker.connected) == (1, 1, True)


def test_publish_waits_for_a_broker_that_takes_nothing_and_order_holds() -> None:
    broker = FakeFailover()
    shop = publisher(broker)
    shop.publish(b"1", "q")
    broker.held_up = True

    def goes_on() -> None:
        assert bodies(broker.channel) == [b"1"] and shop.counts.published == 1
        broker.held_up = False

    broker.script.append(goes_on)
    shop.publish(b"2", "q")
    assert bodies(broker.channel) == [b"1", b"2"]
