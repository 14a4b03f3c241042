"""Publishing: routing failures, confirms, properties, limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.exceptions import UnroutableError

from tests.broker.server.live import live_broker
from tests.compatibility.clients import Got, cut_off, drained, private, publish, ready, refused, wait_until

New = Callable[[str], str]


def test_mandatory(channel: Any) -> None:
    returned: list[Any] = []
    channel.add_on_return_callback(lambda _c, method, properties, body: returned.append((method, body)))
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish("amq.direct", "nowhere", b"x", mandatory=True)
    (message,) = caught.value.messages
    assert (message.method.reply_code, message.method.reply_text) == (312, "NO_ROUTE")
    assert (message.method.exchange, message.method.routing_key, message.body) == (
        "amq.direct", "nowhere", b"x"
    )  # fmt: skip
    channel.basic_publish("amq.direct", "nowhere", b"confirmed, although nobody has it")


def test_immediate(live: Any) -> None:
    """pika cannot ask for it any more."""
    import amqp

    connection = amqp.Connection(f"{live.host}:{live.port}")
    connection.connect()
    with pytest.raises(amqp.exceptions.AMQPNotImplementedError, match="immediate=true"):
        connection.channel().basic_publish(amqp.Message("x"), routing_key="q", immediate=True)
        connection.drain_events(timeout=20)
    connection.collect()


def test_confirms(channel: Any) -> None:
    queue = private(channel)
    channel.confirm_delivery()
    for body in (b"1", b"2"):
        channel.basic_publish("", queue, body)  # returns when it is confirmed
    assert drained(channel, queue) == [b"1", b"2"]


def test_publish_to_no_exchange(channel: Any) -> None:
    channel.confirm_delivery()
    with refused(404, "no exchange 'gone' in vhost '/'"):
        channel.basic_publish("gone", "k", b"x")


def test_octets_that_are_no_text(channel: Any) -> None:
    octets = b"\xff\0\xfe\xc0\xaf"
    queue = private(channel)
    channel.queue_bind(queue, "amq.direct", octets)
    ids = {"correlation_id": octets, "message_id": octets, "reply_to": octets, "app_id": octets}
    channel.confirm_delivery()
    channel.basic_publish("amq.direct", octets, b"x", pika.BasicProperties(**ids), mandatory=True)
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    assert (method.routing_key, body) == (octets, b"x")
    assert {name: getattr(properties, name) for name in ids} == ids
    channel.queue_unbind(queue, "amq.direct", octets)
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish("amq.direct", octets, b"x", pika.BasicProperties(**ids), mandatory=True)
    assert caught.value.messages[0].method.routing_key == octets


def test_user_id(connection: Any, channel: Any) -> None:
    queue = private(channel)
    publish(channel, queue, b"x", user_id="guest")
    assert channel.basic_get(queue)[1].user_id == "guest"
    forged = connection.channel()
    forged.confirm_delivery()
    with refused(406, "user_id property set to 'root' but authenticated user was 'guest'"):
        forged.basic_publish("", queue, b"x", pika.BasicProperties(user_id="root"))


def test_sender_selected_distribution(channel: Any, new: New) -> None:
    main, copy, blind = private(channel), private(channel), private(channel)
    publish(channel, main, b"x", headers={"CC": [copy, main], "BCC": [blind]})
    for queue in (main, copy, blind):
        _, properties, _ = channel.basic_get(queue)
        assert properties.headers == {"CC": [copy, main]}
        assert drained(channel, queue) == []


def test_copies_that_are_no_list(channel: Any) -> None:
    queue = private(channel)
    channel.confirm_delivery()
    with refused(406, "unacceptable_type_in_header"):
        publish(channel, queue, b"x", headers={"CC": "other"})


def test_properties_and_headers_come_back_unchanged(channel: Any) -> None:
    queue = private(channel)
    sent = pika.BasicProperties(
        content_type="a/b", content_encoding="c", delivery_mode=2, priority=7, correlation_id="d",
        reply_to="e", message_id="f", timestamp=1, type="g", app_id="h", cluster_id="i",
        headers={"list": [1, {"none": None}], "yes": True, "raw": b"\0\xff", "big": 2**40, "x-death": "mine"},
    )  # fmt: skip
    channel.basic_publish("", queue, b"", sent)
    assert channel.basic_get(queue)[1:] == (sent, b"")


@pytest.mark.parametrize("wrong", ["", "-1", "1.5", "soon", "999999999999"])
def test_expiration_that_is_no_number(channel: Any, wrong: str) -> None:
    queue = private(channel)
    channel.confirm_delivery()
    with refused(406, "expiration"):
        publish(channel, queue, b"x", expiration=wrong)


def test_largest_message(channel: Any) -> None:
    queue = private(channel)
    channel.confirm_delivery()
    body = bytes(128 << 20)
    channel.basic_publish("", queue, body)
    assert channel.basic_get(queue)[2] == body
    with refused(311):
        channel.basic_publish("", queue, body + b"x")


def test_blocked_publishers_are_told() -> None:
    with live_broker(memory_limit=1_000_000) as live:
        parameters = pika.ConnectionParameters(live.host, live.port)
        with pika.BlockingConnection(parameters) as connection, pika.BlockingConnection(parameters) as other:
            told: list[str] = []
            connection.add_on_connection_blocked_callback(lambda _c, frame: told.append(frame.method.NAME))
            connection.add_on_connection_unblocked_callback(lambda _c, frame: told.append(frame.method.NAME))
            channel = connection.channel()
            channel.queue_declare("q")
            for _ in range(21):
                publish(channel, "q", b"x" * 50_000)
            wait_until(connection, lambda: told == ["Connection.Blocked"])
            assert len(drained(other.channel(), "q")) > 15
            wait_until(connection, lambda: told == ["Connection.Blocked", "Connection.Unblocked"])


def test_frames_larger_than_agreed(connect: Callable[..., Any]) -> None:
    connection = connect(frame_max=4096)
    channel = connection.channel()
    queue = private(channel)
    publish(channel, queue, b"x" * 50_000)
    assert drained(channel, queue) == [b"x" * 50_000]
    with cut_off(501):
        publish(channel, queue, b"x", headers={"too long for a frame": "y" * 5000})
        connection.process_data_events(20)


@pytest.mark.parametrize("auto_ack", [False, True])
def test_a_content_header_larger_than_the_consumer_agreed_to(
    connect: Callable[..., Any], connection: Any, channel: Any, auto_ack: bool
) -> None:
    """It cannot be cut, so it comes whole; neither the queue nor another consumer is disturbed."""
    headers = {"large": "y" * 20_000}
    queue = str(channel.queue_declare("", auto_delete=True).method.queue)
    small = connect(frame_max=4096)
    asks, got = small.channel(), Got()
    publish(channel, queue, b"x" * 50_000, headers=headers)
    assert ready(channel, queue) == 1
    _, properties, body = asks.basic_get(queue, auto_ack=auto_ack)
    assert (properties.headers, body) == (headers, b"x" * 50_000)
    asks.basic_consume(queue, got, auto_ack=auto_ack)
    publish(channel, queue, b"x" * 50_000, b"small", headers=headers)
    got.wait(small, 2)
    assert got.bodies == [b"x" * 50_000, b"small"] and got[0][1].headers == headers
    assert small.is_open and ready(channel, queue) == 0
