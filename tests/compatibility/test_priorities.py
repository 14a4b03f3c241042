"""Priorities of messages."""

from __future__ import annotations

from typing import Any

from tests.compatibility.clients import Got, drained, private, publish


def filled(channel: Any, queue: str, *priorities: int | None) -> str:
    for number, priority in enumerate(priorities):
        more = {} if priority is None else {"priority": priority}
        publish(channel, queue, b"%d" % number, **more)
    return queue


def test_higher_priorities_first(connection: Any, channel: Any) -> None:
    queue = filled(channel, private(channel, **{"x-max-priority": 5}), None, 5, 1, 5, 0)
    assert drained(channel, queue) == [b"1", b"3", b"2", b"0", b"4"]
    filled(channel, queue, 0, 3, 1)
    got = Got()
    channel.basic_consume(queue, got, auto_ack=True)
    assert got.wait(connection, 3).bodies == [b"1", b"2", b"0"]


def test_priorities_above_the_highest_are_the_highest(channel: Any) -> None:
    queue = filled(channel, private(channel, **{"x-max-priority": 2}), 1, 2, 200, 2)
    assert drained(channel, queue) == [b"1", b"2", b"3", b"0"]


def test_a_queue_without_priorities_has_none(channel: Any) -> None:
    assert drained(channel, filled(channel, private(channel), 0, 9, 5)) == [b"0", b"1", b"2"]


def test_requeued_messages_keep_their_priority(channel: Any) -> None:
    queue = filled(channel, private(channel, **{"x-max-priority": 9}), 1, 9, 9, 1)
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(3)]
    channel.basic_nack(tags[-1], multiple=True, requeue=True)
    assert drained(channel, queue) == [b"1", b"2", b"0", b"3"]


def test_a_full_queue_of_priorities_drops_the_next_to_be_delivered(channel: Any) -> None:
    queue = private(channel, **{"x-max-priority": 9, "x-max-length": 2})
    assert drained(channel, filled(channel, queue, 1, 9, 1)) == [b"0", b"2"]
