"""Direct reply-to on the wire: which messages name the requester, and when its queue ends."""

from __future__ import annotations

import pytest

from broker.amqp091.codec.fields import write_shortstr
from broker.amqp091.codec.properties import PROPERTIES_AT
from broker.amqp091.codec.reply_to import reply_to_of
from broker.model.queue.direct_reply import PREFIX, REPLY_TO
from tests.broker.amqp091.wire import Raw, World, message


def properties(reply_to: str = REPLY_TO, correlation_id: str = "") -> bytes:
    named = write_shortstr(correlation_id) if correlation_id else b""
    return bytes((0x06 if named else 0x02, 0)) + named + write_shortstr(reply_to)


def requester(world: World) -> tuple[Raw, str]:
    client = world.open()
    client.call(1, "queue.declare", queue="requests")
    client.call(1, "basic.consume", queue=REPLY_TO, no_ack=True)
    (name,) = [name for name in world.vhost.queues if name.startswith(PREFIX)]
    return client, name


def named(world: World) -> list[str]:
    """The `reply-to` of each request."""
    entries = world.vhost.queues["requests"].held_entries()
    return [reply_to_of(raw) for _, _, raw in entries]


def test_only_messages_that_ask_for_it_are_rewritten_in_whatever_form_they_come() -> None:
    world = World()
    client, name = requester(world)
    told = [REPLY_TO, "elsewhere", REPLY_TO, REPLY_TO.upper(), "", REPLY_TO, REPLY_TO]
    client.raw(b"".join(
        message(1, b"x" * at, "", "requests", properties=properties(reply_to, "7" * at))
        for at, reply_to in enumerate(told)
    ))  # fmt: skip
    for body in (b"y" * 300_000, b"z" * 3_000_000):  # in several frames; large
        client.raw(message(1, body, "", "requests", properties=properties()))
    assert named(world) == [
        name if reply_to == REPLY_TO else reply_to for reply_to in (*told, *[REPLY_TO] * 2)
    ]
    largest = [raw for _, _, raw in world.vhost.queues["requests"].held_entries()][-1]
    assert largest.endswith(b"z\xce") and int.from_bytes(largest[11:19], "big") == 3_000_000
    assert largest[PROPERTIES_AT : PROPERTIES_AT + 2] == b"\x02\0"
    assert client.names() == []


def test_in_a_transaction_and_to_a_consumer_with_a_small_frame_max() -> None:
    world = World()
    client, name = requester(world)
    client.call(1, "tx.select")
    client.publish(1, b"a", routing_key="requests", properties=properties(correlation_id="c"))
    assert not named(world)
    client.call(1, "tx.commit")
    assert named(world) == [name]
    server = world.open(frame_max=4096)
    server.send(1, "basic.consume", queue="requests", no_ack=True)
    _, delivered = server.read()
    assert (delivered.body, delivered.header[14:]) == (b"a", write_shortstr("c") + write_shortstr(name))


@pytest.mark.parametrize("end", ["cancel", "channel", "connection", "lost"])
def test_the_queue_ends_with_its_consumer(end: str) -> None:
    world = World()
    client, name = requester(world)
    server = world.open()
    server.publish(1, b"1", routing_key=name)
    *_, delivered = client.read()
    assert (delivered["routing_key"], delivered["redelivered"], delivered.body) == (name, False, b"1")
    if end == "cancel":
        client.call(1, "basic.cancel", consumer_tag=delivered["consumer_tag"])
    elif end == "channel":
        client.call(1, "channel.close")
    elif end == "connection":
        client.call(0, "connection.close")
    else:
        client.connection.lost(world.now)
        world.tick()
    assert world.vhost.queues.keys() == {"requests"}
    server.publish(1, b"2", routing_key=name, mandatory=True)
    assert server.names() == ["basic.return"]
    if end == "cancel":
        client.publish(1, b"x", routing_key="requests", properties=properties())
        (closed,) = client.read()
        assert (closed.name, closed["reply_code"]) == ("channel.close", 406)


def test_nobody_else_takes_the_replies() -> None:
    world = World()
    _, name = requester(world)
    other = world.open()
    assert other.call(1, "basic.consume", queue=name)["reply_code"] == 405


def test_each_channel_has_its_own() -> None:
    world = World()
    client, name = requester(world)
    client.call(2, "channel.open")
    client.call(2, "basic.consume", queue=REPLY_TO, no_ack=True)
    names = [queue for queue in world.vhost.queues if queue.startswith(PREFIX)]
    client.publish(1, b"1", routing_key="requests", properties=properties())
    client.publish(2, b"2", routing_key="requests", properties=properties())
    assert named(world) == names and names[0] == name and len(names) == 2
