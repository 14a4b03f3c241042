"""Sender-selected distribution: further routing keys in the headers CC and BCC."""

from __future__ import annotations

from typing import Any

import pytest
from pika.spec import BasicProperties

from broker.amqp091.codec.frames import frame
from broker.amqp091.codec.properties import MOST_COPIES, headers_of, without_bcc
from tests.broker.amqp091.wire import Raw, World, content, message


def with_headers(**headers: Any) -> bytes:
    return b"".join(BasicProperties(headers=headers, priority=1).encode())


def opened() -> tuple[World, Raw]:
    world = World()
    client = world.open()
    for name in ("a", "b", "c"):
        client.call(1, "queue.declare", queue=name)
    return world, client


def got(world: World) -> dict[str, list[tuple[bytes, dict[str, Any]]]]:
    """The messages of each queue: last octet of the body, and headers."""
    found: dict[str, list[tuple[bytes, dict[str, Any]]]] = {}
    for name in world.vhost.queues:
        getter, consumer = world.open(), world.open()
        messages = []
        while (message := getter.call(1, "basic.get", queue=name)).name == "basic.get-ok":
            messages.append(message)
        found[name] = [(seen.body, headers_of(frame(2, 1, seen.header))) for seen in messages]
        consumer.send(1, "basic.consume", queue=name)
        getter.send(1, "channel.close")
        delivered = [seen for seen in consumer.read() if seen.name == "basic.deliver"]
        assert [(seen.body, seen.header) for seen in delivered] == [
            (seen.body, seen.header) for seen in messages
        ]
    return found


def test_copies_reach_every_queue_once_and_bcc_stays_hidden() -> None:
    world, client = opened()
    both = with_headers(CC=["b", "a", "nowhere"], BCC=["c"], x=1)
    client.raw(message(1, b"1", "", "a", properties=both) * 2 + message(1, b"2", "", "c"))
    assert client.names() == []
    seen = (b"1", {"CC": ["b", "a", "nowhere"], "x": 1})
    assert got(world) == {"a": [seen] * 2, "b": [seen] * 2, "c": [*[seen] * 2, (b"2", {})]}


def test_in_one_run_each_message_has_its_own() -> None:
    world, client = opened()
    lists = (["b"], ["c"], [], ["b", "c"])
    client.raw(b"".join(
        message(1, b"%d" % n, "", "a", properties=with_headers(CC=some)) for n, some in enumerate(lists)
    ))  # fmt: skip
    bodies = {name: b"".join(body for body, _ in some) for name, some in got(world).items()}
    assert bodies == {"a": b"0123", "b": b"03", "c": b"13"}


@pytest.mark.parametrize("key", [None, "own"])
def test_a_dead_letter_is_routed_by_bcc_too(key: str | None) -> None:
    """Twice, since the second death has the same keys. A routing key of the queue replaces them all."""
    world = World()
    client = world.open()
    arguments = {"x-dead-letter-exchange": "dead"} | ({"x-dead-letter-routing-key": key} if key else {})
    for exchange in ("in", "dead"):
        client.call(1, "exchange.declare", exchange=exchange, type="direct")
    client.call(1, "queue.declare", queue="source", arguments=arguments)
    client.call(1, "queue.bind", queue="source", exchange="in", routing_key="a")
    for name in ("a", "b", "c", "own"):
        client.call(1, "queue.declare", queue=name, arguments={"x-dead-letter-exchange": "dead"})
        client.call(1, "queue.bind", queue=name, exchange="dead", routing_key=name)
    client.raw(message(1, b"1", "in", "a", properties=with_headers(CC=["b"], BCC=["c"])))
    for tag, queue in enumerate(("source", "own" if key else "a"), 1):
        assert client.call(1, "basic.get", queue=queue).name == "basic.get-ok"
        client.send(1, "basic.reject", delivery_tag=tag, requeue=False)
    found = got(world)
    assert {name: len(some) for name, some in found.items() if some} == (
        {"own": 1} if key else {"a": 1, "b": 2, "c": 2}
    )
    for _, headers in (one for some in found.values() for one in some):
        assert ("CC" in headers, "BCC" in headers) == (key is None, False)
        assert headers["x-death"][-1]["routing-keys"] == ["a", "b"], "nobody reads there who had a copy"


def test_mandatory_is_returned_when_no_key_routes() -> None:
    _, client = opened()
    for headers, names in (({"CC": ["b"]}, []), ({"BCC": ["nowhere"]}, ["basic.return"])):
        client.raw(message(1, b"1", "", "gone", mandatory=True, properties=with_headers(**headers)))
        assert client.names() == names


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"CC": "b"}, 'invalid message: {unacceptable_type_in_header,"CC",longstr}'),
        ({"BCC": {"b": 1}}, 'invalid message: {unacceptable_type_in_header,"BCC",table}'),
        ({"CC": None}, 'invalid message: {unacceptable_type_in_header,"CC",void}'),
        ({"CC": ["b"] * 200, "BCC": ["c"] * 57}, f"more than {MOST_COPIES} routing keys in CC and BCC"),
    ],
)
def test_a_malformed_list_of_keys_is_refused_and_earlier_messages_stay(
    headers: dict[str, Any], text: str
) -> None:
    world, client = opened()
    wrong = message(1, b"2", "", "a", properties=with_headers(**headers))
    client.raw(message(1, b"1", "", "a") + wrong)
    (close,) = client.read()
    assert (close.name, close["reply_code"]) == ("channel.close", 406)
    assert text in close["reply_text"]
    assert [body for body, _ in got(world)["a"]] == [b"1"]


def test_taking_out_the_blind_ones_changes_nothing_else() -> None:
    raw = content(3, b"x" * 9000, properties=with_headers(a=1, BCC=["b"], z=[1, {"y": None}]), frame_max=4096)
    without = content(3, b"x" * 9000, properties=with_headers(a=1, z=[1, {"y": None}]), frame_max=4096)
    assert without_bcc(raw) == without
    assert without_bcc(without) is without
