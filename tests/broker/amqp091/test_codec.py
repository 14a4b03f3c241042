"""The method table, field tables and property lists: encoding, decoding and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.amqp091.codec.fields import Float32, Timestamp, read_table, write_table
from broker.amqp091.codec.frames import body_frames, body_of, frame, reframe
from broker.amqp091.codec.grammar import (
    METHODS,
    decode_arguments,
    encode,
    encode_frame,
    lookup,
    parse_grammar,
)
from broker.amqp091.codec.properties import check, headers_of, with_header
from broker.errors import AmqpError, PreconditionFailed, SyntaxError_
from broker.model.octets import as_text
from tests.broker.amqp091.wire import content

short_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | short_text
    | st.integers(0, 2**64 - 1).map(Timestamp)
    | st.floats(width=32, allow_nan=False).map(Float32)
)
tables = st.recursive(
    st.dictionaries(short_text, scalars, max_size=5),
    lambda inner: st.dictionaries(short_text, inner | st.lists(scalars | inner, max_size=4), max_size=4),
    max_leaves=12,
)
VALUES = {
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "shortstr": short_text,
    "octets": st.binary(max_size=255).map(as_text),
    "longstr": st.binary(max_size=100),
    "bit": st.booleans(),
    "table": tables,
    "arguments": tables,
}


@given(tables)
def test_a_field_table_survives(table: dict[str, Any]) -> None:
    data = write_table(table)
    assert read_table(data, 0) == (table, len(data))


@given(st.data())
def test_every_method_survives(data: st.DataObject) -> None:
    method = data.draw(st.sampled_from([m for m in METHODS if m.class_id != 250]))
    arguments = {name: data.draw(VALUES[kind]) for name, kind in method.fields if name != "-"}
    payload = encode(method.name, **arguments)
    assert lookup(payload) == method
    assert decode_arguments(method, payload) == arguments


@given(st.binary(max_size=200))
@example(b"\x01\x00\x00")
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    """Whatever the input, only errors of the error tree are raised."""
    try:
        decode_arguments(lookup(data), data)
    except AmqpError as error:
        assert error.code in (502, 540)
    for read in (lambda: read_table(data, 0), lambda: check(data)):
        try:
            read()
        except (SyntaxError_, PreconditionFailed):  # the latter for an expiration that is no number
            continue


def test_every_octet_less_or_more_is_refused() -> None:
    payload = encode("queue.declare", queue="q", arguments={"a": [1, {"b": "c"}]})
    method = lookup(payload)
    for end in range(4, len(payload)):
        with pytest.raises(SyntaxError_):
            decode_arguments(method, payload[:end])
    with pytest.raises(SyntaxError_):
        decode_arguments(method, payload + b"\0")


def test_bits_share_an_octet_in_the_order_of_the_specification() -> None:
    assert encode("queue.declare", queue="q", durable=True, nowait=True)[8:9] == b"\x12"


def test_the_grammar_names_a_bad_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_grammar("class a 1\n  method b 2 S x:unheard\n")


def test_unknown_arguments_are_the_callers_mistake() -> None:
    with pytest.raises(TypeError, match="quue"):
        encode_frame(1, "queue.declare", quue="q")


@given(st.binary(max_size=9000), st.integers(1, 65535), st.sampled_from([64, 4096, 131072]))
def test_reframing_keeps_the_body(body: bytes, channel: int, frame_max: int) -> None:
    raw = reframe(content(7, body), channel, frame_max)
    assert body_of(raw) == body
    assert raw[1:3] == channel.to_bytes(2, "big")
    assert reframe(raw, 7, 131072) == content(
        7, body, frame_max=frame_max if len(body) > frame_max else 131072
    )


def test_a_header_frame_that_is_too_large_stays_whole() -> None:
    properties = b"\x80\0\xff" + b"x" * 255
    raw = content(1, b"y" * 300, properties=properties)
    assert reframe(raw, 2, 100) == content(2, b"y" * 300, properties=properties, frame_max=100)


def test_body_frames_are_cut_at_frame_max() -> None:
    assert body_frames(1, b"abcdef", 8 + 4) == [frame(3, 1, b"abcd"), frame(3, 1, b"ef")]


@pytest.mark.parametrize("headers", [{}, {"a": 1}, {"x-replication-id": "old", "b": "c"}])
def test_a_header_is_added_or_replaced(headers: dict[str, Any]) -> None:
    properties = b"\xb0\0\x04text" + write_table(headers) + b"\x02" if headers else b"\x90\0\x04text\x02"
    raw = with_header(content(3, b"body", properties=properties), "x-replication-id", "new")
    assert headers_of(raw) == {**headers, "x-replication-id": "new"}
    assert body_of(raw) == b"body"
    assert check(raw[19 : 7 + int.from_bytes(raw[3:7], "big")]).persistent


def test_other_headers_keep_their_octets_where_one_is_replaced() -> None:
    """For a value that is not UTF-8, nobody else can tell a long string from a byte array."""
    text, array = b"\x01tS\0\0\0\1\xff", b"\x01ax\0\0\0\1\xff"
    table = text + b"\x03oldl" + bytes(8) + array
    raw = content(3, b"body", properties=b"\x20\0" + len(table).to_bytes(4, "big") + table)
    assert text + array + b"\x03oldS\0\0\0\3new" in with_header(raw, "old", "new")


def test_properties_are_checked_to_their_last_octet() -> None:
    good = b"\xff\xfc" + b"\x01a\x01b" + write_table({"k": 1}) + b"\x02\x09" + b"\x01c" * 2
    good += b"\x0271" + b"\x01c" + b"\0" * 8 + b"\x01d" * 4
    assert check(good).persistent
    assert check(good).user_id == "d"
    assert (check(good).expiration, check(good).priority) == (71, 9)
    for end in range(len(good)):
        with pytest.raises(SyntaxError_):
            check(good[:end])
