"""Length limits and what gives way."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika.exceptions import NackError

from tests.compatibility.clients import Got, drained, private, publish, ready

FIVE = [b"%d" % n for n in range(5)]


def limited(channel: Any, **arguments: Any) -> tuple[str, str]:
    """A queue, and the queue to which its dead letters go."""
    dead = private(channel)
    dlx = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    return private(
        channel, **dlx, **{f"x-{name.replace('_', '-')}": v for name, v in arguments.items()}
    ), dead


def test_max_length_drops_the_oldest(channel: Any) -> None:
    queue, dead = limited(channel, max_length=3)
    publish(channel, queue, *FIVE)
    assert ready(channel, queue) == 3
    assert (drained(channel, queue), ready(channel, dead)) == (FIVE[2:], 2)
    for body in FIVE[:2]:
        _, properties, got = channel.basic_get(dead, auto_ack=True)
        assert (got, properties.headers["x-death"][0]["reason"]) == (body, "maxlen")


def test_max_length_bytes_counts_bodies(channel: Any) -> None:
    queue, dead = limited(channel, max_length_bytes=25)
    publish(channel, queue, *[body * 10 for body in FIVE], headers={"long": "x" * 1000})
    assert drained(channel, queue) == [body * 10 for body in FIVE[3:]]
    assert ready(channel, dead) == 3
    publish(channel, queue, b"x" * 26)
    assert drained(channel, queue) == []


def test_only_ready_messages_count(channel: Any) -> None:
    queue, _ = limited(channel, max_length=2)
    publish(channel, queue, *FIVE[:2])
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(2)]
    publish(channel, queue, *FIVE[2:4])
    assert ready(channel, queue) == 2
    channel.basic_nack(tags[-1], multiple=True, requeue=True)
    assert drained(channel, queue) == FIVE[2:4]


def test_reject_publish(channel: Any) -> None:
    queue, dead = limited(channel, max_length=2, overflow="reject-publish")
    channel.confirm_delivery()
    publish(channel, queue, *FIVE[:2])
    with pytest.raises(NackError):
        publish(channel, queue, FIVE[2])
    assert channel.basic_get(queue, auto_ack=True)[2] == FIVE[0]
    publish(channel, queue, FIVE[3])
    assert (drained(channel, queue), drained(channel, dead)) == ([FIVE[1], FIVE[3]], [])


def test_reject_publish_dlx(channel: Any) -> None:
    queue, dead = limited(channel, max_length=1, overflow="reject-publish-dlx")
    channel.confirm_delivery()
    publish(channel, queue, FIVE[0])
    with pytest.raises(NackError):
        publish(channel, queue, FIVE[1])
    assert (drained(channel, queue), drained(channel, dead)) == ([FIVE[0]], [FIVE[1]])


def test_one_full_queue_of_several_is_a_nack(channel: Any) -> None:
    full, _ = limited(channel, max_length=0, overflow="reject-publish")
    other = private(channel)
    for queue in (full, other):
        channel.queue_bind(queue, "amq.direct", full)
    channel.confirm_delivery()
    with pytest.raises(NackError):
        channel.basic_publish("amq.direct", full, b"x", pika.BasicProperties())
    assert drained(channel, other) == [b"x"]


def test_max_length_zero(connection: Any, channel: Any) -> None:
    queue, dead = limited(channel, max_length=0)
    publish(channel, queue, *FIVE)
    assert (drained(channel, queue), drained(channel, dead)) == ([], FIVE)
    got = Got()
    channel.basic_consume(queue, got, auto_ack=True)
    publish(channel, queue, b"now")
    assert got.wait(connection, 1).bodies == [b"now"]
    assert drained(channel, dead) == []
