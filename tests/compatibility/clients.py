"""What the tests of rows do over and over with a pika channel. Nothing sleeps: each waits for the answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

PATIENCE = 20.0
"""Seconds for what must come."""


def private(channel: Any, **arguments: Any) -> str:
    """A server-named queue of this connection."""
    declared = channel.queue_declare("", exclusive=True, arguments=arguments or None)
    return str(declared.method.queue)


def drained(channel: Any, queue: str) -> list[bytes]:
    """Bodies of all that is ready, taken by basic.get."""
    bodies: list[bytes] = []
    while (found := channel.basic_get(queue, auto_ack=True))[0] is not None:
        bodies.append(found[2])
    return bodies


def ready(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def publish(channel: Any, queue: str, *bodies: bytes, **properties: Any) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


class Got(list[Any]):
    """A consumer's deliveries: (method, properties, body)."""

    def __call__(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.append((method, properties, body))

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self]

    def wait(self, connection: Any, count: int) -> Got:
        wait_until(connection, lambda: len(self) >= count)
        return self


def wait_until(connection: Any, done: Any) -> None:
    """Serve the connection until `done()`."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "it did not come"
        connection.process_data_events(0.1)


@contextmanager
def refused(code: int, text: str = "") -> Iterator[None]:
    """The broker closes the channel with this code, and a text that has `text` in it."""
    with pytest.raises(ChannelClosedByBroker) as caught:
        yield
    assert caught.value.reply_code == code
    assert text in caught.value.reply_text


@contextmanager
def cut_off(code: int, text: str = "") -> Iterator[None]:
    """The broker closes the connection."""
    with pytest.raises(ConnectionClosedByBroker) as caught:
        yield
    assert caught.value.reply_code == code
    assert text in caught.value.reply_text
