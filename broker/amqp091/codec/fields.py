"""AMQP 0-9-1 field types: strict decoding of strings and tables, and their encoding. Pure functions.

Used by `grammar`. Tables use the dialect of RabbitMQ and its clients (errata of 0-9-1): `s` is a signed
16-bit integer, `b` signed and `B` unsigned 8 bits, `x` a byte array. Every fault is a `SyntaxError_` (502),
except arguments that are too large.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from broker.errors import PreconditionFailed, SyntaxError_

MAX_DEPTH = 64
"""Maximum nesting of tables and arrays. RabbitMQ has no limit; a thousand levels is an attack."""
ARGUMENTS_MAX = 16 * 1024
"""Maximum octets of a table of arguments. A decoded table takes up to 20 times as many."""

_FIXED = {
    "b": struct.Struct(">b"), "B": struct.Struct(">B"), "s": struct.Struct(">h"), "u": struct.Struct(">H"),
    "I": struct.Struct(">i"), "i": struct.Struct(">I"), "l": struct.Struct(">q"), "L": struct.Struct(">q"),
    "f": struct.Struct(">f"), "d": struct.Struct(">d"), "T": struct.Struct(">Q"), "t": struct.Struct(">?"),
}  # fmt: skip


FIXED_SIZES = {ord(tag): kind.size for tag, kind in _FIXED.items()} | {ord("V"): 0, ord("D"): 5}
"""Octets of a field's value, by its type, for the types whose values all have the same size."""


class Timestamp(int):
    """Seconds since 1970, unsigned 64-bit. Kept as a number, because not every value is a valid date."""


class Float32(float):
    """A 4-byte float, so that it is written back unchanged."""


def read_shortstr(data: bytes, at: int) -> tuple[str, int]:
    """A short string at `at`: (text, next offset)."""
    if at >= len(data):
        raise SyntaxError_("short string past the end of its frame")
    end = at + 1 + data[at]
    if end > len(data):
        raise SyntaxError_("short string past the end of its frame")
    raw = data[at + 1 : end]
    if 0 in raw:
        raise SyntaxError_("NUL in a short string")
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        raise SyntaxError_("short string is not UTF-8") from None


def read_octets(data: bytes, at: int) -> tuple[bytes, int]:
    """A short string at `at`, not decoded: (octets, next offset). Accepts any octets."""
    start = at + 1
    if at >= len(data) or (end := start + data[at]) > len(data):
        raise SyntaxError_("short string past the end of its frame")
    return data[start:end], end


def read_longstr(data: bytes, at: int) -> tuple[bytes, int]:
    """A long string at `at`: (octets, next offset)."""
    start = at + 4
    end = start + int.from_bytes(data[at:start], "big")
    if start > len(data) or end > len(data):
        raise SyntaxError_("long string past the end of its frame")
    return data[start:end], end


def read_table(data: bytes, at: int, depth: int = 0) -> tuple[dict[str, Any], int]:
    """A field table at `at`: (dict, next offset). A duplicate key is refused (bad input 19)."""
    if depth >= MAX_DEPTH:
        raise SyntaxError_(f"field table nested deeper than {MAX_DEPTH}")
    start = at + 4
    end = start + int.from_bytes(data[at:start], "big")
    if start > len(data) or end > len(data):
        raise SyntaxError_("field table longer than its frame")
    table: dict[str, Any] = {}
    at = start
    while at < end:
        key, at = read_shortstr(data, at)
        value, at = read_value(data, at, end, depth)
        if key in table:
            raise SyntaxError_(f"field table has the key {key[:60]!r} twice")
        table[key] = value
    if at != end:
        raise SyntaxError_("field table entry past the end of its table")
    return table, end


def read_arguments(data: bytes, at: int) -> tuple[dict[str, Any], int]:
    """The arguments of a queue, exchange, binding or consumer at `at`: (dict, next offset). Too large a table
    is refused before it is decoded (PreconditionFailed), because arguments live as long as their object."""
    octets = int.from_bytes(data[at : at + 4], "big")
    if ARGUMENTS_MAX < octets <= len(data) - at - 4:
        raise PreconditionFailed(f"arguments of {octets} octets are above the maximum of {ARGUMENTS_MAX}")
    return read_table(data, at)


def _read_array(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth >= MAX_DEPTH:
        raise SyntaxError_(f"field array nested deeper than {MAX_DEPTH}")
    start = at + 4
    end = start + int.from_bytes(data[at:start], "big")
    if start > len(data) or end > len(data):
        raise SyntaxError_("field array longer than its frame")
    items = []
    at = start
    while at < end:
        value, at = read_value(data, at, end, depth)
        items.append(value)
    if at != end:
        raise SyntaxError_("field array entry past the end of its array")
    return items, end


def read_value(data: bytes, at: int, end: int, depth: int = 0) -> tuple[Any, int]:
    """A field, type first, of a table that ends at `end`: (value, next offset)."""
    if at >= end:
        raise SyntaxError_("field without a value")
    tag = chr(data[at])
    at += 1
    fixed = _FIXED.get(tag)
    if fixed is not None:
        if at + fixed.size > end:
            raise SyntaxError_("field value past the end of its table")
        number = fixed.unpack_from(data, at)[0]
        if tag == "T":
            number = Timestamp(number)
        elif tag == "f":
            number = Float32(number)
        return number, at + fixed.size
    match tag:
        case "S":
            raw, at = read_longstr(data, at)
            return text_or_octets(raw), at
        case "F":
            return read_table(data, at, depth + 1)
        case "A":
            return _read_array(data, at, depth + 1)
        case "V":
            return None, at
        case "x":
            return read_longstr(data, at)
        case "D":
            if at + 5 > end:
                raise SyntaxError_("field value past the end of its table")
            return Decimal(int.from_bytes(data[at + 1 : at + 5], "big", signed=True)).scaleb(
                -data[at]
            ), at + 5
        case _:
            raise SyntaxError_(f"unknown field type 0x{ord(tag):02x}")


def text_or_octets(raw: bytes) -> str | bytes:
    """Text if the octets are UTF-8, else octets. The specification says octets; clients use text."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def write_shortstr(text: str) -> bytes:
    """Raises ValueError if it is longer than 255 octets."""
    raw = text.encode()
    if len(raw) > 255:
        raise ValueError("short string longer than 255 octets")
    return bytes((len(raw),)) + raw


def write_octets(raw: bytes) -> bytes:
    """A short string of octets. Raises ValueError if it is longer than 255."""
    if len(raw) > 255:
        raise ValueError("short string longer than 255 octets")
    return bytes((len(raw),)) + raw


def write_longstr(raw: str | bytes) -> bytes:
    octets = raw.encode() if isinstance(raw, str) else raw
    return len(octets).to_bytes(4, "big") + octets


def write_table(table: Mapping[str, Any]) -> bytes:
    """Raises TypeError for a value without a field type."""
    body = b"".join(write_shortstr(key) + _write_value(value) for key, value in table.items())
    return len(body).to_bytes(4, "big") + body


def _write_value(value: Any) -> bytes:
    match value:
        case None:
            return b"V"
        case bool():
            return b"t\x01" if value else b"t\x00"
        case Timestamp():
            return b"T" + value.to_bytes(8, "big")
        case int():
            return (
                b"I" + value.to_bytes(4, "big", signed=True)
                if -(2**31) <= value < 2**31
                else _write_wide(value)
            )
        case Float32():
            return b"f" + struct.pack(">f", value)
        case float():
            return b"d" + struct.pack(">d", value)
        case str():
            return b"S" + write_longstr(value)
        case bytes() | bytearray() | memoryview():
            return b"x" + write_longstr(bytes(value))
        case Decimal():
            return _write_decimal(value)
        case datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return b"T" + int(aware.timestamp()).to_bytes(8, "big")
        case Mapping():
            return b"F" + write_table(value)
        case list() | tuple():
            body = b"".join(_write_value(item) for item in value)
            return b"A" + len(body).to_bytes(4, "big") + body
        case _:
            raise TypeError(f"no AMQP field type for {type(value).__name__}")


def _write_wide(value: int) -> bytes:
    return b"l" + value.to_bytes(8, "big", signed=True)


def _write_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -255 <= exponent <= 0:
        raise TypeError("no AMQP field type for this Decimal")
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    return b"D" + bytes((-exponent,)) + number.to_bytes(4, "big", signed=True)
