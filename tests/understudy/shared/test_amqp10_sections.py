"""The sections of a message: what is found in them, and each way in which a message is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.amqp10.messages import section, split
from understudy.shared.amqp10.sections import (
    DATA,
    MOST_AROUND,
    MOST_LOOKED_AT,
    SEQUENCE,
    VALUE,
    Header,
    Properties,
    outline,
)  # fmt: skip
from understudy.shared.amqp10.types import (
    Array,
    DecodeError,
    Described,
    Float,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    Uuid,
    extent,
    write,
)  # fmt: skip

HEADER = section(0x70, [True, UByte(9), UInt(1000), False, UInt(3)])
DELIVERY = section(0x71, {Symbol("x-d"): 1})
ANNOTATIONS = section(0x72, {Symbol("x-a"): [1], ULong(5): {"k": True}})
FULL = [
    "id", b"guest", "/queues/q", "subject", "reply", Uuid(b"u" * 16), Symbol("text/plain"), Symbol("gzip"),
    Timestamp(1), Timestamp(2), "group", UInt(4), "back",
]  # fmt: skip
PROPERTIES = section(0x73, FULL)
APPLICATION = section(0x74, {"a": 1, "b": None, "c": b"\xff"})
BODY = section(0x75, b"body")
FOOTER = section(0x78, {Symbol("x-f"): 1})
ALL = HEADER + DELIVERY + ANNOTATIONS + PROPERTIES + APPLICATION + BODY + FOOTER


def test_a_message_with_everything() -> None:
    got = split(ALL)
    assert got.head.header == Header(True, UByte(9), UInt(1000), False, UInt(3))
    assert got.head.annotations == {"x-a": [1], 5: {"k": True}}
    assert got.head.properties == Properties(*FULL)
    assert got.head.application == {"a": 1, "b": None, "c": b"\xff"}
    assert (got.kind, got.body, got.footer) == (DATA, b"body", FOOTER)
    assert got.stored == ANNOTATIONS + PROPERTIES + APPLICATION + BODY + FOOTER


def test_a_message_of_a_body_alone() -> None:
    got = split(BODY)
    assert got.head.header == Header() and got.head.properties == Properties()
    assert (got.head.annotations, got.head.application, got.footer) == ({}, {}, b"")
    assert got.stored == BODY


def test_what_is_stored_begins_behind_the_delivery_annotations() -> None:
    assert split(HEADER + BODY).stored == split(DELIVERY + BODY).stored == BODY
    assert split(HEADER + APPLICATION + BODY).stored == APPLICATION + BODY


def test_kinds_of_bodies() -> None:
    assert (
        split(section(0x75, b"") + section(0x75, b"one") + section(0x75, b"two" * 99)).body
        == b"one" + b"two" * 99
    )
    sequences = section(0x76, [1, 2]) + section(0x76, [])
    got = split(sequences + FOOTER)
    assert (got.kind, got.body, got.footer) == (SEQUENCE, sequences, FOOTER)
    for value, body in (("text", b"text"), (b"octets", b"octets"), ("t" * 300, b"t" * 300)):
        got = split(section(0x77, value) + FOOTER)
        assert (got.kind, got.body, got.footer) == (VALUE, body, FOOTER)
    for value in (None, Symbol("text"), {"k": [1]}, Described(ULong(1), [Array(b"\x40")])):
        got = split(section(0x77, value) + FOOTER)
        assert (got.kind, got.body, got.footer) == (VALUE, section(0x77, value), FOOTER)


def test_descriptors_by_name() -> None:
    named = [
        section("amqp:header:list", [True]),
        section("amqp:delivery-annotations:map", {}),
        section("amqp:message-annotations:map", {Symbol("x-a"): 1}),
        section("amqp:properties:list", ["id"]),
        section("amqp:application-properties:map", {"a": 1}),
    ]
    got = split(b"".join(named) + section("amqp:data:binary", b"1") + section("amqp:footer:map", {}))
    assert got.head.header.durable is True and got.head.properties.message_id == "id"
    assert (got.head.annotations, got.head.application, got.body) == ({"x-a": 1}, {"a": 1}, b"1")
    assert split(section("amqp:amqp-sequence:list", [])).kind == SEQUENCE
    assert split(section("amqp:amqp-value:*", 1)).kind == VALUE
    wide = b"\0\x80" + (0x75).to_bytes(8, "big") + write(b"wide")
    assert split(wide).body == b"wide"


def test_a_described_simple_value_is_one() -> None:
    value = Described(Symbol("com.microsoft:timespan"), 5)
    assert split(section(0x74, {"a": value}) + BODY).head.application == {"a": value}


BOTH = section(0x74, {"a": 1})
REFUSED = {
    "nothing": (b"", "without a body"),
    "many data sections": (section(0x75, b"") * 4097, "a body of more than 4096 sections"),
    "many sequences": (section(0x76, []) * 4097, "a body of more than 4096 sections"),
    "no body": (HEADER + PROPERTIES, "without a body"),
    "a footer for a body": (HEADER + FOOTER, "without a body"),
    "out of order": (PROPERTIES + ANNOTATIONS + BODY, "message-annotations after properties"),
    "header late": (APPLICATION + HEADER + BODY, "header after application-properties"),
    "header twice": (HEADER + HEADER + BODY, "second section header"),
    "properties twice": (PROPERTIES + PROPERTIES + BODY, "second section properties"),
    "header after the body": (BODY + HEADER, "header after data"),
    "application-properties after the body": (BODY + BOTH, "application-properties after data"),
    "data and a value": (BODY + section(0x77, 1), "amqp-value after data"),
    "a sequence and data": (section(0x76, []) + BODY, "data after amqp-sequence"),
    "two values": (section(0x77, 1) + section(0x77, 1), "second section amqp-value"),
    "two footers": (BODY + FOOTER + FOOTER, "octets behind the footer"),
    "data after the footer": (BODY + FOOTER + BODY, "octets behind the footer"),
    "trailing octets": (BODY + b"\x40", "no described type"),
    "trailing octets behind a value": (section(0x77, 1) + b"\x40", "no described type"),
    "no described type": (write("text"), "no described type"),
    "unknown descriptor": (section(0x79, b"") + BODY, "no message has"),
    "unknown name": (section("amqp:data:list", b"") + BODY, "no message has"),
    "a descriptor that is a uint": (write(Described(UInt(0x75), b"")), "no message has"),
    "a list for a descriptor": (write(Described([ULong(0x75)], b"")), "no message has"),
    "a described descriptor": (write(Described(Described(ULong(1), 2), b"")), "no message has"),
    "a descriptor alone": (b"\0\x53\x75", "data of another type"),
    "half a descriptor": (b"\0", "no message has"),
    "header that is a map": (section(0x70, {}) + BODY, "header of another type"),
    "properties that are a map": (section(0x73, {}) + BODY, "properties of another type"),
    "annotations that are a list": (section(0x72, []) + BODY, "message-annotations of another type"),
    "annotations that are null": (section(0x72, None) + BODY, "message-annotations of another type"),
    "delivery-annotations that are a list": (section(0x71, []) + BODY, "delivery-annotations of another"),
    "application-properties that are a list": (section(0x74, []) + BODY, "application-properties of another"),
    "footer that is a list": (BODY + section(0x78, []), "footer of another type"),
    "data that is text": (section(0x75, "text"), "data of another type"),
    "a sequence that is a map": (section(0x76, {}), "amqp-sequence of another type"),
    "durable that is a number": (section(0x70, [UByte(1)]) + BODY, "field 0 of header"),
    "priority that is a uint": (section(0x70, [None, UInt(4)]) + BODY, "field 1 of header"),
    "ttl that is a long": (section(0x70, [None, None, 4]) + BODY, "field 2 of header"),
    "six fields of header": (section(0x70, [None] * 6) + BODY, "header with 6 fields"),
    "14 fields of properties": (section(0x73, [None] * 14) + BODY, "properties with 14 fields"),
    "annotation key that is text": (section(0x72, {"x-a": 1}) + BODY, "key of message-annotations"),
    "delivery annotation key": (section(0x71, {UInt(1): 1}) + BODY, "key of delivery-annotations"),
    "footer key that is text": (BODY + section(0x78, {"x-a": 1}), "key of footer"),
    "application key that is a symbol": (section(0x74, {Symbol("a"): 1}) + BODY, "key of application"),
    "application key that is a number": (section(0x74, {1: 1}) + BODY, "key of application"),
    "application value that is a list": (section(0x74, {"a": []}) + BODY, "that is not simple"),
    "application value that is a map": (section(0x74, {"a": {}}) + BODY, "that is not simple"),
    "application value that is an array": (section(0x74, {"a": Array(b"\x40")}) + BODY, "that is not simple"),
    "a described list": (section(0x74, {"a": Described(ULong(1), [])}) + BODY, "that is not simple"),
    "a key twice": (b"\0\x53\x74\xc1\x09\x04" + b"\xa1\x01a\x40" * 2 + BODY, "same key twice"),
    "data cut short": (BODY[:-1], "data that is cut short"),
    "a value cut short": (section(0x77, "text")[:-1], "cut short"),
    "a bad value inside": (b"\0\x53\x77\xc0\x03\x01\xa1\xff", "past|cut short"),
    "a bad value in a sequence": (b"\0\x53\x76\xc0\x04\x01\xa1\x01\xff", "not UTF-8"),
    "properties that end early": (b"\0\x53\x73\xc0\x03\x01\x40\x40" + BODY, "do not end where"),
    "properties larger than the message": (b"\0\x53\x73\xc0\xff\x00" + BODY, "properties that is cut short"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    payload, why = REFUSED[name]
    with pytest.raises(DecodeError, match=why) as raised:
        split(payload)
    assert " at octet " in str(raised.value) and "\n" not in str(raised.value)


WRONG: list[Any] = [
    Float(1.5), b"u", "t", Symbol("s"), Timestamp(1), UInt(1), ULong(1), Uuid(b"u" * 16), True, [], {},
]  # fmt: skip
_IDS = (ULong, Uuid, bytes, str)
FIELDS: tuple[tuple[type[Any], ...], ...] = (
    _IDS, (bytes,), (str,), (str,), (str,), _IDS, (Symbol,), (Symbol,), (Timestamp,), (Timestamp,), (str,),
    (UInt,), (str,),
)  # fmt: skip


@pytest.mark.parametrize("number", range(13))
def test_each_field_of_properties_has_its_type(number: int) -> None:
    for value in WRONG:
        payload = section(0x73, [*[None] * number, value]) + BODY
        if type(value) in FIELDS[number]:
            assert split(payload).head.properties[number] == value
        else:
            with pytest.raises(DecodeError, match=f"field {number} of properties is of another type"):
                split(payload)


def test_a_walk_that_is_not_deep_leaves_the_inside_of_a_body_alone() -> None:
    broken = section(0x74, {"a": 1}) + b"\0\x53\x77\xc0\xff"
    assert outline(broken, deep=False).kind == VALUE
    with pytest.raises(DecodeError):
        outline(broken)
    with pytest.raises(DecodeError):
        outline(section(0x75, b"12")[:-1], deep=False)


LARGE = [b"x" * 1000] * (MOST_AROUND // 1000 + 1)


def test_what_is_around_a_body_has_a_limit() -> None:
    for before in (section(0x71, {Symbol("k"): LARGE}), section(0x74, {"k": b"".join(LARGE)})):
        with pytest.raises(DecodeError, match="octets before the body"):
            split(before + BODY)
    with pytest.raises(DecodeError, match="a footer of more than"):
        split(BODY + section(0x78, {Symbol("k"): LARGE}))
    assert split(section(0x74, {"k": "x" * (MOST_AROUND - 100)}) + BODY).body == b"body"


@pytest.mark.parametrize("code", [0x76, 0x77])
def test_a_large_body_is_taken_by_its_size(code: int) -> None:
    whole = section(code, [b"x" * 1000] * (MOST_LOOKED_AT // 1000 + 1))
    assert split(whole + FOOTER).body == whole
    broken = whole[:20] + b"\xff" * 2000 + whole[2020:]
    assert split(broken + FOOTER).body == broken
    for wrong in (whole[:-1], whole + b"\x40", whole + HEADER):
        with pytest.raises(DecodeError):
            split(wrong)


def test_a_small_body_is_looked_at_in_all_its_sections() -> None:
    with pytest.raises(DecodeError, match="cut short"):
        split(section(0x76, [b"x" * 9999] * 2) + b"\0\x53\x76\xc0\2\1\xa0")


VALUES: list[Any] = [
    None,
    True,
    UByte(1),
    1.5,
    Uuid(b"u" * 16),
    b"",
    "x" * 300,
    [1],
    {1: 2},
    Array(b"\x40", [None]),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_of_each_width_ends_where_it_says(value: Any) -> None:
    for one in (value, Described(ULong(1), Described(Symbol("s"), value))):
        payload = section(0x77, one) + FOOTER
        plan = outline(payload)
        assert (plan.body, payload[plan.footer :]) == (0, FOOTER)
        assert extent(payload, 3, len(payload)) == plan.footer


pieces = st.sampled_from(
    [HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, BODY, FOOTER, b"\0\x53", b"\xff"]
)


@given(st.one_of(st.binary(max_size=100), st.lists(pieces, max_size=9).map(b"".join)))
def test_any_octets_are_a_message_or_refused(payload: bytes) -> None:
    try:
        got = split(payload)
    except DecodeError:
        return
    assert payload.endswith(got.stored)
    assert outline(got.stored).kind == got.kind
    assert split(got.stored).body == got.body


@given(st.data())
def test_a_message_that_is_changed_or_cut_is_another_or_refused(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(ALL) - 1))
    changed = bytearray(ALL)
    changed[at] = data.draw(st.integers(0, 255))
    for payload in (bytes(changed), ALL[:at]):
        try:
            split(payload)
        except DecodeError:
            pass
