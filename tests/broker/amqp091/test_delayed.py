"""Exchanges of type x-delayed-message: what waits, when it goes on, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from pika.spec import BasicProperties

from broker.amqp091.codec.properties import headers_of
from broker.model.queue.delays.delay_queue import delay_name
from tests.broker.amqp091.test_copies import with_headers
from tests.broker.amqp091.wire import Raw, World

LATER = delay_name("later")


def world_of(type_: str = "direct", **more: Any) -> tuple[World, Raw]:
    """With the exchange `later`, to which the queue `q` is bound by `k`."""
    world = World()
    client = world.open()
    arguments = {"x-delayed-type": type_, **more}
    said = client.call(
        1, "exchange.declare", exchange="later", type="x-delayed-message", durable=True, arguments=arguments
    )
    assert said.name == "exchange.declare-ok"
    client.call(1, "queue.declare", queue="q", durable=True)
    client.call(1, "queue.bind", queue="q", exchange="later", routing_key="k")
    return world, client


def publish(client: Raw, body: bytes, delay: object = None, key: str = "k", exchange: str = "later") -> None:
    properties = b"\0\0" if delay is None else with_headers(**{"x-delay": delay})
    client.publish(1, body, exchange=exchange, routing_key=key, properties=properties)


def bodies(client: Raw, queue: str = "q") -> list[bytes]:
    found: list[bytes] = []
    while (seen := client.call(1, "basic.get", queue=queue, no_ack=True)).name == "basic.get-ok":
        found.append(seen.body)
    return found


def waiting(world: World) -> int:
    return world.vhost.delayed(world.vhost.exchanges["later"])


def test_messages_go_on_when_their_time_has_come_earliest_first() -> None:
    world, client = world_of()
    for body, delay in (
        (b"c", 3000),
        (b"a", 1000),
        (b"b", 2000),
        (b"now", None),
        (b"zero", 0),
        (b"past", -5),
    ):
        publish(client, body, delay)
    assert bodies(client) == [b"now", b"zero", b"past"] and waiting(world) == 3
    world.pass_time(0.9)
    assert bodies(client) == []
    world.pass_time(0.2)
    assert bodies(client) == [b"a"]
    publish(client, b"early", 100)
    world.pass_time(5)
    assert bodies(client) == [b"early", b"b", b"c"] and waiting(world) == 0


def test_the_broker_wakes_up_for_the_earliest() -> None:
    world, client = world_of()
    publish(client, b"a", 60_000)
    publish(client, b"b", 30_000)
    world.tick()
    due = world.broker.next_deadline()
    assert due is not None and due - world.now == pytest.approx(30, abs=0.1)


def test_the_header_is_negative_afterwards_and_all_else_stays() -> None:
    world, client = world_of()
    properties = with_headers(**{"x-delay": 700, "y": "z"})
    client.publish(1, b"x" * 300_000, exchange="later", routing_key="k", properties=properties)
    world.pass_time(1)
    ((_, envelope, raw),) = world.vhost.queues["q"].held_entries()
    assert headers_of(raw) == {"x-delay": -700, "y": "z"} and len(raw) > 300_000
    assert (envelope.exchange, envelope.routing_key) == ("later", "k")


def test_its_own_time_to_live_begins_afterwards() -> None:
    world, client = world_of()
    properties = b"".join(BasicProperties(headers={"x-delay": 1000}, expiration="5000").encode())
    client.publish(1, b"a", exchange="later", routing_key="k", properties=properties)
    world.pass_time(1.1)
    assert world.vhost.queues["q"].message_count == 1
    world.pass_time(4.5)
    assert world.vhost.queues["q"].message_count == 1
    world.pass_time(1)
    assert world.vhost.queues["q"].message_count == 0


def test_bindings_of_that_time_decide() -> None:
    world, client = world_of("topic")
    publish(client, b"a", 1000, "z.y")
    client.call(1, "queue.bind", queue="q", exchange="later", routing_key="z.#")
    publish(client, b"nowhere", 1000, "else")
    world.pass_time(2)
    assert bodies(client) == [b"a"] and waiting(world) == 0


def test_through_another_exchange_it_waits_and_other_queues_get_it_at_once() -> None:
    world, client = world_of("fanout")
    client.call(1, "exchange.bind", destination="later", source="amq.fanout", routing_key="")
    client.call(1, "queue.declare", queue="other")
    client.call(1, "queue.bind", queue="other", exchange="amq.fanout", routing_key="")
    publish(client, b"a", 1000, exchange="amq.fanout")
    publish(client, b"b", 10, exchange="amq.fanout")
    assert bodies(client, "other") == [b"a", b"b"] and waiting(world) == 2
    world.pass_time(2)
    assert bodies(client) == [b"b", b"a"] and bodies(client, "other") == []


def test_a_dead_letter_waits_too() -> None:
    world, client = world_of("fanout")
    arguments = {"x-dead-letter-exchange": "later", "x-message-ttl": 0}
    client.call(1, "queue.declare", queue="dying", arguments=arguments)
    publish(client, b"a", 1000, "dying", exchange="")
    assert waiting(world) == 1
    world.pass_time(1.1)
    assert bodies(client) == [b"a"]


def test_a_confirm_says_that_it_waits_safely_and_mandatory_is_content() -> None:
    _, client = world_of()
    client.call(1, "confirm.select")
    client.publish(
        1, b"a", exchange="later", routing_key="nowhere", mandatory=True,
        properties=with_headers(**{"x-delay": 1000}),
    )  # fmt: skip
    assert [seen.name for seen in client.read()] == ["basic.ack"]


def test_in_a_transaction_it_waits_from_the_commit() -> None:
    world, client = world_of()
    client.call(1, "tx.select")
    publish(client, b"a", 1000)
    assert waiting(world) == 0
    client.call(1, "tx.commit")
    assert waiting(world) == 1
    world.pass_time(1.1)
    assert bodies(client) == [b"a"]


def test_what_waits_goes_with_the_exchange() -> None:
    world, client = world_of()
    publish(client, b"a", 1000)
    client.call(1, "exchange.delete", exchange="later")
    assert LATER not in world.vhost.queues
    world.pass_time(2)
    assert bodies(client) == []


def test_its_queue_is_no_clients() -> None:
    world, client = world_of()
    publish(client, b"a", 1000)
    publish(client, b"unroutable", None, LATER, exchange="")
    assert waiting(world) == 1
    for code, method, arguments in (
        (405, "queue.purge", {}), (405, "queue.delete", {}), (405, "basic.consume", {}),
        (405, "basic.get", {}),
        (405, "queue.bind", {"exchange": "amq.fanout"}), (405, "queue.declare", {"durable": True}),
        (403, "queue.declare", {"queue": delay_name("none")}),
        (406, "queue.declare", {"queue": "n", "arguments": {"x-delayed-for": "later"}}),
    ):  # fmt: skip
        seen = client.call(1, method, **{"queue": LATER, **arguments})
        assert (seen.name, seen["reply_code"]) == ("channel.close", code), method
        client.send(1, "channel.close-ok")
        client.call(1, "channel.open")


@pytest.mark.parametrize("type_", [None, "none", "x-delayed-message", 1])
def test_it_needs_a_type_to_route_by(type_: object) -> None:
    client = World().open()
    arguments = {} if type_ is None else {"x-delayed-type": type_}
    seen = client.call(1, "exchange.declare", exchange="x", type="x-delayed-message", arguments=arguments)
    assert (seen["reply_code"], "'x-delayed-type' must be an existing" in seen["reply_text"]) == (406, True)


def test_declared_again_with_another_type() -> None:
    _, client = world_of()
    arguments = {"x-delayed-type": "topic"}
    seen = client.call(
        1, "exchange.declare", exchange="later", type="x-delayed-message", durable=True, arguments=arguments
    )
    assert seen["reply_code"] == 406 and "x-delayed-type" in seen["reply_text"]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_due_message_waits_for_room_in_a_full_queue_and_holds_up_no_others(overflow: str) -> None:
    """It was confirmed, so the queue may not refuse it. The earliest gets the room."""
    world, client = world_of("topic")
    for name, most in (("full", 1), ("wide", 100)):
        limits = {"x-max-length": most, "x-overflow": overflow}
        client.call(1, "queue.declare", queue=name, arguments=limits)
        client.call(1, "queue.bind", queue=name, exchange="later", routing_key=f"#.{name}.#")
    publish(client, b"first", key="full")
    for body, delay, key in ((b"b", 200, "full"), (b"a", 100, "full"), (b"both", 300, "full.wide")):
        publish(client, body, delay, key)
    publish(client, b"other", 400, "wide")
    world.pass_time(1)
    assert bodies(client, "wide") == [b"other"] and waiting(world) == 3
    found = []
    for _ in range(4):
        found += bodies(client, "full")
        world.pass_time(0.5)
    assert found == [b"first", b"a", b"b", b"both"] and bodies(client, "wide") == [b"both"]
    publish(client, b"c", 100, "full")
    publish(client, b"full again", key="full")
    world.pass_time(1)
    assert waiting(world) == 1 and client.call(1, "queue.delete", queue="full").name == "queue.delete-ok"
    world.pass_time(1)
    assert waiting(world) == 0, "nobody refuses it any more"
