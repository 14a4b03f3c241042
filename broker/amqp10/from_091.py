"""Converts the properties of a 0-9-1 message to the AMQP 1.0 sections before the body. Pure functions.

Names and rules are RabbitMQ's (https://www.rabbitmq.com/docs/conversions, `mc_amqpl.erl`): headers become
application properties, and headers named x-* become annotations.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

from broker.amqp091.codec import fields
from broker.amqp091.codec.properties import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    PRIORITY,
    TIMESTAMP,
    USER_ID,
    entries_of,
)  # fmt: skip
from broker.amqp10.to_091 import APP_ID, BASIC_TYPE, CORRELATION_ID, DEATHS, MESSAGE_ID, REPLY_TO, TYPE
from understudy.shared.amqp10.encoder import write_list, write_map, write_section
from understudy.shared.amqp10.sections import APPLICATION_PROPERTIES, PROPERTIES
from understudy.shared.amqp10.types import (
    Byte,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    UShort,
    Uuid,
    write,
)

_CLUSTER_ID = 1 << 2
_OCTET = DELIVERY_MODE | PRIORITY
_IN_ORDER = tuple(1 << bit for bit in range(15, 1, -1))
_WIDTHS: dict[str, type[int] | type[float]] = {
    "b": Byte, "B": UByte, "s": Short, "u": UShort, "I": Int, "i": UInt, "l": Long, "L": Long, "f": Float,
}  # fmt: skip
"""By the type of a header. Integers inside a table or an array are longs."""
_CLOSEST_TO_END = (1 << 63) // 1000

Pair = tuple[str, bytes]
"""An annotation: its key, and the encoded key and value."""


class Translated(NamedTuple):
    """The result for a property list."""

    annotations: tuple[Pair, ...]
    sections: bytes
    """properties and application-properties, if there are any."""
    type: str | None


def translated(listed: bytes) -> Translated:
    """Convert `listed`, a checked property list, flags first."""
    known = _read(listed)
    start, end = known.get(HEADERS, (0, 0))
    annotations: dict[str, bytes] = {}
    application: list[bytes] = []
    for key, value, begin, _ in entries_of(listed, start, end) if end else ():
        tag = chr(listed[begin + 1 + listed[begin]])
        pair = _pair(key, value, tag)
        if pair is None:
            continue
        if pair[0] == key and not key.startswith("x-"):
            application.append(pair[1])
        else:
            annotations[pair[0]] = pair[1]
    type_ = _text(known.get(TYPE))
    if type_ is not None:
        annotations[BASIC_TYPE] = annotation(BASIC_TYPE, type_)
    sections = _properties(known)
    if application:
        sections += write_section(APPLICATION_PROPERTIES, write_map(application))
    return Translated(tuple(annotations.items()), sections, type_)


def annotation(key: str, value: Any) -> bytes:
    """The encoded key and value."""
    return write(Symbol(key)) + write(value)


def _pair(key: str, value: Any, tag: str) -> Pair | None:
    """A header as an annotation or an application property, depending on its name; None if it fits neither. A
    header nested too deeply fits neither."""
    if key == "CC" and isinstance(value, list):
        key = "x-cc"
    elif key in ("CC", "BCC"):
        return None
    try:
        if key.startswith("x-"):
            return (key, write(Symbol(key)) + write(_value(value, tag), 2)) if key.isascii() else None
        return None if tag in "AF" else (key, write(key) + write(_value(value, tag)))
    except ValueError:
        return None


def _value(value: Any, tag: str = "") -> Any:
    """A table field as an AMQP 1.0 value. Raises ValueError for a time out of range."""
    width = _WIDTHS.get(tag)
    if width is not None:
        return width(value)
    match value:
        case fields.Timestamp():
            if value > _CLOSEST_TO_END - 1:
                raise ValueError("a time beyond AMQP 1.0's")
            return Timestamp(value * 1000)
        case fields.Float32():
            return Float(value)
        case Decimal():
            return str(value)
        case dict():
            return {_key(key): _value(item) for key, item in value.items()}
        case list():
            return [_value(item) for item in value]
        case _:
            return value


def _key(key: str) -> str:
    return Symbol(key) if key.isascii() else key


def deaths(headers: dict[str, Any]) -> tuple[Pair, ...]:
    """The death history in a message's headers, as annotations."""
    found = []
    for key, value in headers.items():
        if key.startswith(DEATHS):
            pair = _pair(key, value, "")
            found += [pair] if pair is not None else []
    return tuple(found)


def _read(listed: bytes) -> dict[int, Any]:
    """Octets and numbers by flag; for the headers, start and end of their table."""
    flags, at = listed[0] << 8 | listed[1], 2
    known: dict[int, Any] = {}
    for bit in _IN_ORDER:
        if not flags & bit:
            continue
        if bit == HEADERS:
            end = at + 4 + int.from_bytes(listed[at : at + 4], "big")
            known[bit], at = (at, end), end
        elif bit & _OCTET:
            at += 1
        elif bit == TIMESTAMP:
            known[bit], at = int.from_bytes(listed[at : at + 8], "big"), at + 8
        else:
            known[bit], at = fields.read_octets(listed, at)
    return known


def _properties(known: dict[int, Any]) -> bytes:
    """The properties section; empty if there are none. In the section's order, up to the group id."""
    if not known.keys() - {HEADERS, TYPE, EXPIRATION, _CLUSTER_ID}:
        return b""
    time = known.get(TIMESTAMP)
    values: list[Any] = [
        _id(known.get(MESSAGE_ID)), known.get(USER_ID), None, None, _text(known.get(REPLY_TO)),
        _id(known.get(CORRELATION_ID)), _symbol(known.get(CONTENT_TYPE)),
        _symbol(known.get(CONTENT_ENCODING)), None,
        None if time is None or time >= _CLOSEST_TO_END else Timestamp(time * 1000),
        _text(known.get(APP_ID)),
    ]  # fmt: skip
    while values and values[-1] is None:
        values.pop()
    return write_section(PROPERTIES, write_list([write(value) for value in values]))


def _symbol(octets: bytes | None) -> Symbol | None:
    return Symbol(octets.decode()) if octets is not None and octets.isascii() else None


def _text(octets: bytes | None) -> str | None:
    """A string in AMQP 1.0 is Unicode, so U+FFFD replaces invalid octets."""
    return None if octets is None else octets.decode(errors="replace")


def _id(octets: bytes | None) -> Uuid | str | bytes | None:
    """An id. Octets if it is not text: an AMQP 1.0 id may be binary."""
    text = None if octets is None else fields.text_or_octets(octets)
    if not isinstance(text, str) or not text.startswith("urn:uuid:"):
        return text
    digits = text[9:]
    parts = digits.split("-")
    if [len(part) for part in parts] != [8, 4, 4, 4, 12]:
        return text
    try:
        uuid = bytes.fromhex("".join(parts))
    except ValueError:
        return text
    return Uuid(uuid) if len(uuid) == 16 else text
