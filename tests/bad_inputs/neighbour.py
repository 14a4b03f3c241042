"""Another connection, which no bad input may harm: opened before, used after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.broker.amqp091.wire import World


@contextmanager
def neighbour_unharmed(world: World) -> Iterator[None]:
    """A client with a consumer and an unacknowledged message keeps both, and can still publish afterwards."""
    client = world.open()
    client.call(1, "queue.declare", queue="neighbour")
    client.call(1, "confirm.select")
    client.call(1, "basic.consume", queue="neighbour", consumer_tag="n")
    client.publish(1, b"before", routing_key="neighbour")
    assert sorted(client.names()) == ["basic.ack", "basic.deliver"]
    yield
    client.publish(1, b"after", routing_key="neighbour")
    seen = {frame.name: frame for frame in client.read()}
    assert seen["basic.deliver"].body == b"after"
    assert seen["basic.deliver"]["delivery_tag"] == 2
    assert seen["basic.ack"]["delivery_tag"] == 2
    client.send(1, "basic.ack", delivery_tag=2, multiple=True)
    assert client.read() == []
    assert world.vhost.queues["neighbour"].total_count == 0
    client.send(1, "queue.delete", queue="neighbour")
    client.connection.lost(world.now)
    world.tick()
