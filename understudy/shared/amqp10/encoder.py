"""Writes AMQP 1.0's types (part 1 of the specification), each value in its shortest form. Pure functions.

A value that cannot be written raises TypeError (no such type) or ValueError (out of range, nested too deep).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from understudy.shared.amqp10.decoder import MAX_DEPTH
from understudy.shared.amqp10.values import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
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


def write(value: Any, depth: int = 0) -> bytes:
    """The encoded value, with its constructor. `depth`: nesting of the value that contains it."""
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    if isinstance(value, Described):
        inside = _deeper(depth)
        return b"\0" + write(value.descriptor, inside) + write(value.value, inside)
    if isinstance(value, Array):
        return _array(value, depth)
    if isinstance(value, list | tuple):
        inside = _deeper(depth)
        return write_list([write(item, inside) for item in value])
    if isinstance(value, Mapping):
        inside = _deeper(depth)
        return write_map([write(key, inside) + write(item, inside) for key, item in value.items()])
    raise TypeError(f"no AMQP 1.0 type for {type(value).__name__}")


def write_list(items: list[bytes]) -> bytes:
    """A list of encoded items."""
    return _compound(0xC0, len(items), b"".join(items)) if items else b"\x45"


def write_map(entries: Iterable[bytes]) -> bytes:
    """A map of encoded pairs."""
    known = list(entries)
    return _compound(0xC1, 2 * len(known), b"".join(known))


def write_section(code: int, value: bytes) -> bytes:
    """A described type: a numeric descriptor, and an encoded value."""
    return b"\0\x53%c%b" % (code, value)


def write_binary(octets: bytes) -> bytes:
    return _sized(0xA0, octets)


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise ValueError(f"values nested deeper than {MAX_DEPTH}")
    return depth + 1


def _compound(code: int, count: int, body: bytes) -> bytes:
    """A list, map or array: in its short form, or in the long one, whose code is higher by 0x10."""
    size = len(body) + 1
    if size < 256 and count < 256:
        return bytes((code, size, count)) + body
    return b"%c%b%b%b" % (code + 0x10, (size + 3).to_bytes(4, "big"), count.to_bytes(4, "big"), body)


def _sized(code: int, octets: bytes) -> bytes:
    size = len(octets)
    if size < 256:
        return bytes((code, size)) + octets
    return b"%c%b%b" % (code + 0x10, size.to_bytes(4, "big"), octets)


def _array(value: Array, depth: int) -> bytes:
    payload = _PAYLOADS.get(value.constructor[-1])
    inside = _deeper(depth)
    if payload is None:
        items = b"".join(_compound_payload(value.constructor[-1], item, inside) for item in value)
    else:
        items = b"".join(map(payload, value))
    return _compound(0xE0, len(value), value.constructor + items)


def _compound_payload(code: int, value: Any, depth: int) -> bytes:
    """An element of an array of lists, maps or arrays, in the wide or the narrow form, by `code`."""
    whole = write(value, depth)
    base = whole[0] & 0xEF if whole != b"\x45" else 0xC0
    if base != code & 0xEF:
        raise TypeError(f"an array of 0x{code:02x} with an element of another type")
    if whole == b"\x45":
        count, body = 0, b""
    elif whole[0] & 0x10:
        count, body = int.from_bytes(whole[5:9], "big"), whole[9:]
    else:
        count, body = whole[2], whole[3:]
    width = 4 if code & 0x10 else 1
    try:
        return (len(body) + width).to_bytes(width, "big") + count.to_bytes(width, "big") + body
    except OverflowError:
        raise ValueError("an element too large for its array") from None


def _pack(form: str) -> Callable[[Any], bytes]:
    pack = struct.Struct(f">{form}").pack

    def packer(value: Any) -> bytes:
        try:
            return pack(value)
        except (struct.error, OverflowError):
            raise ValueError(f"{value!r} is out of the range of its type") from None

    return packer


def _fixed(code: int, form: str) -> Callable[[Any], bytes]:
    pack, start = _pack(form), bytes((code,))
    return lambda value: start + pack(value)


def _unsigned(small: int, zero: bytes, code: int, form: str) -> Callable[[Any], bytes]:
    wide = _fixed(code, form)

    def writer(value: int) -> bytes:
        if 0 < value < 256:
            return bytes((small, value))
        return wide(value) if value else zero

    return writer


def _signed(small: int, code: int, form: str) -> Callable[[Any], bytes]:
    wide = _fixed(code, form)
    return lambda value: bytes((small, value & 0xFF)) if -128 <= value < 128 else wide(value)


def _opaque(code: int, width: int) -> Callable[[Any], bytes]:
    def writer(value: bytes) -> bytes:
        if len(value) != width:
            raise ValueError(f"{len(value)} octets where {width} belong")
        return bytes((code,)) + value

    return writer


def _char(value: str) -> bytes:
    return b"\x73" + value.encode("utf-32-be")


def _symbol(value: str) -> bytes:
    return _sized(0xA3, value.encode("ascii"))


def _lengthy(encode: Callable[[Any], bytes], width: int) -> Callable[[Any], bytes]:
    def payload(value: Any) -> bytes:
        octets = encode(value)
        try:
            return len(octets).to_bytes(width, "big") + octets
        except OverflowError:
            raise ValueError("an element too large for its array") from None

    return payload


_long = _signed(0x55, 0x81, "q")

_WRITERS: dict[type[Any], Callable[[Any], bytes]] = {
    type(None): lambda _: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    str: lambda value: _sized(0xA1, value.encode()),
    bytes: write_binary,
    Symbol: _symbol,
    int: _long, Long: _long, Int: _signed(0x54, 0x71, "i"),
    UInt: _unsigned(0x52, b"\x43", 0x70, "I"), ULong: _unsigned(0x53, b"\x44", 0x80, "Q"),
    UByte: _fixed(0x50, "B"), Byte: _fixed(0x51, "b"), UShort: _fixed(0x60, "H"), Short: _fixed(0x61, "h"),
    Timestamp: _fixed(0x83, "q"), Float: _fixed(0x72, "f"), float: _fixed(0x82, "d"), Char: _char,
    Uuid: _opaque(0x98, 16), Decimal32: _opaque(0x74, 4), Decimal64: _opaque(0x84, 8),
    Decimal128: _opaque(0x94, 16),
}  # fmt: skip
"""By the exact type: a plain `int` is a long, a plain `float` a double."""


def _utf8(value: str) -> bytes:
    return value.encode()


def _ascii(value: str) -> bytes:
    return value.encode("ascii")


def _nothing(value: Any) -> bytes:
    return b""


_PAYLOADS: dict[int, Callable[[Any], bytes]] = {
    **dict.fromkeys((0x40, 0x41, 0x42, 0x43, 0x44, 0x45), _nothing),
    0x50: _pack("B"), 0x51: _pack("b"), 0x52: _pack("B"), 0x53: _pack("B"), 0x54: _pack("b"),
    0x55: _pack("b"), 0x56: _pack("?"), 0x60: _pack("H"), 0x61: _pack("h"), 0x70: _pack("I"),
    0x71: _pack("i"), 0x72: _pack("f"), 0x80: _pack("Q"), 0x81: _pack("q"), 0x82: _pack("d"),
    0x83: _pack("q"), 0x73: lambda value: value.encode("utf-32-be"), 0x74: bytes, 0x84: bytes, 0x94: bytes,
    0x98: bytes, 0xA0: _lengthy(bytes, 1), 0xB0: _lengthy(bytes, 4), 0xA1: _lengthy(_utf8, 1),
    0xB1: _lengthy(_utf8, 4), 0xA3: _lengthy(_ascii, 1), 0xB3: _lengthy(_ascii, 4),
}  # fmt: skip
"""Encoders for the elements of an array, by format code: only the octets after the constructor."""
