"""py-amqp against the broker: each method of 0-9-1 that it speaks, and the errors as its exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import amqp
import pytest

from tests.broker.server.live import Live


@pytest.fixture
def connection(live: Live) -> Iterator[Any]:
    with amqp.Connection(f"{live.host}:{live.port}", confirm_publish=True, heartbeat=5) as connection:
        yield connection


@pytest.fixture
def channel(connection: Any) -> Any:
    return connection.channel()


def _get(channel: Any, queue: str) -> Any:
    return channel.basic_get(queue, no_ack=True)


def test_server_properties(connection: Any) -> None:
    assert connection.server_properties["product"] == "RabbitMQ"
    assert connection.server_properties["platform"].startswith("Understudy ")
    assert connection.server_capabilities["publisher_confirms"]


def test_publish_get_with_properties(channel: Any) -> None:
    channel.queue_declare("q")
    sent = amqp.Message(
        "body",
        content_type="text/plain",
        delivery_mode=2,
        correlation_id="c",
        application_headers={"n": 1, "t": "x"},
    )
    channel.basic_publish(sent, routing_key="q")
    got = _get(channel, "q")
    assert got.body == "body"
    assert got.properties["correlation_id"] == "c"
    assert got.headers == {"n": 1, "t": "x"}


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 1_000_000])
def test_bodies_of_all_sizes(channel: Any, size: int) -> None:
    channel.queue_declare("q")
    channel.basic_publish(amqp.Message(b"\xff" * size), routing_key="q")
    assert _get(channel, "q").body == b"\xff" * size or size == 0


@pytest.mark.parametrize(
    ("kind", "keys", "hits"),
    [("direct", ["a"], 1), ("fanout", ["a", "b"], 2), ("topic", ["a.b", "a.c", "b"], 2)],
)
def test_exchanges(channel: Any, kind: str, keys: list[str], hits: int) -> None:
    channel.exchange_declare("x", kind, auto_delete=False)
    channel.queue_declare("q")
    channel.queue_bind("q", "x", "a.*" if kind == "topic" else "a")
    for key in keys:
        channel.basic_publish(amqp.Message(key), "x", key)
    assert channel.queue_declare("q", passive=True).message_count == hits
    channel.queue_unbind("q", "x", "a.*" if kind == "topic" else "a")
    channel.basic_publish(amqp.Message("no more"), "x", "a")
    assert channel.queue_purge("q") == hits
    channel.exchange_delete("x")


def test_headers_exchange_and_exchange_to_exchange(channel: Any) -> None:
    channel.exchange_declare("front", "fanout", auto_delete=False)
    channel.exchange_declare("h", "headers", auto_delete=False)
    channel.exchange_bind("h", "front")
    channel.queue_declare("q")
    channel.queue_bind("q", "h", arguments={"x-match": "all", "colour": "red"})
    for colour in ("red", "blue", "red"):
        channel.basic_publish(amqp.Message(colour, application_headers={"colour": colour}), "front")
    assert [_get(channel, "q").body, _get(channel, "q").body, _get(channel, "q")] == ["red", "red", None]
    channel.exchange_unbind("h", "front")


def test_consume_ack_cancel_and_redelivery(connection: Any, channel: Any) -> None:
    channel.queue_declare("q", auto_delete=False)
    for n in range(5):
        channel.basic_publish(amqp.Message(str(n)), routing_key="q")
    got: list[Any] = []
    channel.basic_qos(0, 2, False)
    tag = channel.basic_consume("q", callback=got.append)
    while len(got) < 2:
        connection.drain_events(timeout=10)
    channel.basic_ack(got[1].delivery_tag, multiple=True)
    while len(got) < 4:
        connection.drain_events(timeout=10)
    channel.basic_reject(got[2].delivery_tag, requeue=True)
    channel.basic_cancel(tag)
    channel.basic_recover(requeue=True)
    left = [_get(channel, "q") for _ in range(3)]
    assert [m.body for m in left] == ["2", "3", "4"]
    assert [m.delivery_info["redelivered"] for m in left[:2]] == [True, True]


def test_mandatory_comes_back(channel: Any) -> None:
    returned: list[Any] = []
    channel.events["basic_return"].add(lambda *args: returned.append(args))
    channel.basic_publish(amqp.Message("m"), routing_key="nowhere", mandatory=True)
    ((error, exchange, key, returned_message),) = returned
    assert error.reply_code == 312
    assert (exchange, key, returned_message.body) == ("", "nowhere", "m")


def test_server_named_exclusive_and_auto_delete(live: Live, connection: Any, channel: Any) -> None:
    name, *_ = channel.queue_declare("", exclusive=True)
    assert name.startswith("amq.gen-")
    with amqp.Connection(f"{live.host}:{live.port}") as other, pytest.raises(amqp.exceptions.ResourceLocked):
        other.channel().queue_declare(name, passive=True)
    channel.queue_declare("auto", auto_delete=True)
    tag = channel.basic_consume("auto")
    channel.basic_cancel(tag)
    with pytest.raises(amqp.exceptions.NotFound):
        connection.channel().queue_declare("auto", passive=True)


@pytest.mark.parametrize(
    ("act", "error", "method"),
    [
        (lambda c: c.queue_declare("none", passive=True), amqp.exceptions.NotFound, (50, 10)),
        (lambda c: c.basic_get("none"), amqp.exceptions.NotFound, (60, 70)),
        (lambda c: c.basic_consume("none"), amqp.exceptions.NotFound, (60, 20)),
        (lambda c: c.queue_bind("q", "none"), amqp.exceptions.NotFound, (50, 20)),
        (lambda c: c.exchange_declare("amq.mine", "direct"), amqp.exceptions.AccessRefused, (40, 10)),
        (lambda c: c.queue_declare("q", durable=True), amqp.exceptions.PreconditionFailed, (50, 10)),
        (lambda c: c.queue_delete("q", if_empty=True), amqp.exceptions.PreconditionFailed, (50, 40)),
    ],
)
def test_channel_errors_name_their_method(
    connection: Any, act: Any, error: Any, method: tuple[int, int]
) -> None:
    channel = connection.channel()
    channel.queue_declare("q", auto_delete=False)
    channel.basic_publish(amqp.Message("m"), routing_key="q")
    with pytest.raises(error) as raised:
        act(channel)
    assert (raised.value.method_sig[0], raised.value.method_sig[1]) == method
    assert connection.channel().queue_declare("q", passive=True, auto_delete=False).message_count == 1


def test_publish_to_no_exchange(connection: Any) -> None:
    channel = connection.channel()
    with pytest.raises(amqp.exceptions.NotFound):
        channel.basic_publish(amqp.Message("m"), "no such exchange", "k")
    assert connection.channel().is_open


def test_a_consumer_is_told_when_its_queue_goes(connection: Any) -> None:
    channel = connection.channel()
    channel.queue_declare("q", auto_delete=False)
    told: list[str] = []
    channel.basic_consume("q", on_cancel=told.append, consumer_tag="c")
    connection.channel().queue_delete("q")
    while not told:
        connection.drain_events(timeout=10)
    assert told == ["c"]


def test_a_wrong_password(live: Live) -> None:
    with pytest.raises(amqp.exceptions.AccessRefused):
        amqp.Connection(f"{live.host}:{live.port}", password="wrong").connect()


def test_heartbeats_are_accepted(connection: Any) -> None:
    for _ in range(3):
        connection.send_heartbeat()
    assert connection.channel().is_open
