"""What is counted of messages: at the queue, the exchange, the channel and the virtual host."""

from __future__ import annotations

from broker.model.statistics import AMQP091, NAMES, Counts
from tests.broker.amqp091.wire import World


def told(counts: Counts) -> dict[str, int]:
    """Those that are not zero."""
    return {name: value for name, value in zip(NAMES, counts.values(), strict=True) if value}


def test_each_message_is_counted_once_where_it_passes() -> None:
    world = World()
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    client.call(1, "queue.bind", queue="q", exchange="amq.topic", routing_key="a.*", arguments={})
    client.publish(1, b"before", routing_key="q")
    client.call(1, "confirm.select")
    for key in ("a.b", "a.c", "nowhere"):
        client.publish(1, key.encode(), exchange="amq.topic", routing_key=key)
    client.publish(1, b"back", exchange="amq.topic", routing_key="nowhere", mandatory=True)
    client.send(1, "basic.get", queue="q", no_ack=False)
    client.send(1, "basic.reject", delivery_tag=1, requeue=True)
    client.send(1, "basic.consume", queue="q", consumer_tag="c")
    client.read()
    client.send(1, "basic.ack", delivery_tag=4, multiple=True)
    client.send(1, "basic.get", queue="q", no_ack=True)
    client.read()

    own = {
        "publish": 5, "confirm": 4, "routed": 3, "return_unroutable": 1, "drop_unroutable": 1, "deliver": 3,
        "get": 1, "get_empty": 1, "ack": 3, "redeliver": 1,
    }  # fmt: skip
    queue = world.vhost.queues["q"].counts
    assert told(queue) == {
        "publish": 3, "deliver": 3, "get": 1, "get_empty": 1, "ack": 3, "redeliver": 1,
    }  # fmt: skip
    assert told(world.vhost.exchanges["amq.topic"].counts) == {"publish": 4, "routed": 2}
    assert told(world.vhost.exchanges[""].counts) == {"publish": 1, "routed": 1}
    (channel,) = world.broker.connections
    counts = world.broker.vhosts.totals(AMQP091)
    assert told(counts) == own and counts.publish_confirm == 4
    client.call(1, "channel.close", reply_code=200, reply_text="", failed_class=0, failed_method=0)
    assert told(world.broker.vhosts.totals(AMQP091)) == own, "a closed channel stays counted, once"
    channel.lost(world.now)
    assert told(world.broker.vhosts.totals(AMQP091)) == own
    churn = world.broker.vhosts.churn
    assert (churn.channel_created, churn.channel_closed, churn.queue_created) == (1, 1, 1)
    assert (churn.connection_created, churn.connection_closed) == (1, 1)


def test_a_commit_and_dead_letters_are_counted() -> None:
    world = World()
    client = world.open()
    client.call(1, "queue.declare", queue="dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.call(1, "queue.declare", queue="q", arguments=arguments)
    client.call(1, "tx.select")
    for letter in b"abc":
        client.publish(1, bytes([letter]), routing_key="q")
    client.call(1, "tx.commit")
    client.send(1, "basic.consume", queue="q", consumer_tag="c")
    client.read()
    client.send(1, "basic.ack", delivery_tag=1, multiple=False)
    client.send(1, "basic.reject", delivery_tag=2, requeue=False)
    client.call(1, "tx.commit")
    assert told(world.vhost.queues["q"].counts) == {"publish": 3, "deliver": 3, "ack": 1}
    assert told(world.vhost.queues["dead"].counts) == {"publish": 1}
    assert told(world.vhost.exchanges[""].counts) == {"publish": 4, "routed": 4}
    assert told(world.broker.vhosts.totals(AMQP091)) == {"publish": 3, "routed": 3, "deliver": 3, "ack": 1}
    assert world.broker.vhosts.removals.dead_lettered == {"rejected": 1}
