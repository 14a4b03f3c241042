"""The kit on kombu, interrupted wherever Python looks for signals: no message is forgotten, none is acked
that nobody saw, and what was refused or returned is told.
"""

from __future__ import annotations

from typing import Any

import kombu.entity
import pytest

from tests.understudy.broker_thread import BrokerThread
from tests.understudy.client.fake_broker import FakeFailover
from tests.understudy.client.interrupts import interrupted, void
from tests.understudy.client.test_publisher import bodies, publisher
from understudy.client import Consumer, Delivery, Publisher

ORDERS: Any = getattr(kombu.entity, "Queue")("orders", durable=True)  # noqa: B009 (kombu is half typed)


def test_an_interrupt_at_any_place_acks_nothing_that_nobody_saw() -> None:
    at, more = 0, True
    with BrokerThread() as broker, Publisher(str(broker.address), "filler", declare=[ORDERS]) as filler:
        while more:
            at += 1
            for n in range(3):
                filler.publish(b"%d" % (3 * at + n), "orders")
            filler.flush(20)
            there, seen = {3 * at + n for n in range(3)}, set[int]()
            with Consumer(str(broker.address), "orders", "billing", ack_every=2) as billing:
                billing.connect()

                def handle(delivery: Delivery | None) -> None:
                    if delivery is not None:
                        seen.add(int(delivery.body))  # noqa: B023
                        billing.ack(delivery)

                def two() -> None:
                    handle(billing.receive(5))
                    handle(billing.receive(5))

                more = interrupted(at, two)
                while seen < there:
                    delivery = billing.receive(5)
                    assert delivery is not None, f"{there - seen} are gone unseen: interrupted at place {at}"
                    handle(delivery)
                billing.flush()
    assert at > 100


@pytest.mark.parametrize("answer", ["confirm", "nack", "give_back"])
def test_an_interrupt_at_any_place_forgets_no_message_and_no_news(answer: str) -> None:
    at, more = 0, True
    while more:
        at += 1
        broker, heard = FakeFailover(), set[int]()
        shop = publisher(broker, on_nack=heard.add, on_return=lambda number, *_: heard.add(number))  # noqa: B023

        def answered(broker: FakeFailover = broker) -> None:
            channel, count = broker.channel, len(broker.channel.published)
            if answer == "give_back":
                for each in channel.published:
                    channel.give_back(each.sequence or 0)
            (channel.nack if answer == "nack" else channel.confirm)(count, multiple=True)

        for body in (b"1", b"2", b"3"):
            shop.publish(body, "q", mandatory=True)
        broker.script.append(answered)
        more = interrupted(at, shop.poll)
        while shop.in_doubt:
            broker.script.append(answered)
            shop.poll()
        shop.poll() if broker.script else shop._tell()
        counts = shop.counts
        assert counts.confirmed + counts.nacked + counts.returned == 3, f"interrupted at place {at}"
        assert heard == (set() if answer == "confirm" else {1, 2, 3}), f"interrupted at place {at}"
    assert at > 20


def test_an_interrupt_at_any_place_neither_forgets_nor_hides_a_refusal() -> None:
    at, more = 0, True
    with BrokerThread() as broker:
        while more:
            at += 1
            heard: list[int] = []
            with Publisher(
                str(broker.address),
                "shop",
                on_refused=lambda refused: heard.append(refused.sequence),  # noqa: B023
            ) as shop:
                shop._hear_every = float("inf")
                shop.publish(b"1", "nowhere")
                shop.flush(20)
                shop.publish(b"2", "key", "missing")

                def hear() -> None:
                    while not shop.counts.nacked:
                        shop.poll(5)

                more = interrupted(at, hear)
                shop.flush(20)
                assert shop.counts.published == 2
                assert set(heard) == {2} and len(heard) <= 2, f"interrupted at place {at}"
    assert at > 50


def test_an_interrupt_at_any_place_of_publish_keeps_what_it_took() -> None:
    """Order holds, and nothing is sent twice on one connection."""
    at, more = 0, True
    while more:
        at += 1
        broker = FakeFailover()
        shop = publisher(broker)
        shop.publish(b"1", "q")
        more = interrupted(at, lambda: void(shop.publish(b"2", "q")))  # noqa: B023
        taken = shop.counts.published
        assert taken in (1, 2) and shop.in_doubt == taken, f"interrupted at place {at}"
        shop.publish(b"3", "q")
        wanted = [b"1", b"2", b"3"] if taken == 2 else [b"1", b"3"]
        assert bodies(broker.channel) == wanted, f"interrupted at place {at}"
    assert at > 20
