"""Sender-selected distribution: further routing keys in the headers CC and BCC."""

from __future__ import annotations

from typing import Any

import pytest
from pika.spec import BasicProperties

from broker.amqp091.properties import MOST_COPIES, headers_of, without_bcc
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
    """What each queue holds: last octet of the body, and headers."""
    return {
        name: [(raw[-2:-1], headers_of(raw)) for _, _, raw in queue.ready]
        for name, queue in world.vhost.queues.items()
    }


def test_copies_go_to_every_queue_once_and_nobody_sees_the_blind_ones() -> None:
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
def test_what_is_no_list_of_keys_is_refused_and_what_came_before_counts(
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
