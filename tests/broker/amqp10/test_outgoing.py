"""Messages as AMQP 1.0 clients get them, from either protocol, in tables. Proton checks the result."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pika.spec import BasicProperties

from broker.amqp091.codec.fields import write_octets
from broker.amqp091.codec.message_format import MESSAGE_FORMAT
from broker.amqp091.codec.properties import CONTENT_TYPE
from broker.amqp10.conversion import incoming
from broker.model.octets import as_text
from tests.broker.amqp091.wire import content
from tests.broker.amqp10.messages import (
    DIED,
    ROUTE,
    UUID_TEXT,
    message,
    out,
    payload,
    section,
    split,
    with_table,
)
from tests.understudy.shared.test_amqp10_types import typed
from understudy.shared.amqp10.types import (
    Byte,
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


def test_a_stored_message_comes_back_unchanged() -> None:
    rest = payload(
        properties=["id", b"u", "to"], application={"a": Decimal32(b"1234")}, body=section(0x76, [1])
    )
    raw = incoming(section(0x70, [True, UByte(9), UInt(5)]) + rest + section(0x78, {})).raw
    got = split(out(raw))
    assert got.head.annotations == ROUTE
    assert got.stored.endswith(rest + section(0x78, {}))


def test_annotations_are_added_and_replaced() -> None:
    annotations = {
        Symbol("x-exchange"): "forged", Symbol("x-replication-id"): ["forged"],
        Symbol("x-mine"): Described(ULong(1), 2), ULong(3): Decimal32(b"1234"),
    }  # fmt: skip
    raw = incoming(payload(annotations=annotations)).raw
    kept = {Symbol("x-mine"): Described(ULong(1), 2), ULong(3): Decimal32(b"1234")}
    assert split(out(raw, replication_id="1:2")).head.annotations == kept | ROUTE | {
        "x-replication-id": "1:2"
    }
    assert split(out(raw)).head.annotations == kept | ROUTE | {"x-replication-id": ["forged"]}


def test_many_annotations() -> None:
    annotations = {Symbol(f"x-{number}"): "x" * number for number in range(300)}
    got = split(out(incoming(payload(annotations=annotations)).raw))
    assert got.head.annotations == annotations | ROUTE


@pytest.mark.parametrize("raw", [incoming(payload()).raw, message()], ids=["stored", "0-9-1"])
def test_the_history_of_deaths(raw: bytes) -> None:
    made, _ = MESSAGE_FORMAT.dead_lettered(raw, DIED, drop_cc=False)
    got = split(out(made)).head.annotations
    assert typed(got[Symbol("x-death")]) == typed(
        [
            {
                Symbol("count"): 1, Symbol("reason"): "expired", Symbol("queue"): "q",
                Symbol("time"): Timestamp(1_700_000_000_000), Symbol("exchange"): "shop",
                Symbol("routing-keys"): ["order.new"],
            }
        ]
    )  # fmt: skip
    first_and_last = {f"x-{which}-death-queue": "q" for which in ("first", "last")}
    assert (
        first_and_last.items() <= {str(key): value for key, value in got.items() if key != "x-death"}.items()
    )


HEADERS_OUT: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({}, (False, 0, None, True, None)),
    ({"persistent": True}, (True, 0, None, True, None)),
    ({"priority": 255}, (False, 255, None, True, None)),
    ({"ttl": 0}, (False, 0, 0, True, None)),
    ({"ttl": 315_360_000_000}, (False, 0, 2**32 - 1, True, None)),
    ({"redelivered": True, "ttl": 5, "priority": 1}, (False, 1, 5, None, 1)),
]


@pytest.mark.parametrize(
    "raw", [incoming(payload(header=[True, UByte(7), UInt(1)])).raw, message(priority=9)]
)
@pytest.mark.parametrize(("told", "header"), HEADERS_OUT)
def test_the_header(raw: bytes, told: dict[str, Any], header: tuple[Any, ...]) -> None:
    assert tuple(split(out(raw, **told)).head.header) == header


@pytest.mark.parametrize("raw", [incoming(payload(header=[True])).raw, incoming(payload()).raw, message()])
def test_an_unset_priority_stays_unset(raw: bytes) -> None:
    """In the standard an unset priority is 4, and 0 is the lowest."""
    assert split(out(raw)).head.header.priority is None


def test_a_message_of_0_9_1() -> None:
    proton = pytest.importorskip("proton")
    raw = message(
        content_type="text/plain", content_encoding="gzip", delivery_mode=2, priority=3, expiration="5000",
        correlation_id="correlation", reply_to="reply", message_id=UUID_TEXT, timestamp=1_700_000_000,
        type="kind", user_id="guest", app_id="app", cluster_id="cluster",
        headers={
            "a": 1, "x-b": [1, {"é": "v", "k": None}], "d": True, "none": {"a": 1}, "CC": ["one", "two"],
        },
    )  # fmt: skip
    octets = out(raw, persistent=True, priority=3, ttl=4000, replication_id="1:2")
    got = proton.Message()
    got.decode(octets)
    assert (got.durable, got.priority, got.ttl, got.first_acquirer, got.delivery_count) == (
        True,
        3,
        4.0,
        True,
        0,
    )
    assert (got.id, got.correlation_id) == (UUID(bytes=b"u" * 16), "correlation")
    assert (got.user_id, got.reply_to, got.group_id) == (b"guest", "reply", "app")
    assert (got.content_type, got.content_encoding) == ("text/plain", "gzip")
    assert (got.creation_time, got.address, got.subject) == (1_700_000_000.0, None, None)
    assert got.properties == {"a": 1, "d": True}
    assert bytes(got.body) == b"x" * 5000 and got.inferred
    assert got.annotations == {
        "x-b": [1, {"é": "v", "k": None}], "x-cc": ["one", "two"], "x-basic-type": "kind",
        "x-exchange": "ex", "x-routing-key": "key", "x-replication-id": "1:2",
    }  # fmt: skip


def test_a_bare_message_of_0_9_1() -> None:
    got = split(out(content(7, b"")))
    assert got.head.annotations == ROUTE and got.body == b""
    assert got.stored == section(0x72, {Symbol(key): value for key, value in ROUTE.items()}) + section(
        0x75, b""
    )


TYPES: list[tuple[bytes, Any]] = [
    (b"b\xff", Byte(-1)), (b"B\xff", UByte(255)), (b"s\xff\xff", Short(-1)), (b"u\xff\xff", UShort(65535)),
    (b"I\xff\xff\xff\xff", Int(-1)), (b"i\xff\xff\xff\xff", UInt(2**32 - 1)), (b"l" + b"\xff" * 8, Long(-1)),
    (b"L" + b"\xff" * 8, Long(-1)), (b"f\x3f\xc0\0\0", Float(1.5)), (b"d\x3f\xf8" + b"\0" * 6, 1.5),
    (b"T" + (5).to_bytes(8, "big"), Timestamp(5000)), (b"t\1", True), (b"V", None), (b"x\0\0\0\1\0", b"\0"),
    (b"S\0\0\0\2\xc3\xa9", "é"), (b"S\0\0\0\1\xff", b"\xff"), (b"S\0\0\1\1" + b"x" * 257, "x" * 257),
    (b"D\2\0\0\1\0", str(Decimal("2.56"))),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), TYPES)
def test_headers_keep_their_types(field: bytes, value: Any) -> None:
    got = split(out(with_table(b"\1a" + field, b"\3x-a" + field))).head
    assert typed(got.application) == typed({"a": value})
    assert typed(got.annotations[Symbol("x-a")]) == typed(value)


def test_list_items_have_the_type_of_their_python_value() -> None:
    items = b"f\x3f\xc0\0\0" + b"u\0\5" + b"t\0" + b"T" + (5).to_bytes(8, "big")
    got = split(out(with_table(b"\3x-aA" + len(items).to_bytes(4, "big") + items))).head
    assert typed(got.annotations[Symbol("x-a")]) == typed([Float(1.5), Long(5), False, Timestamp(5000)])


def test_headers_that_fit_nowhere_are_left_out() -> None:
    late = b"T" + b"\xff" * 8
    deep = b"V"
    for _ in range(60):
        deep = b"A" + len(deep).to_bytes(4, "big") + deep
    lists = [b"\1a" + deep, b"\3x-d" + deep, b"\1t" + late, b"\3x-t" + late, b"\4x-\xc3\xa9V"]
    got = split(out(with_table(*lists, b"\3BCCA\0\0\0\0", b"\2CCA\0\0\0\6S\0\0\0\1k", b"\1kV"))).head
    assert got.application == {"k": None}
    assert got.annotations == ROUTE | {"x-cc": ["k"]}


def test_properties_that_fit_nowhere_are_left_out() -> None:
    raw = content(7, b"", properties=(CONTENT_TYPE | 1 << 6).to_bytes(2, "big") + b"\2\xc3\xa9" + b"\xff" * 8)
    assert set(split(out(raw)).head.properties) == {None}


@pytest.mark.parametrize("octets", [b"\xff", b"\xff\0\xfe", b"\xc0\xaf", b"\xff" * 255])
def test_an_id_that_is_no_text_is_binary_and_other_strings_are_replaced(octets: bytes) -> None:
    bits = (15, 14, 10, 9, 7, 5, 3, 2)  # the short strings but expiration and user-id
    flags = sum(1 << bit for bit in bits)
    raw = content(7, b"", properties=flags.to_bytes(2, "big") + write_octets(octets) * len(bits))
    got = split(out(raw, routing_key=as_text(octets))).head
    shown = octets.decode(errors="replace")
    told = got.properties
    assert (told.message_id, told.correlation_id) == (octets, octets)
    assert (told.reply_to, told.group_id, told.content_type) == (shown, shown, None)
    assert got.annotations == ROUTE | {"x-basic-type": shown, "x-routing-key": shown}
    died = MESSAGE_FORMAT.dead_lettered(raw, DIED._replace(routing_key=as_text(octets)), drop_cc=False)[0]
    assert split(out(died)).head.annotations[Symbol("x-death")][0]["routing-keys"] == [octets]


@pytest.mark.parametrize(
    "digits", ["abcdef00-0000-4000-8000-00000000000f", "ABCDEF00-0000-4000-8000-00000000000F"]
)
def test_a_uuid_is_one(digits: str) -> None:
    octets = UUID(digits).bytes
    got = split(out(message(message_id=f"urn:uuid:{digits}", correlation_id=digits))).head.properties
    assert typed(got.message_id) == typed(Uuid(octets))
    assert got.correlation_id == digits


@pytest.mark.parametrize(
    "text",
    [
        "urn:uuid:x",
        UUID_TEXT.replace("75", " 7"),
        UUID_TEXT.replace("75", "zz"),
        UUID_TEXT.upper(),
        UUID_TEXT + "0",
        "",
    ],
)
def test_an_invalid_uuid_is_text(text: str) -> None:
    assert split(out(message(message_id=text))).head.properties.message_id == text


AS_BODY = [
    section(0x77, "text"),
    section(0x76, [1]) + section(0x76, []),
    section(0x77, 1) + section(0x78, {}),
]
NO_BODY = [b"", b"text", section(0x77, "text")[:-1], section(0x70, []) + section(0x77, 1), section(0x78, {})]


@pytest.mark.parametrize("body", AS_BODY + NO_BODY)
def test_a_body_that_says_it_is_of_amqp_1_0(body: bytes) -> None:
    raw = content(7, body, properties=b"".join(BasicProperties(type="amqp-1.0").encode()))
    expected = body if body in AS_BODY else section(0x75, body)
    assert out(raw).endswith(expected)
    split(out(raw))
