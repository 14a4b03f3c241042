"""Policies as clients see them, on connections that were already open."""

from __future__ import annotations

from typing import Any

from broker.amqp091.codec.grammar import encode_frame
from broker.model.history.records import EntryDelete, EntryPut
from tests.broker.amqp091.wire import Raw, World, message


def policy(world: World, pattern: str = "^q", **definition: object) -> None:
    said = {key.replace("_", "-"): value for key, value in definition.items()}
    value = {"pattern": pattern, "apply-to": "all", "priority": 0, "definition": said}
    world.vhost.shared.change_directory([EntryPut("policy", "/", "p", value)])
    world.tick()


def opened() -> tuple[World, Raw]:
    world = World()
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    return world, client


def sent(client: Raw, *bodies: bytes, exchange: str = "", key: str = "q") -> None:
    client.raw(b"".join(message(1, body, exchange, key) for body in bodies))


def confirms(client: Raw) -> list[tuple[str, int]]:
    return [(seen.name, seen["delivery_tag"]) for seen in client.read()]


def test_a_queue_refuses_publishes_while_a_policy_demands_it() -> None:
    world, client = opened()
    client.call(1, "confirm.select")
    sent(client, b"1", b"2")
    assert confirms(client) == [("basic.ack", 2)]
    policy(world, max_length=3, overflow="reject-publish")
    sent(client, b"3", b"4")
    assert confirms(client) == [("basic.ack", 3), ("basic.nack", 4)]
    world.vhost.shared.change_directory([EntryDelete("policy", "/", "p")])
    sent(client, b"5")
    assert confirms(client) == [("basic.ack", 5)]
    assert world.vhost.queues["q"].message_count == 4


def test_a_commit_fails_if_a_policy_has_made_a_queue_full() -> None:
    world, client = opened()
    client.call(1, "tx.select")
    sent(client, b"1", b"2")
    policy(world, max_length=1, overflow="reject-publish")
    closed = client.call(1, "tx.commit")
    assert (closed.name, closed["reply_code"]) == ("channel.close", 406)
    assert world.vhost.queues["q"].message_count == 0


def test_declare_ok_in_the_tick_of_a_policy_respects_its_limit() -> None:
    world, client = opened()
    sent(client, b"1", b"2", b"3")
    value = {"pattern": "q", "definition": {"max-length": 2}}
    world.vhost.shared.change_directory([EntryPut("policy", "/", "p", value)])
    client.raw(encode_frame(1, "queue.declare", queue="q"))
    assert client.read()[0]["message_count"] == 2


def test_messages_expire_by_policy_without_a_reader() -> None:
    world, client = opened()
    sent(client, b"1")
    world.pass_time(1)
    policy(world, message_ttl=5000)
    world.pass_time(3.9)
    assert world.vhost.queues["q"].message_count == 1
    world.pass_time(0.2)
    assert world.vhost.queues["q"].message_count == 0


def test_a_queue_expires_by_policy() -> None:
    world, client = opened()
    world.pass_time(60)
    policy(world, expires=1000)
    world.pass_time(0.9)
    assert client.call(1, "queue.declare", queue="q", passive=True).name == "queue.declare-ok"
    world.pass_time(0.9)
    assert "q" in world.vhost.queues
    world.pass_time(0.2)
    assert "q" not in world.vhost.queues


def test_each_get_and_each_declaration_gives_a_queue_its_time_again() -> None:
    world, client = opened()
    arguments = {"x-expires": 1000}
    asked: dict[str, dict[str, Any]] = {
        "basic.get": {"no_ack": True}, "queue.declare": {"arguments": arguments},
    }  # fmt: skip
    client.call(1, "queue.declare", queue="left", arguments=arguments)
    for method, more in asked.items():
        client.call(1, "queue.declare", queue=method, arguments=arguments)
        made = world.vhost.queues[method]
        for _ in range(3):
            world.pass_time(0.9)
            client.call(1, method, queue=method, **more)
        assert world.vhost.queues[method] is made
        world.pass_time(1.1)
        assert method not in world.vhost.queues
    assert "left" not in world.vhost.queues


def test_a_policys_alternate_exchange_applies_to_known_routes() -> None:
    world, client = opened()
    client.call(1, "queue.bind", queue="q", exchange="amq.fanout")
    sent(client, b"lost", exchange="amq.direct", key="none")
    policy(world, "^amq.direct$", alternate_exchange="amq.fanout")
    sent(client, b"kept", exchange="amq.direct", key="none")
    got = client.call(1, "basic.get", queue="q", no_ack=True)
    assert (got.body, got["message_count"]) == (b"kept", 0)


def test_a_slow_pattern_matches_the_same_names_at_any_time_and_is_logged_once() -> None:
    world = World()
    client = world.open()
    names = ["a" * 200 + f"!{number}" for number in range(30)]
    for name in (*names, "aaa"):
        client.call(1, "queue.declare", queue=name)
    policy(world, "^(a+)+$", max_length=3)
    for name in ("aa", hard := "a" * 200 + "?"):
        client.call(1, "queue.declare", queue=name)
    assert not any(world.vhost.queues[name].policy for name in (*names, hard))
    assert world.vhost.queues["aaa"].policy == world.vhost.queues["aa"].policy == "p"
    [line] = [line for line in world.logged if line.startswith("policy 'p' in vhost '/': ")]
    assert f"30 names, such as '{names[0]}', and does not match them" in line
