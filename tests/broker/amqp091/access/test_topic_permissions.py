"""Topic permissions: routing keys that a stored user may publish with and bind, and who has none."""

from __future__ import annotations

from typing import Any

import pytest

from broker.model.history.records import EntryDelete, EntryPut
from broker.model.vhost.directory import EntryFault
from broker.security.topic_permissions import TopicPermission, parts_of_topic, topic_name
from tests.broker.amqp091.access.test_access import ALICE, store, told
from tests.broker.amqp091.test_copies import with_headers
from tests.broker.amqp091.wire import Raw, World
from tests.broker.stored import permission, user


def topic(
    write: str = ".*", read: str = ".*", *, exchange: str = "amq.topic", who: str = "alice"
) -> EntryPut:
    return EntryPut("topic-permission", "/", topic_name(who, exchange), {"write": write, "read": read})


def world_of(*entries: EntryPut) -> World:
    """A world with the queue `q`, which gets all of amq.topic, and the user alice."""
    world = World()
    store(world, user(), permission(), *entries)
    guest = world.open()
    guest.call(1, "queue.declare", queue="q")
    guest.call(1, "queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    return world


def refusal(what: str, key: str) -> tuple[int, str]:
    return 403, (
        f"ACCESS_REFUSED - {what} access to topic '{key}' in exchange 'amq.topic' in vhost '/' "
        "refused for user 'alice'"
    )


def bind(client: Raw, key: str, method: str = "queue.bind") -> Any:
    return client.call(1, method, queue="q", exchange="amq.topic", routing_key=key)


def test_a_publish_needs_a_key_that_matches() -> None:
    world = world_of(topic(write="^a[.]"))
    client = world.open(**ALICE)
    client.publish(1, b"1", exchange="amq.topic", routing_key="a.b")
    client.publish(1, b"2", exchange="amq.fanout", routing_key="b.a")
    assert client.read() == [] and world.vhost.queues["q"].message_count == 1
    client.publish(1, b"3", exchange="amq.topic", routing_key="b.a")
    assert told(client.read()) == refusal("write", "b.a")
    assert world.vhost.queues["q"].message_count == 1


def test_so_do_further_keys_of_a_message_and_what_came_before_it_stays() -> None:
    world = world_of(topic(write="^a[.]"))
    client = world.open(**ALICE)
    for copies in (["a.c"], ["a.c", "b.c"]):
        properties = with_headers(CC=copies)
        client.publish(1, b"1", properties=properties, exchange="amq.topic", routing_key="a.b")
    assert told(client.read()) == refusal("write", "b.c")
    assert world.vhost.queues["q"].message_count == 1


@pytest.mark.parametrize("method", ["queue.bind", "queue.unbind"])
def test_a_binding_needs_read(method: str) -> None:
    client = world_of(topic(read="^a")).open(**ALICE)
    assert bind(client, "a.#", method).name == f"{method}-ok"
    assert told([bind(client, "#", method)]) == refusal("read", "#")


def test_exchanges_need_it_too() -> None:
    client = world_of(topic(read="^a")).open(**ALICE)
    ends = {"destination": "amq.fanout", "source": "amq.topic"}
    assert client.call(1, "exchange.bind", **ends, routing_key="a").name == "exchange.bind-ok"
    assert told([client.call(1, "exchange.bind", **ends, routing_key="b")]) == refusal("read", "b")


def test_names_in_a_pattern_stand_for_themselves() -> None:
    own = TopicPermission("^{username}-{vhost}-.+$", "")
    assert own.allows("write", "a.b-/x-1", "a.b", "/x") and not own.allows("write", "axb-/x-1", "a.b", "/x")
    assert own.allows("write", "жук-/-1", "жук", "/")
    assert TopicPermission("^{client_id}$", "").allows("write", "{client_id}", "a", "/"), "only MQTT has one"
    assert own.allows("read", "", "a", "/") and not own.allows("read", "k", "a", "/")


def test_a_change_counts_at_once() -> None:
    world = world_of()
    client = world.open(**ALICE)
    client.publish(1, b"1", exchange="amq.topic", routing_key="b")
    store(world, topic(write="^a"))
    client.publish(1, b"2", exchange="amq.topic", routing_key="b")
    assert told(client.read()) == refusal("write", "b")
    client.send(1, "channel.close-ok")
    client.call(1, "channel.open")
    store(world, EntryDelete("topic-permission", "/", topic_name("alice", "amq.topic")))
    client.publish(1, b"3", exchange="amq.topic", routing_key="b")
    assert client.read() == [] and world.vhost.queues["q"].message_count == 2


def test_they_end_with_their_user() -> None:
    world = world_of(topic(), EntryPut("user-limits", "", "alice", {"max-channels": 3}))
    store(world, EntryDelete("user", "", "alice"))
    directory = world.vhost.shared.directory
    assert not directory.topic_permissions and not directory.user_limits
    assert {entry.kind for entry in directory.entries()} == set()


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (topic(who="bob"), "topic-permission for 'bob': there is no such user"),
        (topic(exchange=""), "its name is not that of a user and an exchange"),
        (topic(write="("), "write is no regular expression"),
        (EntryPut("topic-permission", "/", "alice/x", {"write": ""}), "read is not a string"),
        (EntryPut("topic-permission", "/", "al%69ce/x", {}), "read|write"),
        (topic(exchange="x" * 1020), "a name has 1 to 1024 octets"),
    ],
)
def test_a_wrong_one_is_refused(entry: EntryPut, why: str) -> None:
    with pytest.raises(EntryFault, match=why):
        store(world_of(), entry)


def test_any_names_have_one_name_together() -> None:
    for parts in (("a/b", "c/d"), ("%2f", "%"), ("a@b c", ""), ("жук", "ж")):
        assert parts_of_topic(topic_name(*parts)) == parts
