"""Messages published over AMQP 1.0, as a whole broker delivers them to 0-9-1 clients."""

from __future__ import annotations

from typing import Any

from pika.spec import BasicProperties

from broker.amqp091.codec.properties import headers_of
from broker.amqp10.conversion import Incoming, incoming
from broker.model.steps import finish
from tests.broker.amqp091.wire import Raw, Seen, World, content
from tests.broker.amqp10.messages import payload, section
from understudy.shared.amqp10.types import Symbol, UByte, UInt

DATA = section(0x75, b"x" * 300) + section(0x75, b"y" * 9000)


def publish(world: World, *payloads: bytes, exchange: str = "", key: str = "q") -> list[Incoming]:
    """Publish payloads as an AMQP 1.0 link does."""
    made = [incoming(one) for one in payloads]
    for one in made:
        route = world.vhost.route(exchange, key)
        if route.needs_headers:
            route = finish(world.vhost.find_by_headers(exchange, key, headers_of(one.raw)))
        world.vhost.publish(
            route, [one.raw], persistent=one.kind.persistent, channel=0, largest_frame=one.largest,
            expiration=one.kind.expiration, priority=one.kind.priority,
        )  # fmt: skip
    world.tick()
    return made


def with_queue(world: World, name: str = "q", *, frame_max: int = 131072, **arguments: Any) -> Raw:
    client = world.open(frame_max=frame_max)
    client.call(1, "queue.declare", queue=name, arguments=arguments)
    return client


def consumed(client: Raw, queue: str = "q", **arguments: Any) -> list[Seen]:
    client.send(1, "basic.consume", queue=queue, consumer_tag="c", arguments=arguments)
    return client.read()[1:]


def told(seen: Seen) -> tuple[BasicProperties, dict[str, Any]]:
    """The properties, including the headers."""
    properties = BasicProperties()
    properties.decode(seen.header[12:])
    return properties, properties.headers or {}


def test_a_consumer_gets_it_converted_among_others() -> None:
    world = World()
    client = with_queue(world)
    client.publish(1, b"before", routing_key="q")
    publish(world, payload(application={"a": "b"}, body=DATA), payload(body=section(0x75, b"")))
    client.publish(1, b"after", routing_key="q")
    seen = consumed(client)
    assert [one.body for one in seen] == [b"before", b"x" * 300 + b"y" * 9000, b"", b"after"]
    assert [one["delivery_tag"] for one in seen] == [1, 2, 3, 4]
    assert {one.channel for one in seen} == {1}
    assert told(seen[1])[1] == {"a": "b"}
    assert int.from_bytes(seen[1].header[4:12], "big") == 9300


def test_get_gives_it_converted() -> None:
    world = World()
    client = with_queue(world)
    publish(world, payload(header=[True], properties=["id"]), payload(body=section(0x77, 1)))
    first, second = client.call(1, "basic.get", queue="q"), client.call(1, "basic.get", queue="q")
    assert (first.name, first.body, first.channel) == ("basic.get-ok", b"body", 1)
    assert (told(first)[0].message_id, told(first)[0].delivery_mode) == ("id", 2)
    assert (second.body, told(second)[0].type) == (section(0x77, 1), "amqp-1.0")


def test_a_consumer_of_a_small_frame_max_gets_several_frames() -> None:
    world = World()
    client = with_queue(world, frame_max=4096)
    publish(world, payload(body=DATA))
    assert [one.body for one in consumed(client)] == [b"x" * 300 + b"y" * 9000]
    client.send(1, "basic.nack", delivery_tag=1, requeue=True)
    assert [(one.body, one["redelivered"]) for one in client.read()] == [(b"x" * 300 + b"y" * 9000, True)]


def test_a_consumer_that_asks_for_ids_gets_them() -> None:
    world = World()
    client = with_queue(world)
    publish(world, payload(application={"x-replication-id": "forged", "a": 1}))
    (seen,) = consumed(client, **{"x-replication-id": True})
    queue = world.vhost.queues["q"]
    headers = told(seen)[1]
    assert headers["a"] == 1 and headers["x-replication-id"].startswith(f"{queue.uuid.hex()}:1:")
    assert seen.body == b"body"


def test_a_headers_exchange_routes_by_application_properties() -> None:
    world = World()
    client = with_queue(world)
    client.call(1, "exchange.declare", exchange="h", type="headers")
    client.call(1, "queue.bind", queue="q", exchange="h", arguments={"colour": "red"})
    publish(
        world, payload(application={"colour": "red"}), payload(application={"colour": "blue"}), exchange="h"
    )
    assert len(consumed(client)) == 1


def test_it_expires_and_is_dead_lettered_with_its_history() -> None:
    world = World()
    client = with_queue(world, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.call(1, "queue.declare", queue="dead")
    publish(world, payload(header=[None, None, UInt(1000)], application={"a": 1}, body=DATA))
    world.pass_time(2)
    (seen,) = consumed(client, "dead")
    properties, headers = told(seen)
    assert seen.body == b"x" * 300 + b"y" * 9000 and properties.expiration is None
    assert headers["a"] == 1 and headers["x-death"][0]["reason"] == "expired"
    assert headers["x-death"][0]["original-expiration"] == "1000"


def test_priorities() -> None:
    world = World()
    client = with_queue(world, **{"x-max-priority": 10})
    low, high = section(0x75, b"low"), section(0x75, b"high")
    publish(world, payload(body=low), payload(header=[None, UByte(9)], body=high))
    assert [one.body for one in consumed(client)] == [b"high", b"low"]


def test_frames_on_channel_0_that_are_no_message_of_1_0_do_no_harm() -> None:
    """No publisher can send such frames, but another broker may."""
    world = World()
    client = with_queue(world)
    raw = content(0, b"\0\x53\x75 no data")
    world.vhost.publish(
        world.vhost.route("", "q"), [raw], persistent=False, channel=0, largest_frame=len(raw)
    )
    world.tick()
    assert [one.body for one in consumed(client)] == [b"\0\x53\x75 no data"]


def test_annotations_reach_a_consumer_as_headers() -> None:
    world = World()
    client = with_queue(world)
    publish(world, payload(annotations={Symbol("x-opt-a"): [1], Symbol("x-basic-type"): "kind"}))
    properties, headers = told(consumed(client)[0])
    assert (properties.type, headers) == ("kind", {"x-opt-a": [1]})
