"""Message TTL: of a queue and of a message. What has expired is seen at a dead-letter queue."""

from __future__ import annotations

from typing import Any

from tests.compatibility.clients import Got, drained, private, publish, ready, wait_until

SOON = 30
"""Milliseconds."""


def expiring(channel: Any, ttl: int | None = None, **more: Any) -> tuple[str, str]:
    """A queue, and the queue to which its dead letters go."""
    dead = private(channel)
    arguments: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, **more}
    return private(channel, **(arguments if ttl is None else arguments | {"x-message-ttl": ttl})), dead


def test_message_ttl_of_a_queue(connection: Any, channel: Any) -> None:
    queue, dead = expiring(channel, SOON)
    got = Got()
    channel.basic_consume(dead, got, auto_ack=True)
    publish(channel, queue, b"1", b"2")
    assert got.wait(connection, 2).bodies == [b"1", b"2"]
    assert drained(channel, queue) == []
    assert [properties.headers["x-death"][0]["reason"] for _, properties, _ in got] == ["expired"] * 2


def test_expiration_of_a_message(connection: Any, channel: Any) -> None:
    queue, dead = expiring(channel)
    got = Got()
    channel.basic_consume(dead, got, auto_ack=True)
    publish(channel, queue, b"1", expiration=str(SOON))
    publish(channel, queue, b"2")
    (_, properties, body) = got.wait(connection, 1)[0]
    assert (body, properties.expiration) == (b"1", None)
    assert properties.headers["x-death"][0]["original-expiration"] == str(SOON)
    assert drained(channel, queue) == [b"2"]


def test_the_shorter_ttl_counts(connection: Any, channel: Any) -> None:
    for ttl, expiration in ((SOON, "600000"), (600_000, str(SOON))):
        queue, dead = expiring(channel, ttl)
        got = Got()
        channel.basic_consume(dead, got, auto_ack=True)
        publish(channel, queue, b"x", expiration=expiration)
        got.wait(connection, 1)


def test_an_expired_message_behind_others_is_never_delivered(connection: Any, channel: Any) -> None:
    queue, dead = expiring(channel)
    publish(channel, queue, b"1")
    publish(channel, queue, b"2", expiration="1")
    clock, later = expiring(channel, SOON)
    got = Got()
    channel.basic_consume(later, got, auto_ack=True)
    publish(channel, clock, b"tick")
    got.wait(connection, 1)
    assert drained(channel, queue) == [b"1"]
    wait_until(connection, lambda: ready(channel, dead) == 1)


def test_ttl_zero_delivers_at_once_or_not_at_all(connection: Any, channel: Any) -> None:
    queue, dead = expiring(channel, 0)
    publish(channel, queue, b"nobody takes it")
    wait_until(connection, lambda: ready(channel, dead) == 1)
    got = Got()
    channel.basic_consume(queue, got, auto_ack=True)
    publish(channel, queue, b"somebody takes it")
    assert got.wait(connection, 1).bodies == [b"somebody takes it"]


def test_what_is_outstanding_does_not_expire_and_keeps_its_time(connection: Any, channel: Any) -> None:
    queue, dead = expiring(channel, SOON)
    got = Got()
    consumer = channel.basic_consume(queue, got)
    publish(channel, queue, b"x")
    got.wait(connection, 1)
    clock, later = expiring(channel, 3 * SOON)
    publish(channel, clock, b"tick")
    wait_until(connection, lambda: ready(channel, later) == 1)
    assert ready(channel, dead) == 0
    channel.basic_cancel(consumer)
    channel.basic_nack(got[0][0].delivery_tag, requeue=True)
    wait_until(connection, lambda: ready(channel, dead) == 1)
    assert drained(channel, queue) == []
