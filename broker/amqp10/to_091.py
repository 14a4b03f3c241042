"""Converts the properties of an AMQP 1.0 message to a 0-9-1 property list. Pure functions.

Names and rules are RabbitMQ's (https://www.rabbitmq.com/docs/conversions, `mc_amqpl.erl`). Whatever does not
fit a property or a header is omitted, since the original message is stored as well. Also omitted are fields
that would instruct this broker, or look like its own (`_OMITTED`): further routing keys, death histories,
replication ids.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from broker.amqp091.codec.properties import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    PRIORITY,
    TIMESTAMP,
    USER_ID,
    Checked,
    check,
)  # fmt: skip
from broker.model.history.recent_ids import HEADER, LONGEST_ID
from understudy.shared.amqp10.conditions import PRECONDITION, Fault
from understudy.shared.amqp10.sections import Head, Properties, parse_head
from understudy.shared.amqp10.types import (
    Array,
    Byte,
    Char,
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
)

CORRELATION_ID, REPLY_TO, MESSAGE_ID, TYPE, APP_ID = 1 << 10, 1 << 9, 1 << 7, 1 << 5, 1 << 3
"""Property flags that only these conversions use."""

AMQP_TYPE: Final = "amqp-1.0"
"""Property `type` of a message whose body is neither octets nor text but encoded sections. A binary or a
string is its own body here. RabbitMQ encodes it too, but 0-9-1 clients should be able to read what Proton's
`Message("text")` sends."""
BASIC_TYPE: Final = "x-basic-type"
"""The annotation for the property `type`."""

MOST_HEADERS: Final = 64 * 1024
"""Maximum octets of the headers, so that a death history fits into the same frame: no 0-9-1 client has agreed
to more than 128 KiB."""

DEATHS: Final = ("x-death", "x-first-death-", "x-last-death-")
"""Prefixes of the headers with which a broker keeps a message's history."""
_OMITTED: Final = frozenset(
    ("CC", "BCC", "x-cc", "x-opt-deaths", "x-replication-id", "x-exchange", "x-routing-key")
)


class Converted(NamedTuple):
    """The result for the sections before the body."""

    properties: bytes
    """A property list, flags first."""
    kind: Checked
    to: str | None
    subject: str | None
    user_id: bytes | None
    kept: bytes
    """The sections before the body that are stored."""


class _Unfit(Exception):
    """A value without a 0-9-1 field type."""


def converted(head: bytes, is_data: bool) -> Converted:
    """Convert `head`, the sections before the body. `is_data`: the body is octets or text. Raises
    DecodeError."""
    parsed = parse_head(head)
    listed = property_list(parsed, is_data=is_data)
    properties = parsed.properties
    return Converted(
        listed, check(listed), properties.to, properties.subject, properties.user_id, head[parsed.kept :]
    )


def property_list(head: Head, *, is_data: bool) -> bytes:
    """The 0-9-1 property list of a message."""
    header, properties = head.header, head.properties
    ids: dict[str, bytes | str] = {}
    correlation = _id(properties.correlation_id, "x-correlation-id", ids)
    message = _id(properties.message_id, "x-message-id", ids)
    table = _headers(head, ids)
    named = head.annotations.get(Symbol(BASIC_TYPE)) if is_data else AMQP_TYPE
    made: list[tuple[int, bytes | None]] = [
        (CONTENT_TYPE, _short(properties.content_type)),
        (CONTENT_ENCODING, _short(properties.content_encoding)),
        (HEADERS, len(table).to_bytes(4, "big") + table if table else None),
        (DELIVERY_MODE, b"\2" if header.durable else None),
        (PRIORITY, None if header.priority is None else bytes((header.priority,))),
        (CORRELATION_ID, correlation),
        (REPLY_TO, _short(properties.reply_to)),
        (EXPIRATION, None if header.ttl is None else _short(str(int(header.ttl)))),
        (MESSAGE_ID, message),
        (TIMESTAMP, _seconds(properties.creation_time)),
        (TYPE, _short(named) if isinstance(named, str) else None),
        (USER_ID, _user_id(properties)),
        (APP_ID, _short(properties.group_id)),
    ]
    there = [(flag, octets) for flag, octets in made if octets is not None]
    flags = sum([flag for flag, _ in there])
    return flags.to_bytes(2, "big") + b"".join([octets for _, octets in there])


def _short(text: str | None) -> bytes | None:
    """A short string; None if it does not fit."""
    return None if text is None else _short_octets(text.encode())


def _short_octets(octets: bytes) -> bytes | None:
    return None if len(octets) > 255 else bytes((len(octets),)) + octets


def _name(key: str) -> bytes | None:
    """The key of a field; None if it does not fit or has a NUL."""
    return None if "\0" in key else _short(key)


def _seconds(time: Timestamp | None) -> bytes | None:
    return None if time is None or time < 0 else (time // 1000).to_bytes(8, "big")


def _user_id(properties: Properties) -> bytes | None:
    octets = properties.user_id
    if octets is None:
        return None
    try:
        octets.decode()
    except UnicodeDecodeError:
        return None
    return _short_octets(octets)


def _id(value: ULong | Uuid | bytes | str | None, header: str, left: dict[str, bytes | str]) -> bytes | None:
    """A message id or correlation id. A binary or long one becomes a header instead."""
    match value:
        case None:
            return None
        case Uuid():
            return _short(uuid_text(value))
        case int():
            return _short(str(int(value)))
        case str():
            short = _short(value)
            if short is None:
                left[header] = value
            return short
        case _:
            left[header] = value
            return None


def uuid_text(value: bytes) -> str:
    text = value.hex()
    return f"urn:uuid:{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _headers(head: Head, ids: dict[str, bytes | str]) -> bytes:
    """The table's entries: application properties, then annotations x-*, which take precedence."""
    if not (head.application or head.annotations or ids):
        return b""
    told = {str(key): value for key, value in head.annotations.items() if _is_told(key)}
    entries, room = [], MOST_HEADERS
    values: dict[str, Any] = {**ids, **head.application}
    values.update(told)
    for key, value in values.items():
        name = None if key in _OMITTED or key.startswith(DEATHS) else _name(key)
        if name is None:
            continue
        try:
            entry = name + _field(value)
        except _Unfit:
            entry = b""
        if entry and len(entry) <= room:
            room -= len(entry)
            entries.append(entry)
        elif key == HEADER and value is not None:
            raise Fault(PRECONDITION, f"{HEADER} is a text of 1 to {LONGEST_ID} octets")
    return b"".join(entries)


def _is_told(key: Symbol | ULong) -> bool:
    return isinstance(key, Symbol) and key.startswith("x-") and not key.startswith("x-basic-")


def _field(value: Any) -> bytes:
    """A table value, type first."""
    field = _FIELDS.get(type(value))
    if field is None:
        raise _Unfit
    return field(value)


def _lengthy(tag: bytes, octets: bytes) -> bytes:
    return b"%b%b%b" % (tag, len(octets).to_bytes(4, "big"), octets)


def _packed(form: str) -> Callable[[Any], bytes]:
    pack, tag = struct.Struct(f">{form[1:]}").pack, form[:1].encode()
    return lambda value: tag + pack(value)


def _wide(value: int) -> bytes:
    if value >= 1 << 63:
        raise _Unfit
    return b"l" + value.to_bytes(8, "big", signed=True)


def _time(value: int) -> bytes:
    if value < 0:
        raise _Unfit
    return b"T" + (value // 1000).to_bytes(8, "big")


def _text(value: str) -> bytes:
    return _lengthy(b"S", value.encode())


def _items(value: list[Any]) -> bytes:
    return _lengthy(b"A", b"".join([_field(item) for item in value]))


def _table(value: dict[Any, Any]) -> bytes:
    entries = []
    for key, item in value.items():
        name = _name(key) if isinstance(key, str) else None
        if name is None:
            raise _Unfit
        entries.append(name + _field(item))
    return _lengthy(b"F", b"".join(entries))


_FIELDS: dict[type[Any], Callable[[Any], bytes]] = {
    type(None): lambda value: b"V",
    bool: lambda value: b"t\1" if value else b"t\0",
    str: _text, Symbol: _text, Char: _text,
    bytes: lambda value: _lengthy(b"x", value),
    Uuid: lambda value: _text(uuid_text(value)),
    Byte: _packed("bb"), UByte: _packed("BB"), Short: _packed("sh"), UShort: _packed("uH"),
    Int: _packed("Ii"), UInt: _packed("iI"), Long: _wide, ULong: _wide, Float: _packed("ff"),
    float: _packed("dd"), Timestamp: _time, list: _items, Array: _items, dict: _table,
}  # fmt: skip
"""RabbitMQ's field types. Decimals and described values have none."""
