"""Very many consumers of one queue: to come, to go and to get a message costs each the same as ever."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp091.channel import Channel
from broker.amqp091.grammar import encode_frame
from broker.model.consumer import Consumers
from tests.broker.amqp091.wire import Raw, World

MANY = 500


def consume(client: Raw, count: int, queue: str = "q") -> None:
    client.raw(
        b"".join(
            encode_frame(1, "basic.consume", queue=queue, consumer_tag=f"{n}", no_ack=True, nowait=True)
            for n in range(count)
        )
    )


def test_they_come_get_one_message_each_and_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    looked_through: list[Any] = []
    credit, walk = Channel.credit, Consumers.__iter__
    monkeypatch.setattr(Channel, "credit", lambda self, one: asked.append(one) or credit(self, one))
    monkeypatch.setattr(Consumers, "__iter__", lambda self: looked_through.append(self) or walk(self))
    world = World()
    client, publisher = world.open(), world.open()
    client.call(1, "queue.declare", queue="q")
    consume(client, MANY)
    assert len(world.vhost.queues["q"].consumers) == MANY
    assert not looked_through
    asked.clear()
    for _ in range(3):
        publisher.publish(1, b"m", routing_key="q")
    assert len(asked) == 3
    assert [seen["consumer_tag"] for seen in client.read()] == ["0", "1", "2"]
    client.connection.lost(world.now)
    world.tick()
    assert not world.vhost.queues["q"].consumers
    assert not looked_through


def test_a_channel_and_a_queue_have_a_limit() -> None:
    world = World(consumer_max_per_channel=3, consumer_max_per_queue=5)
    first, second, third = world.open(), world.open(), world.open()
    first.call(1, "queue.declare", queue="q")
    first.call(1, "queue.declare", queue="other")
    consume(first, 3)
    consume(second, 3)
    [closed] = second.read()
    assert (closed.name, closed["reply_code"]) == ("channel.close", 406)
    assert closed["reply_text"].endswith("and may have no more (broker.consumer_max_per_queue)")
    assert len(world.vhost.queues["q"].consumers) == 3, "those of the closed channel are gone"
    first.send(1, "basic.consume", queue="other", consumer_tag="4")
    [closed] = first.read()
    assert (closed.name, closed["reply_code"]) == ("connection.close", 530)
    assert closed["reply_text"] == "NOT_ALLOWED - reached maximum (3) of consumers per channel"
    assert not world.vhost.queues["q"].consumers
    assert third.call(1, "basic.consume", queue="q", consumer_tag="1").name == "basic.consume-ok"
