"""Messages of AMQP 1.0 clients are counted as those of 0-9-1."""

from __future__ import annotations

import pytest

pytest.importorskip("proton")

from proton import Delivery, Message

from broker.amqp10.connection import Amqp10Connection
from broker.model.statistics import AMQP10
from tests.broker.amqp091.test_counts import told
from tests.broker.amqp10.wire import Talker, world10


def test_each_message_is_counted_once_where_it_passes() -> None:
    world = world10()
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    talker = Talker(world)
    out, away = talker.sender("q"), talker.sender("/exchanges/amq.topic/nowhere", name="away")
    talker.send(out, Message(body=b"1"), Message(body=b"2"))
    talker.send(away, Message(body=b"3"))
    link = talker.receiver("/queues/q", credit=5)
    first, second = (delivery for delivery, _ in talker.received(link))
    talker.settle(first, Delivery.ACCEPTED)
    talker.settle(second, Delivery.RELEASED)
    talker.turn()
    own = {
        "publish": 3, "confirm": 2, "routed": 2, "return_unroutable": 1, "deliver": 3, "ack": 1,
        "redeliver": 1,
    }  # fmt: skip
    counts = world.broker.vhosts.totals(AMQP10)
    assert told(counts) == own and counts.publish_confirm == 3
    assert told(world.vhost.queues["q"].counts) == {"publish": 2, "deliver": 3, "ack": 1, "redeliver": 1}
    assert told(world.vhost.exchanges["amq.topic"].counts) == {"publish": 1}
    served = talker.connection
    assert isinstance(served, Amqp10Connection)
    went = {name: part.publish for name, part in served.went.parts(served.counts).items()}
    assert went == {"": 2, "amq.topic": 1}
    ((queue, got),) = served.links.delivered
    assert (queue.name, told(got)) == ("q", {"deliver": 3, "ack": 1, "redeliver": 1})
    for connection in list(world.broker.connections):
        connection.lost(world.now)
    assert told(world.broker.vhosts.totals(AMQP10)) == own
