"""A node that stops serving on purpose: what its clients' going must not do."""

from __future__ import annotations

from broker.amqp091.codec.grammar import encode_frame
from tests.ha.client import knock
from tests.ha.pair import Host, Pair


def consume(pair: Pair, host: Host, queue: str) -> None:
    """A client of `host` that consumes `queue`, and acks nothing."""
    conn = knock(pair, host)
    consuming = encode_frame(1, "basic.consume", queue=queue, consumer_tag="c", arguments={})
    for piece in (encode_frame(1, "channel.open"), consuming):
        pair.run(0.02)
        conn.receive(piece, pair.now)
    pair.run(0.02)
    assert host.running.vhost.queues[queue].consumers


def test_an_auto_delete_queue_outlives_a_demotion_until_the_grace_is_over() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q", auto_delete=True)
    pair.publish(a, "q", "ab")
    consume(pair, a, "q")
    assert pair.ask(a, "demote")["ok"]
    pair.run(0.3)
    assert pair.ask(b, "promote")["ok"]
    pair.run(1.0)
    assert pair.contents(b, "q") == "ab"
    pair.run(b.running.settings.reconnect_grace)
    assert "q" not in b.running.vhost.queues


def test_an_auto_delete_queue_outlives_a_clean_restart() -> None:
    pair = Pair(1)
    pair.start()
    a = pair[0]
    pair.declare(a, "q", auto_delete=True)
    pair.publish(a, "q", "ab")
    consume(pair, a, "q")
    a.running.stop(pair.now)
    pair.kill(a)
    pair.start(a)
    assert pair.contents(a, "q") == "ab"


def test_what_was_acked_just_before_a_demotion_does_not_come_back() -> None:
    pair = Pair(dequeue_lag=1.0)
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "abc")
    pair.run(0.1)
    queue = a.running.vhost.queues["q"]
    taken = [queue.pop(no_ack=False) for _ in range(2)]
    queue.acknowledge([entry for entry in taken if entry is not None])
    assert pair.ask(a, "demote")["ok"]
    pair.run(0.3)
    assert pair.ask(b, "promote")["ok"]
    assert pair.contents(b, "q") == "c"
