"""Routing keys and properties of any octets pass through the broker unchanged; names stay strict."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp091.codec.fields import write_longstr, write_octets
from broker.amqp091.codec.frames import frame
from broker.amqp091.codec.properties import headers_of
from broker.model.octets import as_octets, as_text
from tests.broker.amqp091.wire import Raw, World, message

HOSTILE = {
    "no first octet": b"\x80", "no octet of UTF-8": b"\xff", "NUL": b"\0", "text with a NUL": b"a\0b",
    "255 octets": b"\xff" * 255, "overlong": b"\xc0\xaf", "surrogate": b"\xed\xa0\x80", "cut": b"a\xc3",
    "beyond Unicode": b"\xf4\x90\x80\x80", "every octet": bytes(range(255)), "text": "ö".encode(),
}  # fmt: skip
hostile = pytest.mark.parametrize("octets", HOSTILE.values(), ids=HOSTILE.keys())
_TEXTS = (15, 14, 10, 9, 7, 5, 3, 2)
"""Flags of the short strings that the broker does not decode: all except expiration and user-id."""


def properties(octets: bytes) -> bytes:
    """Properties with these octets in each field that may hold them."""
    flags = sum(1 << bit for bit in _TEXTS)
    return flags.to_bytes(2, "big") + write_octets(octets) * len(_TEXTS)


def opened() -> Raw:
    client = World().open()
    client.call(1, "queue.declare", queue="dead")
    dead = {"x-dead-letter-exchange": "amq.direct"}
    client.call(1, "queue.declare", queue="q", arguments=dead)
    return client


def bind(client: Raw, queue: str, exchange: str, octets: bytes) -> None:
    client.call(1, "queue.bind", queue=queue, exchange=exchange, routing_key=as_text(octets))


def get(client: Raw, queue: str) -> tuple[Any, ...]:
    seen = client.call(1, "basic.get", queue=queue, no_ack=True)
    if seen.name == "basic.get-empty":
        return (seen.name,)
    return as_octets(seen["routing_key"]), seen.header[12:], seen.body


@hostile
def test_octets_are_published_and_delivered_as_they_are(octets: bytes) -> None:
    client = opened()
    bind(client, "q", "amq.topic", octets)
    client.raw(message(1, b"m", "amq.topic", as_text(octets), properties=properties(octets)) * 2)
    assert get(client, "q") == (octets, properties(octets), b"m")
    client.send(1, "basic.consume", queue="q")
    deliver = client.read()[-1]
    assert as_octets(deliver["routing_key"]) == octets
    assert (deliver.header[12:], deliver.body) == (properties(octets), b"m")


@hostile
def test_an_unroutable_message_is_returned_unchanged(octets: bytes) -> None:
    for exchange in ("", "amq.direct"):
        client = opened()
        client.publish(
            1, b"m", exchange=exchange, routing_key=as_text(octets), mandatory=True,
            properties=properties(octets),
        )  # fmt: skip
        (back,) = client.read()
        assert (back.name, as_octets(back["routing_key"])) == ("basic.return", octets)
        assert (back.header[12:], back.body) == (properties(octets), b"m")


@hostile
def test_a_dead_letter_keeps_its_octets_and_tells_them(octets: bytes) -> None:
    client = opened()
    bind(client, "q", "amq.fanout", b"")
    bind(client, "dead", "amq.direct", octets)
    client.publish(1, b"m", exchange="amq.fanout", routing_key=as_text(octets), properties=properties(octets))
    for count in (1, 2):
        client.send(1, "basic.get", queue="q")
        tag = client.read()[-1]["delivery_tag"]
        client.send(1, "basic.reject", delivery_tag=tag)
        key, came, _ = get(client, "dead")
        assert key == octets
        headers = headers_of(frame(2, 1, b"\0\x3c\0\0" + bytes(8) + came))
        (death,) = headers["x-death"]
        keys = [as_octets(k) if isinstance(k, str) else k for k in death["routing-keys"]]
        assert (keys, death["count"]) == ([octets], count)
        assert came.count(write_octets(octets)) >= len(_TEXTS)
        assert b"routing-keysA" + write_longstr(b"S" + write_longstr(octets)) in came
        client.publish(1, b"m", exchange="amq.fanout", routing_key=as_text(octets), properties=came)


def test_keys_are_compared_octet_by_octet() -> None:
    client = opened()
    bind(client, "q", "amq.direct", b"\xff")
    bind(client, "q", "amq.topic", b"a.\xff.#")
    bind(client, "q", "amq.topic", b"*.\0")
    for exchange, key, found in (
        ("amq.direct", b"\xff", True), ("amq.direct", b"\xfe", False),
        ("amq.direct", "\ufffd".encode(), False), ("amq.topic", b"a.\xff", True),
        ("amq.topic", b"a.\xff.\xfe.b", True), ("amq.topic", b"a.\xfe", False),
        ("amq.topic", b"\x80.\0", True), ("amq.topic", b"\x80.\0\0", False),
    ):  # fmt: skip
        client.publish(1, b"m", exchange=exchange, routing_key=as_text(key))
        assert get(client, "q") == ((key, b"\0\0", b"m") if found else ("basic.get-empty",))
    client.call(1, "queue.unbind", queue="q", exchange="amq.direct", routing_key=as_text(b"\xff"))
    client.publish(1, b"m", exchange="amq.direct", routing_key=as_text(b"\xff"))
    assert get(client, "q") == ("basic.get-empty",)


@pytest.mark.parametrize(
    ("field", "found"), [(b"S", True), (b"x", True), (b"I", False)], ids=["text", "array", "number"]
)
def test_copies_go_by_octets_as_well(field: bytes, found: bool) -> None:
    """A byte array that is not UTF-8 looks like a long string."""
    client = opened()
    bind(client, "q", "amq.direct", b"\xff\0")
    value = field + (bytes(4) if field == b"I" else write_longstr(b"\xff\0"))
    table = write_longstr(b"\x02CCA" + write_longstr(value))
    client.publish(1, b"m", exchange="amq.direct", routing_key="nobody", properties=b"\x20\0" + table)
    expected = (b"nobody", b"\x20\0" + table, b"m") if found else ("basic.get-empty",)
    assert get(client, "q") == expected


@pytest.mark.parametrize(
    ("flags", "said"),
    [(1 << 4, "user_id property set to '?' but authenticated user was 'guest'"),
     (1 << 8, "invalid expiration '?': not a number of milliseconds")],
    ids=["user-id", "expiration"],
)  # fmt: skip
def test_properties_that_the_broker_decodes_must_be_text(flags: int, said: str) -> None:
    client = opened()
    client.publish(1, b"m", routing_key="q", properties=flags.to_bytes(2, "big") + write_octets(b"\xff"))
    (close,) = client.read()
    assert (close.name, close["reply_code"]) == ("channel.close", 406)
    assert said in close["reply_text"]
