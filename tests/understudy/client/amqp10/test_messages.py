"""What becomes of a publisher's arguments, and what of the octets of a message."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

pytest.importorskip("proton")
from proton import Message as ProtonMessage
from proton import symbol

from broker.amqp10.conversion import incoming
from understudy.client.amqp10.messages import decoded, encoded


def octets(body: bytes | str = b"x", **given: Any) -> bytes:
    options: dict[str, Any] = {
        "persistent": True, "priority": None, "ttl": None, "headers": None, "annotations": None,
    }  # fmt: skip
    options.update({key: given.pop(key) for key in list(given) if key in options})
    return encoded(body, **options, properties=given)


def test_proton_reads_what_is_sent() -> None:
    number = uuid.UUID(int=7)
    message = ProtonMessage()
    message.decode(
        octets(
            "grüße", priority=5, ttl=1.5, headers={"n": 1, "s": "x", "b": True, "f": 0.5},
            annotations={"x-opt-a": "b"}, message_id=number, correlation_id=12, subject="s",
            content_type="text/plain", creation_time=1.25, group_id="g", group_sequence=3,
        )
    )  # fmt: skip
    assert (bytes(message.body), message.durable, message.priority, message.ttl) == (
        "grüße".encode(),
        True,
        5,
        1.5,
    )
    assert (message.id, message.correlation_id, message.subject) == (number, 12, "s")
    assert (message.content_type, message.content_encoding) == ("text/plain", "utf-8")
    assert (message.creation_time, message.group_id, message.group_sequence) == (1.25, "g", 3)
    assert message.properties == {"n": 1, "s": "x", "b": True, "f": 0.5}
    assert message.annotations == {symbol("x-opt-a"): "b"}
    message.decode(octets(persistent=False))
    assert (bytes(message.body), message.durable) == (b"x", False)


def test_what_is_sent_comes_back() -> None:
    found = decoded(octets("text", headers={"n": 1}, message_id="m", to="/queues/q"))
    assert (found.body, found.headers) == ("text", {"n": 1})
    assert (found.properties.message_id, found.properties.to, found.header.durable) == (
        "m",
        "/queues/q",
        True,
    )
    assert decoded(octets(b"\xff", content_encoding="utf-8")).body == b"\xff"
    assert decoded(octets(b"packed", content_encoding="gzip")).body == b"packed"
    assert decoded(octets(b"6869", content_encoding="hex")).body == b"6869"


@pytest.mark.parametrize("body", ["text", 7, {"a": [1, 2]}, ["a", 1]])
def test_what_other_clients_send(body: Any) -> None:
    found = decoded(bytes(ProtonMessage(body=body, inferred=isinstance(body, list)).encode()))
    assert found.body == body
    assert not found.header.delivery_count


def test_what_is_no_message_is_handed_out_as_octets() -> None:
    for octets_ in (b"", b"nothing", b"\x00\x53\x77"):
        found = decoded(octets_)
        assert (found.body, found.annotations) == (octets_, {})


@pytest.mark.parametrize(
    "given",
    [
        {"headers": {"list": [1]}},
        {"headers": {"large": "x" * 300_000}},
        {"ttl": float("inf")},
        {"headers": {"object": object()}},
        {"ttl": -1},
        {"ttl": 2**40},
        {"priority": 256},
        {"message_id": 1.5},
        {"subject": b"octets"},
        {"content_type": "grün"},
        {"annotations": {"ä": 1}},
        {"creation_time": "now"},
        {"nothing": 1},
    ],
)
def test_what_no_broker_could_read_is_not_made(given: dict[str, Any]) -> None:
    """It would be rejected, and not be counted in the broker's ledgers."""
    with pytest.raises((ValueError, TypeError)):
        octets(**given)


def test_a_broker_takes_what_is_made() -> None:
    for given in (
        {},
        {"ttl": 0.0},
        {"headers": {"": ""}},
        {"message_id": b"b"},
        {"headers": {"k" * 300: "v" * 70000}},
    ):
        assert incoming(octets(**given)).raw
