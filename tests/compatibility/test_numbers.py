"""Messages sent again with their old numbers (docs/how-to/no-duplicates.md), as pika sends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.compatibility.clients import drained


def numbered(connect: Callable[..., Any], number: int, **told: Any) -> Any:
    properties = {"producer_id": "shop", "producer_next": number, **told}
    channel = connect(client_properties=properties).channel()
    channel.confirm_delivery()
    return channel


def test_a_message_in_doubt_is_sent_again_and_is_there_once(
    connect: Callable[..., Any], channel: Any, new: Callable[[str], str]
) -> None:
    queue = new("numbers")
    channel.queue_declare(queue, durable=True)
    first = numbered(connect, 1, producer_epoch=1)
    for body in (b"1", b"2"):
        first.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
    again = numbered(connect, 2, producer_epoch=2)
    for body in (b"2", b"3"):
        again.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
    assert drained(channel, queue) == [b"1", b"2", b"3"]
    with pytest.raises(ChannelClosedByBroker, match=r"\(403, \"ACCESS_REFUSED - producer 'shop' goes on"):
        first.basic_publish("", queue, b"3")
    with pytest.raises(ChannelClosedByBroker, match="has a newer process"):
        numbered(connect, 3, producer_epoch=1)
