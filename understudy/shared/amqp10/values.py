"""Values of AMQP 1.0 (part 1 of the specification) for which Python has no type: small subclasses, so that a
value is written back with its own type. Also the error of the decoder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class DecodeError(ValueError):
    """The input is not valid AMQP 1.0. `str()` is one line: the error, and at which octet."""


class UByte(int):
    """0 to 2^8 - 1."""


class UShort(int):
    """0 to 2^16 - 1."""


class UInt(int):
    """0 to 2^32 - 1."""


class ULong(int):
    """0 to 2^64 - 1."""


class Byte(int):
    """-2^7 to 2^7 - 1."""


class Short(int):
    """-2^15 to 2^15 - 1."""


class Int(int):
    """-2^31 to 2^31 - 1."""


class Long(int):
    """-2^63 to 2^63 - 1."""


class Timestamp(int):
    """Milliseconds since 1970, signed, 64 bits."""


class Float(float):
    """Four octets; a plain `float` has eight."""


class Char(str):
    """One character."""


class Symbol(str):
    """A name, in ASCII."""


class Uuid(bytes):
    """16 octets."""


class Decimal32(bytes):
    """Four octets, not interpreted."""


class Decimal64(bytes):
    """Eight octets, not interpreted."""


class Decimal128(bytes):
    """16 octets, not interpreted."""


class Described(NamedTuple):
    """A value with a descriptor of its type."""

    descriptor: Any
    value: Any


class Array(list[Any]):
    """Elements of one type. `constructor`: the octets before the elements. The last one is the format code;
    others before it describe the type. Equal to any list with equal elements."""

    def __init__(self, constructor: bytes, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.constructor = constructor
