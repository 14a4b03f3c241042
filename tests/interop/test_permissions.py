"""Stored users as pika has them: what they may do, and how pika takes it that they may not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError

from tests.broker.server.live import Live, live_broker
from tests.broker.stored import permission, user

SHOP = permission("shop", configure="^shop-", write="^(shop-.*|amq\\.default)$", read="^shop-")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_broker(stored=[user("shop", "word"), SHOP, user("idle", "word")]) as broker:
        yield broker


def connect(live: Live, name: str, password: str = "word") -> Any:
    url = f"amqp://{name}:{password}@{live.host}:{live.port}/%2F"
    return pika.BlockingConnection(pika.URLParameters(url))


def test_a_stored_user_publishes_and_consumes_what_it_may(live: Live) -> None:
    with connect(live, "shop") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("shop-orders")
        channel.basic_publish("", "shop-orders", b"one")
        assert channel.basic_get("shop-orders", auto_ack=True)[2] == b"one"


def test_what_it_may_not_costs_the_channel(live: Live) -> None:
    with connect(live, "shop") as connection:
        with pytest.raises(ChannelClosedByBroker) as caught:
            connection.channel().queue_declare("bank-orders")
        assert (caught.value.reply_code, caught.value.reply_text) == (
            403,
            "ACCESS_REFUSED - configure access to queue 'bank-orders' in vhost '/' refused for user 'shop'",
        )
        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(ChannelClosedByBroker, match=r"write access to exchange 'amq\.topic'"):
            channel.basic_publish("amq.topic", "k", b"one")
        assert connection.channel().is_open


def test_who_is_refused_at_the_door(live: Live) -> None:
    with pytest.raises(ProbableAuthenticationError, match="ACCESS_REFUSED"):
        connect(live, "shop", "wrong")
    with pytest.raises(ProbableAccessDeniedError, match="access to vhost '/' refused for user 'idle'"):
        connect(live, "idle")
