"""Binary form of argument tables (of queues, exchanges, bindings), for records and as a canonical key.

Unlike AMQP's field table, it does not depend on the client's integer widths or order of keys, so equal tables
have equal bytes. Used by `record_codec`, by bindings and by fingerprints.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

MAX_DEPTH: Final = 64
_U32 = struct.Struct("<I")
_F64 = struct.Struct("<d")
_NO_ARGUMENTS: Final = b"F" + _U32.pack(0)


class UnsupportedValue(TypeError):
    """A value that no AMQP field table can hold, or that is nested deeper than MAX_DEPTH."""


def encode_value(value: object, depth: int = 0) -> bytes:
    """One tagged value. Raises UnsupportedValue."""
    if depth > MAX_DEPTH:
        raise UnsupportedValue(f"nested deeper than {MAX_DEPTH}")
    if type(value) is dict and not value:
        return _NO_ARGUMENTS  # nearly every queue, exchange and binding
    match value:
        case None:
            return b"V"
        case bool():
            return b"t1" if value else b"t0"
        case int():
            return b"i" + _sized(value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True))
        case float():
            return b"d" + _F64.pack(value)
        case str():
            return b"s" + _sized(value.encode("utf-8", "surrogateescape"))
        case bytes() | bytearray() | memoryview():
            return b"x" + _sized(bytes(value))
        case Decimal():
            return b"D" + _sized(str(value).encode())
        case datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return b"T" + _sized(aware.isoformat().encode())
        case list() | tuple():
            return b"A" + _U32.pack(len(value)) + b"".join([encode_value(v, depth + 1) for v in value])
        case Mapping():
            items = sorted(((str(k), v) for k, v in value.items()), key=lambda item: item[0])
            parts = [encode_value(key) + encode_value(v, depth + 1) for key, v in items]
            return b"F" + _U32.pack(len(parts)) + b"".join(parts)
    raise UnsupportedValue(f"{type(value).__name__} in an argument table")


def _sized(data: bytes) -> bytes:
    return _U32.pack(len(data)) + data


def decode_value(data: bytes | memoryview, at: int = 0, depth: int = 0) -> tuple[object, int]:
    """The value at `at`, and where the next one begins. Raises ValueError or struct.error on damage."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    tag, at = bytes(data[at : at + 1]), at + 1
    match tag:
        case b"V":
            return None, at
        case b"t":
            return bytes(data[at : at + 1]) == b"1", at + 1
        case b"d":
            return _F64.unpack_from(data, at)[0], at + 8
    (size,) = _U32.unpack_from(data, at)
    at += 4
    match tag:
        case b"A":
            items = []
            for _ in range(size):
                item, at = decode_value(data, at, depth + 1)
                items.append(item)
            return items, at
        case b"F":
            table: dict[str, object] = {}
            for _ in range(size):
                key, at = decode_value(data, at, depth + 1)
                table[str(key)], at = decode_value(data, at, depth + 1)
            return table, at
    return _decode_sized(tag, bytes(data[at : at + size]), size), at + size


def _decode_sized(tag: bytes, body: bytes, size: int) -> object:
    if len(body) != size:
        raise ValueError("value is cut short")
    match tag:
        case b"i":
            return int.from_bytes(body, "little", signed=True)
        case b"s":
            return body.decode("utf-8", "surrogateescape")
        case b"x":
            return body
        case b"D":
            return Decimal(body.decode())
        case b"T":
            return datetime.fromisoformat(body.decode())
    raise ValueError(f"unknown value tag {tag!r}")


def canonical(table: Mapping[str, object]) -> bytes:
    """Only equal tables give equal bytes (1 and True differ)."""
    return encode_value(table) if table else b""
