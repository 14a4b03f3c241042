"""AMQP 1.0's type system (part 1 of the specification): `read`, `skip`, `extent`, `write`, and the values.

Types that Python does not have are small subclasses (`UInt`, `Symbol`, ...). A plain `int` is a long, a plain
`float` a double, `str` a string, `bytes` a binary; lists and dicts are lists and maps.
"""

from __future__ import annotations

from understudy.shared.amqp10.decoder import MAX_DEPTH, extent, read, skip
from understudy.shared.amqp10.encoder import write
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

__all__ = [
    "MAX_DEPTH", "Array", "Byte", "Char", "Decimal32", "Decimal64", "Decimal128", "DecodeError", "Described",
    "Float", "Int", "Long", "Short", "Symbol", "Timestamp", "UByte", "UInt", "ULong", "UShort", "Uuid",
    "extent", "read", "skip", "write",
]  # fmt: skip
