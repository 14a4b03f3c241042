"""RabbitMQ's shovel plugin moves messages from ours, and to ours."""

from __future__ import annotations

import json

import pytest

from tests.interop.rabbitmq.brokers import Client, Ours, Rabbit, until

pytestmark = pytest.mark.system


@pytest.mark.parametrize("way", ["from", "to"])
def test_it_moves_each_message(way: str, theirs: Rabbit, leaf: Ours, there: Client, here: Client) -> None:
    queue = f"shovelled-{way}"
    source, target = (here, there) if way == "from" else (there, here)
    uris = [f"amqp://guest:guest@127.0.0.1:{port}" for port in (source.port, target.port)]
    for side in (here, there):
        side.channel.queue_declare(queue, durable=True)
    sent = [f"{number}" for number in range(200)]
    for body in sent:
        source.publish("", queue, body)
    shovel = {"src-uri": uris[0], "src-queue": queue, "dest-uri": uris[1], "dest-queue": queue}
    theirs.control("set_parameter", "shovel", queue, json.dumps({"ack-mode": "on-confirm", **shovel}))
    assert target.bodies(queue, 200) == sent
    until(lambda: source.depth(queue) == 0)
    theirs.control("clear_parameter", "shovel", queue)
