"""Consistent hashing by a property of each message."""

from __future__ import annotations

from typing import Any

import pytest
from pika.spec import BasicProperties

from broker.amqp091.codec.named_value import property_of
from tests.broker.amqp091.wire import World, content

FULL: dict[str, Any] = {
    "content_type": "t", "content_encoding": "e", "headers": {"a": 1}, "delivery_mode": 2, "priority": 3,
    "correlation_id": "c", "reply_to": "r", "expiration": "9", "message_id": "m", "timestamp": 7, "type": "y",
    "app_id": "i",
}  # fmt: skip


def encoded(**properties: Any) -> bytes:
    return b"".join(BasicProperties(**properties).encode())


@pytest.mark.parametrize(
    ("name", "value"), [("correlation_id", "c"), ("message_id", "m"), ("timestamp", (7).to_bytes(8, "big"))]
)
def test_a_property_is_found_among_all_and_alone(name: str, value: str | bytes) -> None:
    rest = {key: value for key, value in FULL.items() if key != name}
    for properties, found in ((FULL, value), ({name: FULL[name]}, value), (rest, None), ({}, None)):
        assert (
            property_of(content(1, b"x", properties=encoded(**properties)), name.replace("_", "-")) == found
        )


def test_it_decides_whatever_the_routing_key() -> None:
    world = World()
    client = world.open()
    arguments = {"hash-property": "message_id"}
    client.call(1, "exchange.declare", exchange="x", type="x-consistent-hash", arguments=arguments)
    for queue in "ab":
        client.call(1, "queue.declare", queue=queue)
        client.call(1, "queue.bind", queue=queue, exchange="x", routing_key="1")
    for number in range(40):
        for key in ("k", "l"):
            properties = encoded(message_id=str(number))
            client.publish(1, b"%d" % number, exchange="x", routing_key=key, properties=properties)
    found = {name: [raw[-3:-1] for _, _, raw in world.vhost.queues[name].held_entries()] for name in "ab"}
    assert all(10 < len(some) < 70 and some[::2] == some[1::2] for some in found.values())
