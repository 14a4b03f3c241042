"""Consumer priorities: who gets the next message, and what those of a lower priority get."""

from __future__ import annotations

import random

import pytest

from broker.model.queue.consumer import Consumer
from broker.model.queue.queue import Queue
from broker.model.queue.removals import HAND
from broker.model.vhost.vhost import VirtualHost
from tests.broker.model.helpers import OWNER, Sink, publish, seqs, serving


@pytest.fixture
def vhost() -> VirtualHost:
    return serving()


@pytest.fixture
def queue(vhost: VirtualHost) -> Queue:
    return vhost.declare_queue("q", owner=OWNER)


def consume(vhost: VirtualHost, queue: Queue, priority: int, limit: int = 1 << 30, tag: str = "") -> Sink:
    sink = Sink(limit)
    vhost.consume(queue, Consumer(tag or f"c{priority}", sink, priority=priority))
    return sink


def publish_many(vhost: VirtualHost, count: int) -> None:
    publish(vhost, "q", *[b"m"] * count)


def test_the_highest_with_credit_comes_first_and_equals_take_turns(vhost: VirtualHost, queue: Queue) -> None:
    low = consume(vhost, queue, -1)
    normal = consume(vhost, queue, 0, limit=3)
    high = [consume(vhost, queue, 10, limit=2, tag=f"h{n}") for n in range(2)]
    publish_many(vhost, 10)
    vhost.shared.dispatch()
    assert [seqs(sink.got) for sink in (*high, normal, low)] == [[1, 3], [2, 4], [5, 6, 7], [8, 9, 10]]
    for sink in high:
        sink.limit += 1
    publish_many(vhost, 1)
    vhost.shared.dispatch()
    publish_many(vhost, 1)
    vhost.shared.dispatch()
    assert [seqs(sink.got)[-1] for sink in high] == [11, 12]  # the turn of equals goes on


def test_the_most_for_one_tick_does_not_let_a_lower_priority_in(vhost: VirtualHost, queue: Queue) -> None:
    """The sink takes 100 in a tick. It has credit again in the next one, and asks nobody for it."""
    high, low = consume(vhost, queue, 1), consume(vhost, queue, 0)
    queue.removals.steps = vhost.shared.steps = HAND + 20
    publish_many(vhost, 200)
    for _ in range(20):
        vhost.shared.dispatch()
    assert (len(high.got), len(low.got)) == (200, 0)


def test_a_resting_consumer_keeps_its_place_until_it_goes(vhost: VirtualHost, queue: Queue) -> None:
    sink, low = Sink(0), consume(vhost, queue, 0)
    high = Consumer("high", sink, priority=1)
    vhost.consume(queue, high)
    high.rests = True
    publish_many(vhost, 3)
    vhost.shared.dispatch()
    assert not low.got
    vhost.cancel(queue, high)
    vhost.shared.dispatch()
    assert seqs(low.got) == [1, 2, 3]


def test_the_next_single_active_consumer_is_the_one_with_the_highest_priority(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q", owner=OWNER, arguments={"x-single-active-consumer": True})
    consumers = [Consumer(f"c{at}", Sink(), priority=priority) for at, priority in enumerate((1, 0, 7, 7))]
    for consumer in consumers:
        vhost.consume(queue, consumer)
    order = []
    while queue.consumers:
        (active,) = queue.served
        order.append(active.tag)
        vhost.cancel(queue, active)
    assert order == ["c0", "c2", "c3", "c1"]


@pytest.mark.parametrize("seed", range(20))
def test_no_message_goes_past_a_higher_priority_that_has_credit(
    vhost: VirtualHost, queue: Queue, seed: int
) -> None:
    chance = random.Random(seed)
    sinks = [
        (priority, consume(vhost, queue, priority, 0, f"t{n}")) for n, priority in enumerate((3, 0, 3, 1))
    ]
    for _ in range(50):
        for _, sink in sinks:
            sink.limit = len(sink.got) + chance.randrange(4)
        publish_many(vhost, chance.randrange(8))
        queue.schedule()
        before = [len(sink.got) for _, sink in sinks]
        vhost.shared.dispatch()
        got = [len(sink.got) > had for (_, sink), had in zip(sinks, before, strict=True)]
        served = [priority for (priority, _), some in zip(sinks, got, strict=True) if some]
        hungry = [priority for priority, sink in sinks if sink.limit > len(sink.got)]
        assert not served or not hungry or min(served) >= max(hungry)
        assert not hungry or not queue.message_count
