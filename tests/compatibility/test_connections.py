"""Connections and channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kombu
import pika
import pytest
from amqp.exceptions import AccessRefused
from pika.exceptions import ConnectionClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError

from broker.pieces import MIB
from tests.broker.server.live import Live
from tests.compatibility.clients import private, refused


def test_capabilities(connection: Any) -> None:
    capabilities = connection._impl.server_capabilities
    assert {name for name, has in capabilities.items() if has} == {
        "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
        "connection.blocked", "authentication_failure_close", "per_consumer_qos",
        "consumer_priorities", "direct_reply_to",
    }  # fmt: skip


def test_product(live: Live) -> None:
    with kombu.Connection(f"amqp://guest:guest@{live.host}:{live.port}//") as connection:
        assert not connection.qos_semantics_matches_spec
        told = connection.connection.server_properties
    assert (told["product"], told["version"]) == ("RabbitMQ", "3.13.7")
    assert told["understudy_version"] and told["platform"].startswith("Understudy ")


def test_login_refused(connect: Callable[..., Any]) -> None:
    with pytest.raises(ProbableAuthenticationError, match="ACCESS_REFUSED"):
        connect(credentials=pika.PlainCredentials("guest", "wrong"))


@pytest.mark.parametrize("password", ["guest", "wrong"])
def test_amqplain(live: Live, password: str) -> None:
    with kombu.Connection(
        f"amqp://guest:{password}@{live.host}:{live.port}//", login_method="AMQPLAIN"
    ) as connection:
        if password == "guest":
            connection.connect()
            return
        with pytest.raises(AccessRefused, match="authentication mechanism AMQPLAIN"):
            connection.connect()


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
    small.channel(65535)
    assert small._impl.params.frame_max == 4096
    with pytest.raises(pika.exceptions.NoFreeChannels):
        small.channel()


def test_an_error_of_a_channel_costs_the_channel_only(connection: Any, channel: Any) -> None:
    queue = private(channel)
    with refused(404):
        connection.channel().queue_declare("gone", passive=True)
    channel.queue_declare(queue, passive=True)
