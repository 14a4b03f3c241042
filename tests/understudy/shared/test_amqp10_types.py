"""AMQP 1.0's types: what is written is read again, what is refused, and that no input costs more than its
length. Proton is the second opinion."""

from __future__ import annotations

import sys
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.shared.amqp10 import decoder
from understudy.shared.amqp10.types import (
    MAX_DEPTH,
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
    read,
    skip,
    write,
)


def whole(data: bytes) -> Any:
    """The one value that `data` is, read and skipped."""
    value, end = read(data, 0, len(data))
    assert end == len(data) == skip(data, 0, len(data))
    return value


def fault(data: bytes) -> str:
    """Why it is refused, by both."""
    with pytest.raises(DecodeError) as read_:
        read(data, 0, len(data))
    with pytest.raises(DecodeError) as skipped:
        skip(data, 0, len(data))
    assert str(read_.value) == str(skipped.value)
    assert "\n" not in str(read_.value)
    return str(read_.value)


def typed(value: Any) -> Any:
    """The value with the types of all that is in it, since 1 is True and a symbol a string to Python."""
    if isinstance(value, Described):
        return (Described, typed(value.descriptor), typed(value.value))
    if isinstance(value, list):
        of = value.constructor if isinstance(value, Array) else b""
        return (type(value), of, [typed(item) for item in value])
    if isinstance(value, dict):
        return (dict, [(typed(key), typed(item)) for key, item in value.items()])
    return (Long if type(value) is int else type(value), repr(value))


NAMED: list[tuple[str, Any]] = [
    ("40", None), ("41", True), ("42", False), ("56 01", True), ("56 00", False), ("43", UInt(0)),
    ("44", ULong(0)), ("45", []), ("50 ff", UByte(255)), ("51 80", Byte(-128)), ("52 07", UInt(7)),
    ("53 07", ULong(7)), ("54 ff", Int(-1)), ("55 ff", Long(-1)), ("60 ffff", UShort(65535)),
    ("61 8000", Short(-32768)), ("70 ffffffff", UInt(2**32 - 1)), ("71 80000000", Int(-(2**31))),
    ("72 3fc00000", Float(1.5)), ("73 0001f600", Char("\U0001f600")), ("74 00000001", Decimal32(b"\0\0\0\1")),
    ("80 ffffffffffffffff", ULong(2**64 - 1)), ("81 8000000000000000", Long(-(2**63))),
    ("82 3ff8000000000000", 1.5), ("83 ffffffffffffffff", Timestamp(-1)),
    ("84 0000000000000001", Decimal64(b"\0\0\0\0\0\0\0\1")), ("94" + "01" * 16, Decimal128(b"\1" * 16)),
    ("98" + "02" * 16, Uuid(b"\2" * 16)), ("a0 02 0001", b"\0\1"), ("b0 00000002 0001", b"\0\1"),
    ("a1 02 c3a9", "é"), ("b1 00000002 c3a9", "é"), ("a3 01 61", Symbol("a")),
    ("b3 00000001 61", Symbol("a")),
    ("c0 03 02 4041", [None, True]), ("d0 00000006 00000002 4041", [None, True]), ("c0 01 00", []),
    ("c1 03 02 4140", {True: None}), ("d1 00000006 00000002 4140", {True: None}), ("c1 01 00", {}),
    ("00 53 70 45", Described(ULong(0x70), [])), ("e0 04 02 50 0102", Array(b"\x50", [UByte(1), UByte(2)])),
    ("f0 00000007 00000002 50 0102", Array(b"\x50", [UByte(1), UByte(2)])), ("e0 02 00 a1", Array(b"\xa1")),
    ("e0 07 02 00 53 09 50 0102", Array(b"\0\x53\x09\x50", [UByte(1), UByte(2)])),
    ("e0 02 02 40", Array(b"\x40", [None, None])), ("e0 04 02 56 0100", Array(b"\x56", [True, False])),
    ("e0 07 02 c0 0100 020140", Array(b"\xc0", [[], [None]])),
]  # fmt: skip


@pytest.mark.parametrize(("octets", "value"), NAMED, ids=[octets for octets, _ in NAMED])
def test_each_encoding(octets: str, value: Any) -> None:
    got = whole(bytes.fromhex(octets))
    assert typed(got) == typed(value)
    assert typed(whole(write(got))) == typed(got)


_SIZE = "a size past the end, or too small for its count, at octet 1"
_ENDS = "elements that do not end where their size says at octet"
REFUSED = {
    "nothing": ("", "a value is missing at octet 0"),
    "unknown constructor": ("3f", "unknown constructor 0x3f at octet 0"),
    "unknown constructor inside": ("c0 02 01 ff", "unknown constructor 0xff at octet 3"),
    "number cut short": ("70 0000", "a value is cut short at octet 1"),
    "number past its list": ("c0 03 01 70 00 000000", "a value is cut short at octet 4"),
    "uuid cut short": ("98 0102", "a value is cut short at octet 1"),
    "length cut short": ("b1 0000", "a value is cut short at octet 1"),
    "text cut short": ("a1 05 61", "a value is cut short at octet 1"),
    "boolean cut short": ("56", "a value is cut short at octet 1"),
    "boolean": ("56 02", "a boolean that is neither 0 nor 1 at octet 1"),
    "no UTF-8": ("a1 01 ff", "a string that is not UTF-8 at octet 2"),
    "surrogate in UTF-8": ("a1 03 eda080", "a string that is not UTF-8 at octet 2"),
    "no ASCII": ("a3 02 c3a9", "a symbol that is not ASCII at octet 2"),
    "char beyond Unicode": ("73 00110000", "a char that is no character at octet 1"),
    "surrogate": ("73 0000d800", "a char that is no character at octet 1"),
    "list past the end": ("c0 05 01 40", _SIZE),
    "map past the end": ("d1 000000ff 00000000", _SIZE),
    "size without a count": ("c0 00 00", _SIZE),
    "wide size without a count": (
        "d0 00000003 00000000",
        _SIZE,
    ),
    "count larger than possible": ("d0 00000006 00ffffff 4040", "16777215 elements in 2 octets at octet 1"),
    "list shorter than its size": ("c0 03 01 4040", f"{_ENDS} 4"),
    "odd map": ("c1 04 03 404040", "a map with a key and no value at octet 1"),
    "same key twice": ("c1 05 04 41404140", "a map with the same key twice at octet 5"),
    "same key, written otherwise": ("c1 06 04 520040 4340", "a map with the same key twice at octet 6"),
    "keys of one value": ("c1 07 04 520140 5301 40", "a map with the same key twice at octet 6"),
    "list for a key": ("c1 03 02 4540", "a map with a key that is no simple value at octet 3"),
    "described key": ("c1 05 02 00404140", "a map with a key that is no simple value at octet 3"),
    "array past the end": ("e0 09 01 50 01", _SIZE),
    "array without a constructor": ("e0 01 00", "a value is missing at octet 3"),
    "array of more than fits": ("e0 04 03 50 0102", "3 elements in 2 octets at octet 1"),
    "array of wide values": ("e0 06 02 70 01020304", "2 elements in 4 octets at octet 1"),
    "array with octets left": ("e0 04 01 50 0102", f"{_ENDS} 5"),
    "array of many nulls": ("f0 00000005 00010000 40", "65536 elements in 5 octets at octet 1"),
    "array of many empty lists": ("e0 02 ff 45", "255 elements in 2 octets at octet 1"),
    "array of bad booleans": ("e0 04 02 56 0102", "a boolean that is neither 0 nor 1 at octet 5"),
    "array of bad chars": ("e0 06 01 73 00110000", "a char that is no character at octet 4"),
    "array of bad text": ("e0 04 01 a1 01ff", "a string that is not UTF-8 at octet 5"),
    "described by nothing": ("00", "a value is missing at octet 1"),
    "described nothing": ("00 53 70", "a value is missing at octet 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    octets, why = REFUSED[name]
    assert fault(bytes.fromhex(octets)) == why


def nested(levels: int, *, opening: bytes) -> bytes:
    """As many lists, maps, arrays or described types, one in another."""
    data = b"\x40"
    for _ in range(levels):
        if opening == b"\0":
            data = b"\0\x40" + data
        elif opening == b"\xd1":
            data = b"\xd1" + (6 + len(data) - 1).to_bytes(4, "big") + b"\0\0\0\2\x41" + data
        elif opening == b"\xf0":
            body = b"\0\0\0\1" + data[:1] + data[1:]
            data = b"\xf0" + len(body).to_bytes(4, "big") + body
        else:
            data = b"\xd0" + (4 + len(data)).to_bytes(4, "big") + b"\0\0\0\1" + data
    return data


@pytest.mark.parametrize(
    "opening", [b"\0", b"\xd0", b"\xd1", b"\xf0"], ids=["described", "list", "map", "array"]
)
def test_nesting_ends_somewhere(opening: bytes) -> None:
    whole(nested(MAX_DEPTH, opening=opening))
    assert f"nested deeper than {MAX_DEPTH}" in fault(nested(MAX_DEPTH + 1, opening=opening))
    assert f"nested deeper than {MAX_DEPTH}" in fault(nested(10_000, opening=opening))


def test_a_descriptor_may_not_be_a_way_around_the_depth() -> None:
    assert "nested deeper" in fault(b"\0" * 100_000)
    deep = b"\0\x40" * 50_000 + b"\x40"
    array = b"\xf0" + (4 + len(deep)).to_bytes(4, "big") + b"\0\0\0\0" + deep
    assert "nested deeper" in fault(array)


@pytest.mark.parametrize("octets", [octets for octets, value in NAMED if not isinstance(value, list | dict)])
def test_long_lists_of_each_type(octets: str) -> None:
    one = bytes.fromhex(octets)
    for count in (63, 64, 65, 128, 200):
        for last in (b"", b"\x40", b"\xa1\2ab"):
            body = one * count + last
            elements = count + bool(last)
            got = whole(_wide(0xD0, elements, body))
            assert len(got) == elements and typed(got[0]) == typed(got[count - 1])
    assert fault(_wide(0xD0, 129, one * 128)).startswith(("a value is missing", "129 elements in 128 octets"))
    assert fault(_wide(0xD0, 128, one * 129)).startswith("elements that do not end where")


def test_what_cannot_be_written() -> None:
    for value in (2**63, UByte(256), UInt(-1), ULong(2**64), Timestamp(2**63), Symbol("é"), Uuid(b"1")):
        with pytest.raises(ValueError):
            write(value)
    with pytest.raises(ValueError):
        write(Array(b"\xa1", ["x" * 256]))
    for strange in (object(), Array(b"\xc1", [[]]), Array(b"\xd0", [{}]), Array(b"\x00", [1])):
        with pytest.raises(TypeError):
            write(strange)
    with pytest.raises(ValueError):
        write(Array(b"\xc0", [["x" * 256]]))
    value: Any = None
    for _ in range(MAX_DEPTH + 1):
        value = [value]
    with pytest.raises(ValueError):
        write(value)


@pytest.mark.parametrize("size", [250, 251, 252, 253, 254, 255, 256, 257, 65_536])
def test_around_the_short_forms(size: int) -> None:
    octets, text = b"x" * size, "x" * size
    for value in (octets, text, Symbol(text), [octets], {"k": octets}, [None] * size):
        assert typed(whole(write(value))) == typed(value)
    wide = [octets]
    for many in (
        Array(b"\x52", [UInt(1)] * size),
        Array(b"\xd0", [wide, []]),
        Array(b"\xd1", [{1: wide}, {}]),
    ):
        assert typed(whole(write(many))) == typed(many)


# -- whatever comes

simple = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 255).map(UByte),
    st.integers(-128, 127).map(Byte), st.integers(0, 65535).map(UShort),
    st.integers(-32768, 32767).map(Short),
    st.integers(0, 2**32 - 1).map(UInt), st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(0, 2**64 - 1).map(ULong), st.integers(-(2**63), 2**63 - 1).map(Timestamp), st.floats(),
    st.floats(width=32).map(Float), st.text(max_size=300), st.binary(max_size=300),
    st.text(st.characters(max_codepoint=127), max_size=20).map(Symbol),
    st.characters(codec="utf-8").map(Char),
    st.binary(min_size=16, max_size=16).map(Uuid), st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64), st.binary(min_size=16, max_size=16).map(Decimal128),
)  # fmt: skip
texts = st.text(max_size=10)
values = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.lists(inner, max_size=80),
        st.dictionaries(texts, inner, max_size=5),
        st.builds(Described, st.integers(0, 2**64 - 1).map(ULong), inner),
        st.lists(st.integers(0, 255).map(UByte), max_size=300).map(lambda items: Array(b"\x50", items)),
        st.lists(texts, max_size=9).map(lambda items: Array(b"\xb1", items)),
        st.lists(st.lists(inner, max_size=3), max_size=3).map(lambda items: Array(b"\xd0", items)),
    ),
    max_leaves=30,
)  # fmt: skip


@given(values)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert typed(whole(write(value))) == typed(value)


@given(values, st.data())
def test_what_is_cut_short_or_changed_is_refused_or_another_value(value: Any, data: st.DataObject) -> None:
    octets = bytearray(write(value))
    at = data.draw(st.integers(0, len(octets) - 1))
    cut = bytes(octets[:at])
    fault(cut)
    octets[at] ^= data.draw(st.integers(1, 255))
    same_by_both(bytes(octets))


@given(st.binary(max_size=200))
def test_any_octets_are_a_value_or_refused(data: bytes) -> None:
    same_by_both(data)


constructors = st.sampled_from(sorted(decoder._READERS))


@given(st.lists(st.one_of(constructors.map(lambda code: bytes((code,))), st.binary(max_size=3)), max_size=60))
def test_any_constructors_are_a_value_or_refused(pieces: list[bytes]) -> None:
    same_by_both(b"".join(pieces))


def same_by_both(data: bytes) -> None:
    try:
        value, end = read(data, 0, len(data))
    except DecodeError as error:
        with pytest.raises(DecodeError) as skipped:
            skip(data, 0, len(data))
        assert str(skipped.value) == str(error)
    else:
        assert skip(data, 0, len(data)) == end
        assert nodes(value) <= 4 * len(data) + 1


def nodes(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(nodes(item) + 1 for item in value.values())
    if isinstance(value, list):
        return 1 + sum(map(nodes, value))
    return nodes(value.value) + 1 if isinstance(value, Described) else 1


def calls(data: bytes) -> int:
    """Calls of functions while it is read and skipped, whatever comes out."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    for walk in (read, skip):
        sys.setprofile(count)
        try:
            walk(data, 0, len(data))
        except DecodeError:
            pass
        finally:
            sys.setprofile(None)
    return counted


def _wide(code: int, count: int, body: bytes) -> bytes:
    return b"%c%b%b%b" % (code, (len(body) + 4).to_bytes(4, "big"), count.to_bytes(4, "big"), body)


BOMBS = {
    "nulls": _wide(0xF0, 2**32 - 1, b"\x40"),
    "arrays of nulls": _wide(0xF0, 999, b"\xf0" + b"\0\0\0\5\xff\xff\xff\xff\x40" * 999),
    "arrays of few nulls": _wide(0xF0, 2500, b"\xe0" + b"\2\2\x45" * 2500),
    "a count of all": _wide(0xD0, 2**32 - 1, b"\x40" * 9000),
    "lists of nothing": _wide(0xD0, 9000, b"\x45" * 9000),
    "lists in lists": b"\xc0\xff\xff" * 3000,
    "maps in maps": b"\xc1\xff\xfe" * 3000,
    "arrays in arrays": b"\xf0\0\0\x20\0\0\0\0\1" * 1000,
    "descriptors": b"\0" * 9000,
    "descriptors in lists": _wide(0xD0, 3000, b"\0\x40\x40" * 3000),
    "empty lists in described arrays": _wide(0xF0, 9000, b"\0\x40\x45"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_no_input_costs_more_than_its_length(name: str) -> None:
    data = BOMBS[name]
    assert calls(data) < 12 * len(data) + 500


@given(
    st.lists(st.sampled_from([b"\xd0\0\0\0\x20", b"\xf0\0\0\0\x09", b"\0", b"\xc1", b"\xe0", b"\x45", b"\2"]))
)
def test_nor_do_compounds_of_any_kind(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    assert calls(data) < 12 * len(data) + 500


# -- proton's opinion


def _of_proton(proton: Any, data: Any) -> Any:
    """What proton's decoder is at, in our types."""
    kinds = {
        proton.Data.UBYTE: (data.get_ubyte, UByte), proton.Data.BYTE: (data.get_byte, Byte),
        proton.Data.USHORT: (data.get_ushort, UShort), proton.Data.SHORT: (data.get_short, Short),
        proton.Data.UINT: (data.get_uint, UInt), proton.Data.INT: (data.get_int, Int),
        proton.Data.ULONG: (data.get_ulong, ULong), proton.Data.LONG: (data.get_long, Long),
        proton.Data.TIMESTAMP: (data.get_timestamp, Timestamp), proton.Data.FLOAT: (data.get_float, Float),
        proton.Data.DOUBLE: (data.get_double, float), proton.Data.CHAR: (data.get_char, Char),
        proton.Data.SYMBOL: (data.get_symbol, Symbol), proton.Data.STRING: (data.get_string, str),
        proton.Data.BINARY: (data.get_binary, bytes), proton.Data.BOOL: (data.get_bool, bool),
        proton.Data.UUID: (data.get_uuid, lambda uuid: Uuid(uuid.bytes)),
        proton.Data.NULL: (lambda: None, lambda _: None),
    }  # fmt: skip
    kind = data.type()
    if kind in kinds:
        get, ours = kinds[kind]
        return ours(get())
    if kind not in (proton.Data.LIST, proton.Data.MAP, proton.Data.DESCRIBED):
        raise AssertionError(kind)
    found = []
    data.enter()
    while data.next():
        found.append(_of_proton(proton, data))
    data.exit()
    if kind == proton.Data.LIST:
        return found
    if kind == proton.Data.DESCRIBED:
        return Described(*found)
    return dict(zip(found[::2], found[1::2], strict=True))


known_to_proton = simple.filter(lambda value: not isinstance(value, Decimal32 | Decimal64 | Decimal128))
proton_knows = st.recursive(
    known_to_proton,
    lambda inner: st.one_of(
        st.lists(inner, max_size=8),
        st.dictionaries(texts, inner, max_size=5),
        st.builds(Described, st.integers(0, 2**64 - 1).map(ULong), known_to_proton),
    ),
    max_leaves=15,
)
"""A described type in a described type it writes with a wrong count."""


@given(proton_knows)
def test_proton_reads_what_is_written(value: Any) -> None:
    proton = pytest.importorskip("proton")
    data = proton.Data()
    octets = write(value)
    assert data.decode(octets) == len(octets)
    data.rewind()
    assert data.next()
    assert typed(_of_proton(proton, data)) == typed(value)


@given(proton_knows)
def test_what_proton_writes_is_read(value: Any) -> None:
    proton = pytest.importorskip("proton")
    data = proton.Data()
    data.decode(write(value))
    assert typed(whole(bytes(data.encode()))) == typed(value)


def test_proton_agrees_on_a_uuid() -> None:
    proton = pytest.importorskip("proton")
    data = proton.Data()
    data.put_uuid(UUID(int=7))
    assert whole(bytes(data.encode())) == Uuid(UUID(int=7).bytes)
