"""pika's way of using a broker: blocking channels, returns, bindings of every kind, errors and what is left
after them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, UnroutableError

from tests.broker.server.live import Live


@pytest.fixture
def connection(live: Live) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{live.host}:{live.port}/%2F")) as it:
        yield it


def drained(channel: Any, queue: str) -> list[bytes]:
    bodies: list[bytes] = []
    while (found := channel.basic_get(queue, auto_ack=True))[0] is not None:
        bodies.append(found[2])
    return bodies


def test_properties_come_back_as_they_went(connection: Any) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("all", durable=True)
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf8",
        headers={"list": [1, {"none": None}], "yes": True, "raw": b"\0\xff"},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        message_id="m",
        timestamp=1234567890,
        type="t",
        user_id="guest",
        app_id="a",
    )
    channel.basic_publish("", "all", b"body", sent)
    method, got, body = channel.basic_get("all")
    assert (body, method.redelivered, method.message_count) == (b"body", False, 0)
    assert got == sent
    channel.basic_ack(method.delivery_tag)


def test_mandatory_returns_and_confirms(connection: Any) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish("", "nowhere", b"x", mandatory=True)
    assert caught.value.messages[0].method.reply_code == 312
    channel.basic_publish("", "nowhere", b"confirmed although nobody has it")


def test_exchange_to_exchange_and_topic_patterns(connection: Any) -> None:
    channel = connection.channel()
    channel.exchange_declare("outer", "fanout")
    channel.exchange_declare("inner", "topic")
    channel.exchange_bind("inner", "outer")
    patterns = ["", "#", "*", "a.*.c", "a.#", "#.c", "*.#"]
    for pattern in patterns:
        channel.queue_declare(f"q {pattern}")
        channel.queue_bind(f"q {pattern}", "inner", pattern)
    expected = {
        "": ["", "#"],
        "a": ["#", "*", "a.#", "*.#"],
        "a.b.c": ["#", "a.*.c", "a.#", "#.c", "*.#"],
        "b.c": ["#", "#.c", "*.#"],
        "b": ["#", "*", "*.#"],
    }
    for key, matching in expected.items():
        channel.basic_publish("outer", key, b"x")
        assert [p for p in patterns if drained(channel, f"q {p}")] == matching
    channel.exchange_unbind("inner", "outer")
    channel.basic_publish("outer", "a", b"x")
    assert drained(channel, "q #") == []


def test_headers_all_and_any(connection: Any) -> None:
    channel = connection.channel()
    for match in ("all", "any"):
        channel.queue_declare(match)
        channel.queue_bind(match, "amq.headers", arguments={"x-match": match, "a": 1, "b": "x"})
    for headers, matching in (
        ({"a": 1, "b": "x"}, ["all", "any"]),
        ({"a": 1}, ["any"]),
        ({"a": "1"}, []),
        (None, []),
    ):
        channel.basic_publish("amq.headers", "", b"x", pika.BasicProperties(headers=headers))
        assert [q for q in ("all", "any") if drained(channel, q)] == matching


def test_requeued_messages_keep_their_place(connection: Any) -> None:
    channel = connection.channel()
    channel.queue_declare("order")
    for n in range(5):
        channel.basic_publish("", "order", b"%d" % n)
    tags = [channel.basic_get("order")[0].delivery_tag for _ in range(5)]
    channel.basic_nack(tags[3], requeue=True)
    channel.basic_reject(tags[1], requeue=True)
    channel.basic_nack(tags[0], requeue=False)
    channel.basic_ack(tags[2])
    again = [channel.basic_get("order") for _ in range(2)]
    assert [(m.redelivered, body) for m, _, body in again] == [(True, b"1"), (True, b"3")]
    channel.basic_recover(requeue=True)
    assert drained(channel, "order") == [b"1", b"3", b"4"]


@pytest.mark.parametrize(("shared", "delivered"), [(False, 6), (True, 3)])
def test_prefetch_per_consumer_and_per_channel(connection: Any, shared: bool, delivered: int) -> None:
    channel = connection.channel()
    channel.queue_declare("many")
    for _ in range(10):
        channel.basic_publish("", "many", b"x")
    got: list[bytes] = []
    channel.basic_qos(prefetch_count=3, global_qos=shared)
    for _ in range(2):
        channel.basic_consume("many", lambda _ch, _m, _p, body: got.append(body))
    connection.process_data_events(0.2)
    assert len(got) == delivered


def test_a_deleted_queue_cancels_its_consumers(connection: Any) -> None:
    channel = connection.channel()
    cancelled: list[Any] = []
    channel.queue_declare("going")
    channel.basic_consume("going", lambda *_: None)
    channel.add_on_cancel_callback(cancelled.append)
    connection.channel().queue_delete("going")
    connection.process_data_events(1)
    assert len(cancelled) == 1


WRONG: list[tuple[int, Callable[[Any], object]]] = [
    (404, lambda channel: channel.queue_declare("absent", passive=True)),
    (404, lambda channel: channel.exchange_declare("absent", passive=True)),
    (404, lambda channel: channel.queue_bind("full", "absent")),
    (404, lambda channel: channel.basic_consume("absent", lambda *_: None)),
    (406, lambda channel: channel.queue_declare("full", durable=True)),
    (406, lambda channel: channel.exchange_declare("amq.topic", "fanout", durable=True)),
    (406, lambda channel: channel.queue_delete("full", if_empty=True)),
    (406, lambda channel: channel.queue_delete("used", if_unused=True)),
    (403, lambda channel: channel.queue_declare("amq.mine")),
    (403, lambda channel: channel.exchange_delete("")),
]


@pytest.mark.parametrize(("code", "ask"), WRONG)
def test_an_error_costs_the_channel_only(connection: Any, code: int, ask: Callable[[Any], object]) -> None:
    channel = connection.channel()
    channel.queue_declare("full")
    channel.basic_publish("", "full", b"x")
    channel.queue_declare("used")
    channel.basic_consume("used", lambda *_: None)
    with pytest.raises(ChannelClosedByBroker) as caught:
        ask(connection.channel())
    assert caught.value.reply_code == code
    assert channel.queue_declare("full", passive=True).method.message_count == 1
    assert connection.channel().queue_declare("", exclusive=True).method.queue.startswith("amq.gen-")


def test_an_exclusive_queue_is_locked_for_others_and_goes_with_its_connection(
    live: Live, connection: Any
) -> None:
    parameters = pika.ConnectionParameters(live.host, live.port)
    with pika.BlockingConnection(parameters) as owner:
        owner.channel().queue_declare("mine", exclusive=True)
        for ask in ("queue_declare", "basic_get", "queue_purge", "queue_delete"):
            with pytest.raises(ChannelClosedByBroker) as caught:
                getattr(connection.channel(), ask)("mine")
            assert caught.value.reply_code == 405
    with pytest.raises(ChannelClosedByBroker, match="no queue 'mine'"):
        connection.channel().queue_declare("mine", passive=True)


def test_heartbeats_keep_an_idle_connection(live: Live) -> None:
    parameters = pika.ConnectionParameters(live.host, live.port, heartbeat=1)
    with pika.BlockingConnection(parameters) as idle:
        idle.process_data_events(3.5)
        assert idle.channel().queue_declare("", exclusive=True).method.queue


def test_an_unknown_type_of_exchange_costs_the_connection(live: Live) -> None:
    doomed = pika.BlockingConnection(pika.ConnectionParameters(live.host, live.port))
    with pytest.raises(ConnectionClosedByBroker) as caught:
        doomed.channel().exchange_declare("odd", "x-odd")
    assert caught.value.reply_code == 503


def test_what_an_exchange_has_no_binding_for_goes_to_its_alternate(connection: Any) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("orders", "topic", durable=True, arguments={"alternate-exchange": "strays"})
    channel.exchange_declare("strays", "fanout", durable=True)
    for queue, exchange, key in (("eu", "orders", "eu.#"), ("rest", "strays", "")):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, exchange, key)
    for key in ("eu.de", "us.ny"):
        channel.basic_publish("orders", key, key.encode(), mandatory=True)
    assert (drained(channel, "eu"), drained(channel, "rest")) == ([b"eu.de"], [b"us.ny"])
    channel.queue_unbind("rest", "strays", "")
    with pytest.raises(UnroutableError):
        channel.basic_publish("orders", "us.ny", b"x", mandatory=True)


def test_a_queue_that_nobody_uses_expires(connection: Any) -> None:
    channel = connection.channel()
    channel.queue_declare("reply", arguments={"x-expires": 500})
    consumer = channel.basic_consume("reply", lambda *_: None)
    connection.process_data_events(0.2)
    channel.basic_publish("", "reply", b"x")
    channel.basic_cancel(consumer)
    channel.confirm_delivery()
    deadline = time.monotonic() + 20
    with pytest.raises(UnroutableError):
        while time.monotonic() < deadline:
            channel.basic_publish("", "reply", b"x", mandatory=True)  # no use of the queue
    with pytest.raises(ChannelClosedByBroker) as refused:
        connection.channel().queue_declare("reply", arguments={"x-expires": 0})
    assert refused.value.reply_code == 406
