"""Reads AMQP 1.0's types (part 1 of the specification), strictly. Pure functions; every error is a
`DecodeError`.

The length of the input bounds memory and time. `MAX_DEPTH` limits nesting. A list, map or array has at most
as many elements as octets. This also holds for an array whose elements take no octets (null, true, false,
zero, the empty list). The keys of a map are simple values, and differ in value, not only in type.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final

from understudy.shared.amqp10.values import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    DecodeError,
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

MAX_DEPTH: Final = 32
"""Maximum nesting of described types, lists, maps and arrays."""

_Reader = Callable[[bytes, int, int, int], tuple[Any, int]]
"""Reads the octets after a format code: (data, at, end, depth) -> (value, next offset)."""
_Skipper = Callable[[bytes, int, int, int], int]

_READERS: dict[int, _Reader] = {}
_SKIPPERS: dict[int, _Skipper] = {}


def read(data: bytes, at: int, end: int) -> tuple[Any, int]:
    """Read the value at `at` of input that ends at `end`: (value, next offset). Raises DecodeError."""
    return _read(data, at, end, 0)


def skip(data: bytes, at: int, end: int) -> int:
    """The offset after the value at `at`. Checks the value as `read` does, without building it. Raises
    DecodeError."""
    return _skip(data, at, end, 0)


def extent(data: bytes, at: int, end: int) -> int:
    """The same, from the size that the value states, without checking its inside. Raises DecodeError."""
    code = _code(data, at, end)
    while code == 0:
        at = skip(data, at + 1, end)
        code = _code(data, at, end)
    width = _WIDTHS.get(code)
    if width is None:
        return _octets(data, at + 1, end, 4 if code & 0x10 else 1)[1]
    return _fixed(width)(data, at + 1, end, 0)


def _read(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    reader = _READERS.get(data[at]) if at < end else None
    if reader is None:
        raise _no_value(data, at, end)
    return reader(data, at + 1, end, depth)


def _skip(data: bytes, at: int, end: int, depth: int) -> int:
    skipper = _SKIPPERS.get(data[at]) if at < end else None
    if skipper is None:
        raise _no_value(data, at, end)
    return skipper(data, at + 1, end, depth)


def _code(data: bytes, at: int, end: int) -> int:
    if at >= end or data[at] not in _READERS:
        raise _no_value(data, at, end)
    return data[at]


def _no_value(data: bytes, at: int, end: int) -> DecodeError:
    if at >= end:
        return _fault("a value is missing", at)
    return _fault(f"unknown constructor 0x{data[at]:02x}", at)


def _fault(what: str, at: int) -> DecodeError:
    return DecodeError(f"{what} at octet {at}")


def _deeper(depth: int, at: int) -> int:
    if depth >= MAX_DEPTH:
        raise _fault(f"values nested deeper than {MAX_DEPTH}", at)
    return depth + 1


# -- values without octets, and of a fixed number of them

_EMPTY: dict[int, Any] = {0x40: None, 0x41: True, 0x42: False, 0x43: UInt(0), 0x44: ULong(0)}
_LIST0: Final = 0x45

_NUMBERS: dict[int, tuple[str, type[Any]]] = {
    0x50: ("B", UByte), 0x51: ("b", Byte), 0x52: ("B", UInt), 0x53: ("B", ULong), 0x54: ("b", Int),
    0x55: ("b", Long), 0x60: ("H", UShort), 0x61: ("h", Short), 0x70: ("I", UInt), 0x71: ("i", Int),
    0x72: ("f", Float), 0x80: ("Q", ULong), 0x81: ("q", Long), 0x82: ("d", float), 0x83: ("q", Timestamp),
}  # fmt: skip
_OPAQUE: dict[int, tuple[int, type[Any]]] = {
    0x74: (4, Decimal32), 0x84: (8, Decimal64), 0x94: (16, Decimal128), 0x98: (16, Uuid),
}  # fmt: skip
_BOOLEAN: Final = 0x56
_CHAR: Final = 0x73

_WIDTHS = {
    **dict.fromkeys((*_EMPTY, _LIST0), 0),
    **{code: struct.calcsize(f">{form}") for code, (form, _) in _NUMBERS.items()},
    **{code: width for code, (width, _) in _OPAQUE.items()},
    _BOOLEAN: 1, _CHAR: 4,
}  # fmt: skip


def _empty(code: int) -> _Reader:
    value = _EMPTY.get(code)
    if code == _LIST0:
        return lambda data, at, end, depth: ([], at)
    return lambda data, at, end, depth: (value, at)


def _number(form: str, kind: type[Any]) -> _Reader:
    layout = struct.Struct(f">{form}")
    unpack, width = layout.unpack_from, layout.size

    def reader(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        if at + width > end:
            raise _fault("a value is cut short", at)
        return kind(unpack(data, at)[0]), at + width

    return reader


def _opaque(width: int, kind: type[Any]) -> _Reader:
    def reader(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        if at + width > end:
            raise _fault("a value is cut short", at)
        return kind(data[at : at + width]), at + width

    return reader


def _boolean(data: bytes, at: int, end: int, depth: int) -> tuple[bool, int]:
    if at >= end:
        raise _fault("a value is cut short", at)
    if data[at] > 1:
        raise _fault("a boolean that is neither 0 nor 1", at)
    return data[at] == 1, at + 1


def _char(data: bytes, at: int, end: int, depth: int) -> tuple[Char, int]:
    if at + 4 > end:
        raise _fault("a value is cut short", at)
    number = int.from_bytes(data[at : at + 4], "big")
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise _fault("a char that is no character", at)
    return Char(chr(number)), at + 4


def _fixed(width: int) -> _Skipper:
    def skipper(data: bytes, at: int, end: int, depth: int) -> int:
        if at + width > end:
            raise _fault("a value is cut short", at)
        return at + width

    return skipper


# -- octets and text


def _octets(data: bytes, at: int, end: int, width: int) -> tuple[int, int]:
    """Start and end of octets that follow their length."""
    start = at + width
    if start > end:
        raise _fault("a value is cut short", at)
    stop = start + (data[at] if width == 1 else int.from_bytes(data[at:start], "big"))
    if stop > end:
        raise _fault("a value is cut short", at)
    return start, stop


def _binary(width: int) -> _Reader:
    def reader(data: bytes, at: int, end: int, depth: int) -> tuple[bytes, int]:
        start, stop = _octets(data, at, end, width)
        return data[start:stop], stop

    return reader


def _string(width: int) -> _Reader:
    def reader(data: bytes, at: int, end: int, depth: int) -> tuple[str, int]:
        start, stop = _octets(data, at, end, width)
        try:
            return data[start:stop].decode(), stop
        except UnicodeDecodeError:
            raise _fault("a string that is not UTF-8", start) from None

    return reader


def _symbol(width: int) -> _Reader:
    def reader(data: bytes, at: int, end: int, depth: int) -> tuple[Symbol, int]:
        start, stop = _octets(data, at, end, width)
        try:
            return Symbol(data[start:stop].decode("ascii")), stop
        except UnicodeDecodeError:
            raise _fault("a symbol that is not ASCII", start) from None

    return reader


def _skip_binary(width: int) -> _Skipper:
    return lambda data, at, end, depth: _octets(data, at, end, width)[1]


def _by_reading(reader: _Reader) -> _Skipper:
    return lambda data, at, end, depth: reader(data, at, end, depth)[1]


# -- described types, lists, maps, arrays


def _described(data: bytes, at: int, end: int, depth: int) -> tuple[Described, int]:
    depth = _deeper(depth, at)
    descriptor, at = _read(data, at, end, depth)
    value, at = _read(data, at, end, depth)
    return Described(descriptor, value), at


def _skip_described(data: bytes, at: int, end: int, depth: int) -> int:
    depth = _deeper(depth, at)
    return _skip(data, _skip(data, at, end, depth), end, depth)


def compound(data: bytes, at: int, end: int, width: int) -> tuple[int, int, int]:
    """A list, map or array, after its format code: the start of its elements, its end, their number. Each
    element takes at least one octet, except in some arrays."""
    start = at + width + width
    stop = at + width + int.from_bytes(data[at : at + width], "big")
    if start > end or stop > end or stop < start:
        raise _fault("a size past the end, or too small for its count,", at)
    count = int.from_bytes(data[at + width : start], "big")
    if count > stop - start:
        raise _fault(f"{count} elements in {stop - start} octets", at)
    return start, stop, count


def _ends(at: int, stop: int) -> int:
    if at != stop:
        raise _fault("elements that do not end where their size says", at)
    return stop


def _list(width: int) -> _Reader:
    def reader(data: bytes, at: int, end: int, depth: int) -> tuple[list[Any], int]:
        depth = _deeper(depth, at)
        at, stop, count = compound(data, at, end, width)
        items = []
        for _ in range(count):
            item, at = _read(data, at, stop, depth)
            items.append(item)
        return items, _ends(at, stop)

    return reader


_RUN: Final = 64
_fixed_run = re.compile(
    rb"(?:[\x40-\x45]|[\x50-\x55].|\x56[\0\1]|[\x60\x61].{2}|[\x70-\x72\x74].{4}|[\x80-\x84].{8}"
    rb"|[\x94\x98].{16}){%d}" % _RUN,
    re.DOTALL,
).match
"""Matches `_RUN` values of fixed widths, without chars: a long list of numbers is thus checked in C."""


def _skip_list(width: int) -> _Skipper:
    def skipper(data: bytes, at: int, end: int, depth: int) -> int:
        depth = _deeper(depth, at)
        at, stop, count = compound(data, at, end, width)
        while count:
            run = _fixed_run(data, at, stop) if count >= _RUN else None
            step = min(_RUN, count)
            if run is not None:
                at = run.end()
            else:
                for _ in range(step):
                    at = _skip(data, at, stop, depth)
            count -= step
        return _ends(at, stop)

    return skipper


_NO_KEYS: Final = frozenset((0x00, 0x45, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0))


def read_key(data: bytes, at: int, stop: int) -> tuple[Any, int]:
    """A key of a map, and the next offset. Raises DecodeError if the key is not a simple value."""
    code = _code(data, at, stop)
    if code in _NO_KEYS:
        raise _fault("a map with a key that is no simple value", at)
    return _READERS[code](data, at + 1, stop, 0)


def pairs(data: bytes, at: int, end: int, width: int) -> tuple[int, int, int]:
    """Like `compound`, for a map. The number is that of its pairs."""
    start, stop, count = compound(data, at, end, width)
    if count % 2:
        raise _fault("a map with a key and no value", at)
    return start, stop, count // 2


def _map(width: int) -> _Reader:
    def reader(data: bytes, at: int, end: int, depth: int) -> tuple[dict[Any, Any], int]:
        depth = _deeper(depth, at)
        at, stop, count = pairs(data, at, end, width)
        table: dict[Any, Any] = {}
        for _ in range(count):
            begin = at
            key, at = read_key(data, at, stop)
            if key in table:
                raise _fault("a map with the same key twice", begin)
            table[key], at = _read(data, at, stop, depth)
        return table, _ends(at, stop)

    return reader


def _skip_map(width: int) -> _Skipper:
    def skipper(data: bytes, at: int, end: int, depth: int) -> int:
        depth = _deeper(depth, at)
        at, stop, count = pairs(data, at, end, width)
        keys: set[Any] = set()
        for _ in range(count):
            begin = at
            key, at = read_key(data, at, stop)
            if key in keys:
                raise _fault("a map with the same key twice", begin)
            keys.add(key)
            at = _skip(data, at, stop, depth)
        return _ends(at, stop)

    return skipper


def _elements(data: bytes, at: int, end: int, width: int, depth: int) -> tuple[int, int, int, bytes, int]:
    """An array, after its format code: the start of its elements, its end, their number, its constructor, and
    the depth of its elements."""
    begin, stop = at + width + width, at + width + int.from_bytes(data[at : at + width], "big")
    if begin > end or stop > end or stop < begin:
        raise _fault("a size past the end, or too small for its count,", at)
    count = int.from_bytes(data[at + width : begin], "big")
    if count > stop - at - width:
        raise _fault(f"{count} elements in {stop - at - width} octets", at)
    start = begin
    while _code(data, start, stop) == 0:
        depth = _deeper(depth, start)
        start = _skip(data, start + 1, stop, depth)
    start += 1
    if count * _WIDTHS.get(data[start - 1], 1) > stop - start:
        raise _fault(f"{count} elements in {stop - start} octets", at)
    return start, stop, count, data[begin:start], depth


def _array(width: int) -> _Reader:
    def reader(data: bytes, at: int, end: int, depth: int) -> tuple[Array, int]:
        depth = _deeper(depth, at)
        at, stop, count, constructor, depth = _elements(data, at, end, width, depth)
        payload = _READERS[constructor[-1]]
        items = Array(constructor)
        for _ in range(count):
            item, at = payload(data, at, stop, depth)
            items.append(item)
        return items, _ends(at, stop)

    return reader


def _skip_array(width: int) -> _Skipper:
    def skipper(data: bytes, at: int, end: int, depth: int) -> int:
        depth = _deeper(depth, at)
        at, stop, count, constructor, depth = _elements(data, at, end, width, depth)
        code = constructor[-1]
        if code in _WIDTHS and code not in (_BOOLEAN, _CHAR):
            return _ends(at + count * _WIDTHS[code], stop)
        payload = _SKIPPERS[code]
        for _ in range(count):
            at = payload(data, at, stop, depth)
        return _ends(at, stop)

    return skipper


def _fill() -> None:
    """Fill the two tables, by format code."""
    _READERS.update({code: _empty(code) for code in (*_EMPTY, _LIST0)})
    _READERS.update({code: _number(*how) for code, how in _NUMBERS.items()})
    _READERS.update({code: _opaque(*how) for code, how in _OPAQUE.items()})
    _READERS.update({0x00: _described, _BOOLEAN: _boolean, _CHAR: _char})
    _SKIPPERS.update({code: _fixed(width) for code, width in _WIDTHS.items()})
    _SKIPPERS.update({0x00: _skip_described, _BOOLEAN: _by_reading(_boolean), _CHAR: _by_reading(_char)})
    for width, low in ((1, 0), (4, 0x10)):
        _READERS.update({0xA0 + low: _binary(width), 0xA1 + low: _string(width), 0xA3 + low: _symbol(width)})
        _READERS.update({0xC0 + low: _list(width), 0xC1 + low: _map(width), 0xE0 + low: _array(width)})
        _SKIPPERS.update({0xA0 + low: _skip_binary(width), 0xE0 + low: _skip_array(width)})
        _SKIPPERS.update({0xC0 + low: _skip_list(width), 0xC1 + low: _skip_map(width)})
        for code in (0xA1 + low, 0xA3 + low):
            _SKIPPERS[code] = _by_reading(_READERS[code])


_fill()
