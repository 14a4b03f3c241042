"""Browsers: what they see, once each, while others take messages; and what they are no part of."""

from __future__ import annotations

import random

import pytest

from broker.errors import AccessRefused
from broker.model.queue.consumer import Consumer
from broker.model.queue.queue import Queue
from broker.model.queue.removals import HAND
from broker.model.vhost.vhost import VirtualHost
from tests.broker.model.helpers import OWNER, Sink, end_tick, publish, seqs, serving
from tests.simulation.harness.machines.virtual_overflow import VirtualOverflow


def browser(vhost: VirtualHost, queue: Queue, limit: int = 1 << 30) -> Sink:
    sink = Sink(limit)
    vhost.consume(queue, Consumer("browser", sink, no_ack=True, browses=True))
    return sink


def opened(**arguments: object) -> tuple[VirtualHost, Queue]:
    vhost = serving()
    return vhost, vhost.declare_queue("q", owner=OWNER, durable=True, arguments=arguments)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("priorities", [False, True])
def test_each_sees_what_is_ready_once_in_order_and_nothing_is_taken(seed: int, priorities: bool) -> None:
    chance = random.Random(seed)
    vhost, queue = opened(**({"x-max-priority": 3} if priorities else {}))
    queue.window = 4
    sinks = [browser(vhost, queue, 0) for _ in range(2)]
    total = 0
    for _ in range(60):
        count = chance.randrange(4)
        publish(vhost, "q", *[b"m"] * count)
        total += count
        if chance.random() < 0.2:
            queue.page_out(VirtualOverflow(), 1 << 20)
        for sink in sinks:
            sink.limit = len(sink.got) + chance.randrange(4)
        queue.schedule()
        vhost.shared.dispatch()
        for sink in sinks:
            assert seqs(sink.got) == list(range(1, len(sink.got) + 1))
            assert len(sink.got) in (sink.limit, total)
    assert (queue.message_count, queue.unacked_count) == (total, 0)
    batch = end_tick(vhost)
    assert batch is None or not [r for r in batch.records if type(r).__name__ == "Dequeue"]


def test_consumers_get_all_and_a_browser_what_it_was_in_time_for() -> None:
    vhost, queue = opened()
    consumer = Sink(2)
    vhost.consume(queue, Consumer("c", consumer))
    publish(vhost, "q", *[b"m"] * 3)
    late = browser(vhost, queue)
    vhost.shared.dispatch()
    assert (seqs(consumer.got), seqs(late.got)) == ([1, 2], [1, 2, 3])
    queue.requeue(consumer.got[:1])  # behind its place
    consumer.limit = 2
    publish(vhost, "q", b"m")
    vhost.shared.dispatch()
    assert seqs(late.got) == [1, 2, 3, 4]


def test_a_tick_has_a_most_and_the_next_goes_on() -> None:
    vhost, queue = opened()
    queue.removals.steps = vhost.shared.steps = HAND + 1
    sink = browser(vhost, queue)
    publish(vhost, "q", *[b"m"] * 5000)
    ticks = 0
    while vhost.shared.pending:
        vhost.shared.dispatch()
        ticks += 1
    assert (len(sink.got), ticks) == (5000, 6)


def test_it_keeps_no_queue_alive_and_ends_with_it() -> None:
    vhost = serving()
    queue = vhost.declare_queue("auto", owner=OWNER, auto_delete=True)
    sink = browser(vhost, queue)
    consumer = Consumer("c", Sink())
    vhost.consume(queue, consumer)
    vhost.cancel(queue, consumer)
    assert queue.deleted and sink.gone == ["browser"] and not queue.browsers


def test_one_that_is_cancelled_sees_no_more_and_an_exclusive_consumer_keeps_it_away() -> None:
    vhost, queue = opened()
    sink = Sink()
    consumer = Consumer("b", sink, no_ack=True, browses=True)
    vhost.consume(queue, consumer)
    vhost.cancel(queue, consumer)
    publish(vhost, "q", b"m")
    vhost.shared.dispatch()
    assert not sink.got and queue.message_count == 1
    vhost.consume(queue, Consumer("c", Sink(0), exclusive=True))
    with pytest.raises(AccessRefused):
        browser(vhost, queue)


def test_what_is_over_is_not_shown() -> None:
    vhost, queue = opened(**{"x-message-ttl": 1000})
    vhost.shared.wall_ms = 5_000
    publish(vhost, "q", b"m")
    vhost.shared.wall_ms = 7_000
    sink = browser(vhost, queue)
    publish(vhost, "q", b"m")
    vhost.shared.dispatch()
    assert seqs(sink.got) == [2]
