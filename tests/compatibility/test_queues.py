"""Queues: names, owners, ends, and their arguments."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pika
import pytest

from tests.compatibility.clients import Got, drained, private, publish, ready, refused, wait_until

New = Callable[[str], str]


def test_server_named(connection: Any, channel: Any) -> None:
    name = channel.queue_declare("").method.queue
    assert name.startswith("amq.gen-") and len(name) == len("amq.gen-") + 22
    channel.queue_bind("", "amq.direct")  # the last one declared, by its own name
    channel.basic_publish("amq.direct", name, b"x")
    assert drained(channel, name) == [b"x"]
    channel.queue_delete(name)
    with refused(403, "queue name 'amq.mine' contains reserved prefix 'amq.*'"):
        connection.channel().queue_declare("amq.mine")


def test_passive(connection: Any, channel: Any) -> None:
    queue = private(channel)
    publish(channel, queue, b"1", b"2", b"3")
    channel.basic_get(queue)
    found = channel.queue_declare(queue, passive=True).method
    assert (found.message_count, found.consumer_count) == (2, 0)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(queue, Got())
    found = channel.queue_declare(queue, passive=True).method
    assert (found.message_count, found.consumer_count) == (1, 1)
    with refused(404, "no queue 'gone' in vhost '/'"):
        connection.channel().queue_declare("gone", passive=True)


def test_declared_again(connection: Any, new: New) -> None:
    name = new("q")
    same: dict[str, Any] = {"durable": True, "arguments": {"x-max-length": 5, "mine": 1}}
    connection.channel().queue_declare(name, **same)
    connection.channel().queue_declare(name, **same)
    connection.channel().queue_declare(name, durable=True, arguments={"x-max-length": 5})
    for other in ({"durable": False}, {"auto_delete": True}, {"arguments": {"x-max-length": 6}}):
        with refused(406, f"for queue '{name}' in vhost '/': received"):
            connection.channel().queue_declare(name, **(same | other))


def test_exclusive(connect: Callable[..., Any], new: New) -> None:
    owner, other, name = connect(), connect(), new("q")
    owner.channel().queue_declare(name, exclusive=True)
    for ask in ("queue_declare", "basic_get", "queue_purge", "queue_delete"):
        with refused(405, f"cannot obtain exclusive access to locked queue '{name}' in vhost '/'"):
            getattr(other.channel(), ask)(name)
    owner.close()
    with refused(404):
        other.channel().queue_declare(name, passive=True)


def test_auto_delete(connection: Any, channel: Any, new: New) -> None:
    name = new("q")
    channel.queue_declare(name, auto_delete=True)
    channel.queue_declare(name, passive=True)  # not before it had a consumer
    tag = channel.basic_consume(name, Got())
    channel.basic_cancel(tag)
    with refused(404):
        channel.queue_declare(name, passive=True)


def test_purge_and_delete(connection: Any, channel: Any, new: New) -> None:
    name = new("q")
    channel.queue_declare(name)
    publish(channel, name, b"1", b"2", b"3")
    channel.basic_get(name)  # unacknowledged: no purge takes it
    assert channel.queue_purge(name).method.message_count == 2
    publish(channel, name, b"4")
    with refused(406, f"queue '{name}' in vhost '/' is not empty"):
        connection.channel().queue_delete(name, if_empty=True)
    channel.basic_consume(name, Got())
    with refused(406, f"queue '{name}' in vhost '/' in use"):
        connection.channel().queue_delete(name, if_unused=True)
    channel.queue_delete(name)
    channel.queue_delete(name)  # of one that is not there, too
    with refused(404, f"no queue '{name}' in vhost '/'"):
        connection.channel().queue_purge(name)


def test_expires(connection: Any, channel: Any, new: New) -> None:
    used, idle = new("q"), new("q")
    for name in (used, idle):
        channel.queue_declare(name, arguments={"x-expires": 100})
        channel.basic_consume(name, Got(), consumer_tag=name)
    channel.basic_cancel(idle)
    channel.confirm_delivery()
    wait_until(connection, lambda: not _routes(channel, idle))
    assert _routes(channel, used)


def _routes(channel: Any, queue: str) -> bool:
    try:
        channel.basic_publish("", queue, b"", mandatory=True)
    except pika.exceptions.UnroutableError:
        return False
    return True


WRONG: list[tuple[str, Any, str]] = [
    ("x-message-ttl", -1, "{value_negative,-1}"),
    ("x-message-ttl", "1000", '"expected integer, got longstr"'),
    ("x-message-ttl", True, '"expected integer, got bool"'),
    ("x-message-ttl", Decimal("1.5"), '"expected integer, got decimal"'),
    ("x-message-ttl", 315_360_000_001, "{value_too_large,315360000001}"),
    ("x-expires", 0, "{value_zero,0}"),
    ("x-max-length", -1, "{value_negative,-1}"),
    ("x-max-length-bytes", None, '"expected integer, got void"'),
    ("x-max-priority", 256, "{max_value_exceeded,256}"),
    ("x-overflow", "drop-tail", "invalid_overflow"),
    ("x-dead-letter-exchange", 5, "{unacceptable_type,signedint}"),
    ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
    ("x-single-active-consumer", "true", "{unacceptable_type,longstr}"),
]


@pytest.mark.parametrize(("name", "value", "text"), WRONG)
def test_arguments_of_a_wrong_type_or_value(channel: Any, name: str, value: Any, text: str) -> None:
    told = f"PRECONDITION_FAILED - invalid arg '{name}' for queue 'wrong' in vhost '/': "
    with refused(406, told + text):
        channel.queue_declare("wrong", arguments={name: value})


def test_large_arguments(channel: Any) -> None:
    with refused(406, "PRECONDITION_FAILED - arguments of 20010 octets are above the maximum of 16384"):
        channel.queue_declare("wrong", arguments={"mine": "x" * 20_000})


def test_arguments_without_a_meaning_are_kept(connection: Any, new: New) -> None:
    name = new("q")
    connection.channel().queue_declare(name, arguments={"x-mine": 1})
    connection.channel().queue_declare(name, arguments={"x-mine": 1})
    with refused(406, "inequivalent arg 'x-mine'"):
        connection.channel().queue_declare(name, arguments={"x-mine": 2})


def test_types_of_queues(connection: Any, new: New) -> None:
    classic, quorum = new("q"), new("q")
    connection.channel().queue_declare(classic, durable=True, arguments={"x-queue-type": "classic"})
    connection.channel().queue_declare(classic, durable=True)
    connection.channel().queue_declare(quorum, durable=True, arguments={"x-queue-type": "quorum"})
    with refused(406, "invalid arg 'x-queue-type'"):
        connection.channel().queue_declare(new("q"), durable=True, arguments={"x-queue-type": "stream"})
    with refused(406, "invalid arg 'x-max-age' for queue"):
        connection.channel().queue_declare(new("q"), arguments={"x-max-age": "1h"})


@pytest.mark.parametrize("kind", [{}, {"exclusive": True}, {"auto_delete": True}, {"durable": True}])
def test_a_quorum_queue_may_be_of_any_kind(channel: Any, new: New, kind: dict[str, bool]) -> None:
    name = new("q")
    channel.queue_declare(name, arguments={"x-queue-type": "quorum"}, **kind)
    channel.queue_delete(name)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_delivery_limit(channel: Any, kind: str) -> None:
    dead = private(channel)
    queue = private(channel, **{
        "x-queue-type": kind, "x-delivery-limit": 2, "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
    })  # fmt: skip
    publish(channel, queue, b"x", headers={"x-delivery-count": 7})
    counts = []
    while (found := channel.basic_get(queue))[0] is not None:
        method, properties, _ = found
        counts.append(properties.headers["x-delivery-count"])
        channel.basic_nack(method.delivery_tag, requeue=True)
    assert counts == [7, 1, 2], "the first delivery is as it was published"
    _, properties, body = channel.basic_get(dead)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"x", "delivery_limit")


def test_last_values(channel: Any) -> None:
    """Not in RabbitMQ: of the messages with one value of a header, only the newest is kept."""
    queue = private(channel, **{"x-last-value-key": "stock"})
    for number, stock in enumerate(("a", "b", "a", None, "c", "a", None)):
        publish(channel, queue, b"%d" % number, headers={} if stock is None else {"stock": stock})
    assert ready(channel, queue) == 5
    assert drained(channel, queue) == [b"1", b"3", b"4", b"5", b"6"]
    for value, why in (("", '"empty"'), (1, "{unacceptable_type,signedint}")):
        with refused(406, f"invalid arg 'x-last-value-key' for queue '' in vhost '/': {why}"):
            private(channel.connection.channel(), **{"x-last-value-key": value})
    with refused(406, "of a queue with x-max-priority"):
        private(channel.connection.channel(), **{"x-last-value-key": "stock", "x-max-priority": 2})


def test_deduplication_by_ids(connect: Callable[..., Any], channel: Any) -> None:
    """Not in RabbitMQ: a queue with a window does not take an id twice; it is confirmed."""
    queue = private(channel, **{"x-dedup-window": "100/1h"})
    sending = connect().channel()
    sending.confirm_delivery()
    for body, name in ((b"1", "a"), (b"2", "b"), (b"3", "a")):
        sending.basic_publish("", queue, body, pika.BasicProperties(message_id=name))
    assert drained(channel, queue) == [b"1", b"2"]
    with refused(406, "'10m' is not a number of ids"):
        private(channel.connection.channel(), **{"x-dedup-window": "10m"})


def test_message_groups(connect: Callable[..., Any], channel: Any, connection: Any) -> None:
    """Not in RabbitMQ: messages with one value of a header go to one consumer, in order, until it ends."""
    queue, one, two = private(channel, **{"x-message-group": "order"}), Got(), Got()
    other = connection.channel()
    for consumer, got in ((channel, one), (other, two)):
        consumer.basic_qos(prefetch_count=2)
        consumer.basic_consume(queue, got)
    for body in (b"a1", b"b1", b"a2", b"a3", b"b2", b"a4"):
        publish(channel, queue, body, headers={"order": body[:1].decode()})
    wait_until(connection, lambda: len(one) + len(two) == 4)
    assert sorted((one.bodies, two.bodies)) == [[b"a1", b"a2"], [b"b1", b"b2"]]
    first, second = (one, two) if one.bodies[0] == b"a1" else (two, one)
    (channel if first is one else other).basic_ack(first[1][0].delivery_tag, multiple=True)
    assert first.wait(connection, 4).bodies == [b"a1", b"a2", b"a3", b"a4"] and len(second) == 2
    leaves, stays = (channel, other) if first is one else (other, channel)
    stays.basic_ack(second[1][0].delivery_tag, multiple=True)
    leaves.close()
    second.wait(connection, 4)
    assert [(body, method.redelivered) for method, _, body in second[2:]] == [(b"a3", True), (b"a4", True)]
    with refused(406, "of a queue with x-max-priority"):
        private(connection.channel(), **{"x-message-group": "order", "x-max-priority": 2})
