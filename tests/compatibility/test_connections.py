"""Connections and channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError

from broker.engine import MIB
from tests.compatibility.clients import private, refused


def test_capabilities(connection: Any) -> None:
    capabilities = connection._impl.server_capabilities
    assert {name for name, has in capabilities.items() if has} == {
        "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
        "connection.blocked", "authentication_failure_close", "per_consumer_qos",
    }  # fmt: skip


def test_login_refused(connect: Callable[..., Any]) -> None:
    with pytest.raises(ProbableAuthenticationError, match="ACCESS_REFUSED"):
        connect(credentials=pika.PlainCredentials("guest", "wrong"))


def test_virtual_hosts(connect: Callable[..., Any], channel: Any) -> None:
    queue = "of the same name"
    channel.queue_declare(queue, exclusive=True)
    other = connect(virtual_host="second").channel()
    with refused(404):
        connect(virtual_host="second").channel().queue_declare(queue, passive=True)
    other.queue_declare(queue, exclusive=True)
    other.basic_publish("", queue, b"there")
    assert channel.basic_get(queue) == (None, None, None)
    with pytest.raises(
        (ProbableAccessDeniedError, ConnectionClosedByBroker), match="vhost 'other' not found"
    ):
        connect(virtual_host="other")


def test_frame_max_and_channel_max(connect: Callable[..., Any]) -> None:
    tuned = connect()._impl.params
    assert (tuned.frame_max, tuned.channel_max) == (MIB // 8, 2047)
    small = connect(frame_max=4096, channel_max=1)
    small.channel()
    assert small._impl.params.frame_max == 4096
    with pytest.raises(pika.exceptions.NoFreeChannels):
        small.channel()


def test_an_error_of_a_channel_costs_the_channel_only(connection: Any, channel: Any) -> None:
    queue = private(channel)
    with refused(404):
        connection.channel().queue_declare("gone", passive=True)
    channel.queue_declare(queue, passive=True)
