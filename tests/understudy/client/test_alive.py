"""What the kit does beside its own work: hears while it publishes, says that it lives, and stands interrupts
and callbacks that call it again.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import kombu.entity
import pytest
from amqp.channel import Channel as AmqpChannel

from tests.understudy.broker_thread import BrokerThread
from tests.understudy.client.fake_broker import FakeFailover
from tests.understudy.client.test_consumer import arrivals, consumer
from tests.understudy.client.test_publisher import of_kind, publisher
from understudy.client import Consumer, Publisher

ORDERS: Any = getattr(kombu.entity, "Queue")("orders", durable=True)  # noqa: B009 (kombu is half typed)


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as running:
        yield running


def work(seconds: float) -> None:
    """The application is busy, and calls nothing."""
    threading.Event().wait(seconds)


def filled(broker: BrokerThread, count: int) -> str:
    with Publisher(str(broker.address), "filler", declare=[ORDERS]) as filler:
        for number in range(count):
            filler.publish(b"%d" % number, "orders")
    return str(broker.address)


# -- hearing while it publishes --------------------------------------------------------------------------


def test_a_publisher_that_only_publishes_hears_and_notes(tmp_path: Path) -> None:
    """Neither `poll` nor `flush`, and a window that is far from full."""
    broker = FakeFailover()
    shop = publisher(broker, ledger_dir=tmp_path)
    shop._hear_every = 0.0
    broker.script.append(lambda: None)
    shop.publish(b"1", "q")
    assert of_kind(tmp_path, "sent") == [("sent", 1, 1, 1, 1)]
    broker.script.append(lambda: broker.channel.confirm(1))
    broker.script.append(lambda: None)
    shop.publish(b"2", "q")
    assert (shop.counts.confirmed, shop.in_doubt) == (1, 1)
    shop.publish(b"3", "q")
    assert of_kind(tmp_path, "confirmed") == [("confirmed", 1, 1, 1, None)]


def test_what_is_published_alone_is_confirmed_meanwhile(broker: BrokerThread) -> None:
    with Publisher(str(broker.address), "shop", declare=[ORDERS]) as shop:
        until = time.monotonic() + 20
        while not shop.counts.confirmed and time.monotonic() < until:
            shop.publish(b"x", "orders")
            work(0.03)
        assert shop.counts.confirmed and shop.counts.published < 400


def test_a_callback_hears_of_a_message_before_publish_takes_the_next() -> None:
    """So what it raises is never about a message of which the number was not returned."""
    broker = FakeFailover()

    def refuse(number: int) -> None:
        raise ValueError(f"message {number}")

    shop = publisher(broker, on_nack=refuse)
    shop.publish(b"1", "q")
    broker.channel.nack(1)
    with pytest.raises(ValueError, match="message 1"):
        shop.publish(b"2", "q")
    assert shop.counts.published == 1
    assert shop.publish(b"2", "q") == 2


# -- heartbeats ------------------------------------------------------------------------------------------


def test_messages_that_came_ahead_are_worked_through_slowly(broker: BrokerThread) -> None:
    """Without an ack, for longer than the broker waits for a sign of life: 2 s."""
    with Consumer(filled(broker, 9), "orders", "billing", heartbeat=1) as billing:
        last = None
        for _ in range(9):
            last = billing.receive(5)
            work(0.35)
        assert last is not None and last.body == b"8" and not last.redelivered
        billing.ack(last)
        billing.flush()
        assert (billing.counts.acked, billing.failover.connects) == (9, 1)
    with Consumer(str(broker.address), "orders", "after") as after:
        assert after.receive(0.3) is None


def test_one_message_takes_long_and_flush_is_called_meanwhile(broker: BrokerThread) -> None:
    with Consumer(filled(broker, 2), "orders", "billing", heartbeat=1) as billing:
        delivery = billing.receive(5)
        assert delivery is not None
        for _ in range(8):
            work(0.4)
            billing.flush()
        billing.ack(delivery)
        billing.flush()
        assert (billing.counts.acked, billing.failover.connects) == (1, 1)
    with Consumer(str(broker.address), "orders", "after") as after:
        assert (left := after.receive(5)) is not None and left.body == b"1"


def test_one_who_was_away_for_long_listens_before_it_calls_the_broker_dead(broker: BrokerThread) -> None:
    with Publisher(str(broker.address), "shop", heartbeat=2) as shop:
        shop.connect()
        inner = shop.failover._inner
        assert inner is not None
        inner._transport.read_at -= 60.0
        heard = socket.socketpair()
        heard[1].sendall(b"\x08\0\0\0\0\0\0\xce")
        heard[0].setblocking(False)
        inner._transport.sock, there = heard[0], inner._transport.sock
        inner.beat()
        inner._transport.sock = there
        for each in heard:
            each.close()
        assert shop.failover.connected


# -- interrupts ------------------------------------------------------------------------------------------


def test_an_interrupted_receive_acks_nothing_that_nobody_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeFailover()
    arrivals(broker, 1, 2, 3)
    billing = consumer(broker, ack_every=1)
    first = billing.receive()
    assert first is not None
    ledger = type(billing._ledger)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger, "received", interrupt)
    with pytest.raises(KeyboardInterrupt):
        billing.receive()
    monkeypatch.undo()
    arrivals(broker, 1, 2, 3, redelivered=True)
    again = [billing.receive() for _ in range(3)]
    assert [d.id.sequence for d in again if d is not None and d.id is not None] == [1, 2, 3]
    billing.ack(first)
    assert all(not channel.acks for channel in broker.channels), "nothing can be said of it any more"


def test_an_interrupt_while_a_channel_opens_leaves_nothing_behind(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = Consumer(filled(broker, 1), "orders", "billing")
    half: list[AmqpChannel] = []

    def interrupt(self: AmqpChannel) -> None:
        half.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(AmqpChannel, "_setup_listeners", interrupt)
    with pytest.raises(KeyboardInterrupt):
        billing.receive(5.0)
    monkeypatch.undo()
    assert len(half) == 1 and not hasattr(half[0], "callbacks")
    assert billing.receive(5.0) is not None
    billing.close()


def test_an_interrupt_at_any_moment_acks_nothing_that_nobody_saw(broker: BrokerThread) -> None:
    """A signal every millisecond or so, whose handler raises, while messages are received and acked."""
    count = 400
    seen: list[int] = []
    interrupts = 0

    def interrupt(_number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                # Python's import lock would stay locked, for all threads of this process.
                signal.setitimer(signal.ITIMER_REAL, 0.0001)
                return
            frame = frame.f_back
        raise KeyboardInterrupt

    address = filled(broker, count)
    billing = Consumer(address, "orders", "billing", ack_every=3, prefetch=50)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while (len(set(seen)) < count or interrupts <= 10) and interrupts < 3000:
            try:
                delivery = None
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + 0.00027 * ((len(seen) + interrupts) % 17))
                delivery = billing.receive(1.0)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
                billing.connect()
            if delivery is not None:
                seen.append(int(delivery.body))
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.00003 * (1 + len(seen) % 9))
                    billing.ack(delivery)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    billing.close()
    assert interrupts > 10
    assert set(seen) == set(range(count)), "what was acked was seen"


def test_what_a_signal_handler_raises_reaches_the_caller(broker: BrokerThread) -> None:
    """A TimeoutError is an OSError, and yet no lost connection."""

    def enough(*_: object) -> None:
        raise TimeoutError("enough")

    before = signal.signal(signal.SIGALRM, enough)
    try:
        with Publisher(str(broker.address), "shop", declare=[ORDERS]) as shop:
            shop.connect()
            with broker.frozen(), pytest.raises(TimeoutError, match="enough"):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                shop.publish(b"1", "orders")
                shop.flush(20)
            assert shop.in_doubt == 1
            shop.flush(20)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert shop.counts.confirmed == 1


# -- callbacks -------------------------------------------------------------------------------------------


def test_a_callback_may_publish_and_flush_however_many_returns_there_are(broker: BrokerThread) -> None:
    heard: list[int] = []

    def again(number: int, _code: int, _text: str) -> None:
        heard.append(number)
        if len(heard) < 400:
            shop.publish(b"again", "nowhere", mandatory=True)
            shop.flush(20)

    with Publisher(str(broker.address), "shop", on_return=again) as shop:
        shop.publish(b"first", "nowhere", mandatory=True)
        shop.flush(20)
        assert (shop.counts.returned, shop.in_doubt) == (400, 0)
    assert heard == list(range(1, 401))


# -- no time at all --------------------------------------------------------------------------------------


def test_a_poll_without_time_does_not_wait_for_the_rest_of_a_frame(broker: BrokerThread) -> None:
    with Publisher(str(broker.address), "shop", declare=[ORDERS], heartbeat=0) as shop:
        shop.connect()
        transport = shop.failover.connection.connection.transport
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        there, transport.sock, transport._quick_recv = transport.sock, ours, ours.recv
        times = [time.monotonic()]
        for octet in b"\x08\0\0\0\0\0\0\xce":
            theirs.sendall(bytes([octet]))
            shop.poll(0)
            times.append(time.monotonic())
        transport.sock, transport._quick_recv = there, there.recv
        ours.close()
        theirs.close()
        assert min(after - before for before, after in pairwise(times)) < 0.1
        assert sum(after - before for before, after in pairwise(times)) < 2.0
        shop.publish(b"1", "orders")
        shop.flush(20)
