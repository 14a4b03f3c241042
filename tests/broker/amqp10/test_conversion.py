"""AMQP 1.0 messages in stored form and as 0-9-1 clients get them, in tables. Pika checks the result."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pika.spec import BasicProperties

from broker.amqp091.codec.frames import body_of
from broker.amqp091.codec.message_format import MESSAGE_FORMAT
from broker.amqp091.codec.properties import PROPERTIES_AT, check, headers_of, with_header
from broker.amqp10.conversion import as_0_9_1, incoming, is_stored
from broker.amqp10.to_091 import MOST_HEADERS
from tests.broker.amqp091.wire import content
from tests.broker.amqp10.messages import (
    DIED,
    UUID_TEXT,
    message,
    out,
    payload,
    pika_of,
    section,
    seen,
    split,
)
from understudy.shared.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuid,
)  # fmt: skip


def test_the_stored_form() -> None:
    annotations = {Symbol("x-a"): 1}
    came = payload(header=[True], delivery={Symbol("x-d"): 1}, annotations=annotations, properties=["id"])
    got = incoming(came)
    assert is_stored(got.raw) and not is_stored(message())
    stored = payload(annotations=annotations, properties=["id"])
    assert body_of(got.raw) == stored == split(came).stored
    assert pika_of(got.raw)[1] == stored
    head = int.from_bytes(got.raw[3:7], "big") + 8
    assert got.largest == max(head, len(got.raw) - head)


def test_the_largest_frame_may_be_the_header() -> None:
    got = incoming(payload(application={"long": "x" * 3000}, body=section(0x75, b"")))
    end = int.from_bytes(got.raw[3:7], "big") + 8
    assert got.largest == max(end, len(got.raw) - end)


def test_routing() -> None:
    got = incoming(payload(properties=[None, b"me", "/queues/q", "subject"]))
    assert (got.to, got.subject, got.user_id) == ("/queues/q", "subject", b"me")
    bare = incoming(payload())
    assert (bare.to, bare.subject, bare.user_id) == (None, None, None)


KINDS: list[tuple[list[Any], tuple[bool, int | None, int]]] = [
    ([], (False, None, 0)), ([True], (True, None, 0)), ([False], (False, None, 0)),
    ([None, UByte(0)], (False, None, 0)), ([None, UByte(255)], (False, None, 255)),
    ([None, UByte(4)], (False, None, 4)), ([True, None, UInt(0)], (True, 0, 0)),
    ([True, None, UInt(2**32 - 1), True, UInt(9)], (True, 2**32 - 1, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("header", "kind"), KINDS)
def test_properties_that_the_broker_needs(header: list[Any], kind: tuple[bool, int | None, int]) -> None:
    got = incoming(payload(header=header))
    assert (got.kind.persistent, got.kind.expiration, got.kind.priority) == kind
    assert not got.kind.copies
    end = int.from_bytes(got.raw[3:7], "big") + 7
    assert check(got.raw[PROPERTIES_AT:end]) == got.kind


def test_properties() -> None:
    properties = [
        "id", b"guest", "/queues/q", "subject", "reply", "correlation", Symbol("text/plain"), Symbol("gzip"),
        Timestamp(99_000), Timestamp(1_700_000_000_999), "group", UInt(4), "back",
    ]  # fmt: skip
    got, body = seen(header=[True, UByte(3), UInt(60_000)], properties=properties)
    assert body == b"body"
    assert vars(got) == vars(
        BasicProperties(
            message_id="id", user_id="guest", reply_to="reply", correlation_id="correlation",
            content_type="text/plain", content_encoding="gzip", timestamp=1_700_000_000, app_id="group",
            delivery_mode=2, priority=3, expiration="60000",
        )
    )  # fmt: skip


IDS: list[tuple[Any, str | None, Any]] = [
    ("", "", None), ("x" * 255, "x" * 255, None), ("x" * 256, None, "x" * 256), ("a\0b", "a\0b", None),
    (ULong(2**64 - 1), "18446744073709551615", None), (Uuid(b"u" * 16), UUID_TEXT, None),
    (b"\xff\0", None, b"\xff\0"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text", "header"), IDS)
def test_ids(value: Any, text: str | None, header: Any) -> None:
    raw = as_0_9_1(incoming(payload(properties=[value, *[None] * 4, value])).raw)
    got, _ = pika_of(raw)
    assert (got.message_id, got.correlation_id) == (text, text)
    left = {} if header is None else {"x-message-id": header, "x-correlation-id": header}
    assert headers_of(raw) == left


def test_values_that_fit_no_property_are_omitted() -> None:
    long = "x" * 256
    properties = [
        None, b"\xff", None, None, long, None, Symbol(long), Symbol(long), None, Timestamp(-1), long,
    ]  # fmt: skip
    raw = incoming(payload(properties=properties)).raw
    got, _ = pika_of(raw)
    assert vars(got) == vars(BasicProperties())
    assert incoming(payload(properties=properties)).user_id == b"\xff"


VALUES: list[tuple[Any, bytes]] = [
    (None, b"V"), (True, b"t\1"), (False, b"t\0"), ("é", b"S\0\0\0\2\xc3\xa9"), (b"\xff", b"x\0\0\0\1\xff"),
    (UByte(200), b"B\xc8"), (Byte(-1), b"b\xff"), (UShort(65535), b"u\xff\xff"), (Short(-2), b"s\xff\xfe"),
    (UInt(2**32 - 1), b"i\xff\xff\xff\xff"), (Int(-1), b"I\xff\xff\xff\xff"), (Long(-1), b"l" + b"\xff" * 8),
    (ULong(2**63 - 1), b"l\x7f" + b"\xff" * 7), (Float(1.5), b"f" + struct.pack(">f", 1.5)),
    (1.5, b"d" + struct.pack(">d", 1.5)), (Timestamp(1999), b"T" + (1).to_bytes(8, "big")),
    (Char("é"), b"S\0\0\0\2\xc3\xa9"), (Symbol("s"), b"S\0\0\0\1s"),
    (Uuid(b"u" * 16), b"S\0\0\0\x2d" + UUID_TEXT.encode()),
]  # fmt: skip
NO_FIELD = [ULong(2**63), Timestamp(-1), Decimal32(b"1234"), Described(ULong(1), 2)]


@pytest.mark.parametrize(("value", "field"), VALUES, ids=[repr(value) for value, _ in VALUES])
def test_application_properties_are_headers(value: Any, field: bytes) -> None:
    raw = incoming(payload(application={"k": value})).raw
    entry = b"\1k" + field
    assert raw[PROPERTIES_AT + 2 :].startswith(len(entry).to_bytes(4, "big") + entry)


@pytest.mark.parametrize("value", NO_FIELD, ids=repr)
def test_values_that_no_header_has_are_left_out(value: Any) -> None:
    came = payload(application={"k": value, "l": 1}, annotations={Symbol("x-a"): [value], Symbol("x-b"): 1})
    assert headers_of(incoming(came).raw) == {"l": 1, "x-b": 1}


def test_annotations_are_headers() -> None:
    annotations = {
        Symbol("x-list"): ["a", [1]], Symbol("x-map"): {Symbol("k"): {"l": None}}, Symbol("other"): 1,
        ULong(7): 1, Symbol("x-basic-type"): "kind", Symbol("x-basic-priority"): UByte(9),
        Symbol("x-array"): Array(b"\xa1", ["a", "b"]), Symbol("x-numbers"): {1: 2}, Symbol("x-both"): "note",
        Symbol("x-long" * 50): 1,
    }  # fmt: skip
    came = payload(annotations=annotations, application={"x-both": "property", "x-own": 1})
    raw = incoming(came).raw
    assert headers_of(raw) == {
        "x-list": ["a", [1]], "x-map": {"k": {"l": None}}, "x-array": ["a", "b"], "x-both": "note",
        "x-own": 1,
    }  # fmt: skip
    assert pika_of(raw)[0].type == "kind"


ORDERS = [
    "CC", "BCC", "x-cc", "x-death", "x-opt-deaths", "x-first-death-queue", "x-last-death-reason",
    "x-last-death-exchange", "x-first-death-", "x-deaths", "x-replication-id", "x-exchange", "x-routing-key",
]  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_no_publisher_of_1_0_gives_the_broker_orders_or_speaks_for_it(name: str) -> None:
    came = payload(application={name: "a"}, annotations={Symbol(name): ["a"]})
    got = incoming(came)
    assert headers_of(got.raw) == {} and not got.kind.copies
    assert not MESSAGE_FORMAT.has_copies(got.raw)


def test_names_that_no_header_has_are_left_out() -> None:
    assert headers_of(incoming(payload(application={"x" * 256: 1, "a\0": 1, "x" * 255: 1, "": 2})).raw) == {
        "x" * 255: 1,
        "": 2,
    }


def test_headers_stay_smaller_than_any_frame() -> None:
    big = {str(number): "x" * 1000 for number in range(150)} | {"last": 1}
    raw = incoming(payload(application={"whole": "x" * MOST_HEADERS, **big})).raw
    got = headers_of(raw)
    assert "whole" not in got and "0" in got and "last" in got
    assert int.from_bytes(raw[3:7], "big") < MOST_HEADERS + 100
    died, largest = MESSAGE_FORMAT.dead_lettered(raw, DIED, drop_cc=False)
    assert largest < 131072 and "x-death" in headers_of(died)


BODIES: list[tuple[bytes, bytes, str | None]] = [
    (section(0x75, b""), b"", None),
    (section(0x75, b"one") + section(0x75, b"two"), b"onetwo", None),
    (section(0x75, b"one") + section(0x78, {Symbol("f"): 1}), b"one", None),
    (section(0x77, "text"), b"text", None),
    (section(0x77, "text" * 99), b"text" * 99, None),
    (section(0x77, b"octets") + section(0x78, {}), b"octets", None),
    (section(0x77, Symbol("text")), section(0x77, Symbol("text")), "amqp-1.0"),
    (section(0x77, None), section(0x77, None), "amqp-1.0"),
    (section(0x76, [1]) + section(0x76, []), section(0x76, [1]) + section(0x76, []), "amqp-1.0"),
    (section(0x77, 1) + section(0x78, {}), section(0x77, 1) + section(0x78, {}), "amqp-1.0"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "octets", "kind"), BODIES)
def test_bodies(body: bytes, octets: bytes, kind: str | None) -> None:
    got, told = seen(body=body)
    assert (told, got.type) == (octets, kind)
    annotated, _ = seen(body=body, annotations={Symbol("x-basic-type"): "kind"})
    assert annotated.type == (kind or "kind")


def test_a_type_that_is_no_text_is_none() -> None:
    assert seen(annotations={Symbol("x-basic-type"): 1})[0].type is None
    assert seen(annotations={Symbol("x-basic-type"): "x" * 256})[0].type is None


def test_headers_added_by_the_broker_stay() -> None:
    raw = incoming(payload(header=[True, None, UInt(5)], application={"a": 1})).raw
    made, _ = MESSAGE_FORMAT.dead_lettered(with_header(raw, "x-replication-id", "1:2"), DIED, drop_cc=True)
    assert is_stored(made) and body_of(made) == body_of(raw)
    got = headers_of(as_0_9_1(made))
    assert got["x-death"][0]["original-expiration"] == "5" and got["x-last-death-queue"] == "q"
    assert (got["a"], got["x-replication-id"]) == (1, "1:2")
    assert pika_of(as_0_9_1(made))[0].expiration is None
    assert MESSAGE_FORMAT.cycles(made, ["q"], "expired") == ["q"]
    again, _ = MESSAGE_FORMAT.dead_lettered(made, DIED, drop_cc=True)
    assert headers_of(again)["x-death"][0]["count"] == 2 and is_stored(again)


def test_stored_frames_that_hold_no_sections_are_delivered_as_they_are() -> None:
    raw = content(0, b"\0no sections")
    assert pika_of(as_0_9_1(raw))[1] == b"\0no sections"
    assert split(out(raw)).body == b"\0no sections"
    empty = content(0, b"")
    assert as_0_9_1(empty) == empty
    assert split(out(empty)).body == b""
