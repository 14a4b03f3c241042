"""A cursor over the body of one history record, and helpers for encoding. Little-endian."""

from __future__ import annotations

import struct
import sys
from array import array

from broker.model.history.value_codec import decode_value
from broker.model.octets import as_octets

U16 = struct.Struct("<H")
_SWAP = sys.byteorder == "big"


class CorruptRecord(ValueError):
    """Bytes that are not a complete record."""


class Reader:
    """A cursor over one record's body. Raises CorruptRecord at its end."""

    __slots__ = ("at", "data")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> memoryview:
        part = self.data[self.at : self.at + count]
        if len(part) != count:
            raise CorruptRecord("record is cut short")
        self.at += count
        return part

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))

    def text(self) -> str:
        return str(self.take(self.unpack(U16)[0]), "utf-8", "surrogateescape")

    def table(self) -> dict[str, object]:
        value, self.at = decode_value(self.data, self.at)
        if not isinstance(value, dict):
            raise CorruptRecord("argument table expected")
        return value

    def numbers(self, code: str, count: int) -> list[int]:
        found = array(code)
        found.frombytes(self.take(count * found.itemsize))
        if _SWAP:
            found.byteswap()
        return found.tolist()


def text_bytes(value: str) -> bytes:
    data = as_octets(value)
    return U16.pack(len(data)) + data


def number_bytes(code: str, values: list[int]) -> bytes:
    made = array(code, values)
    if _SWAP:
        made.byteswap()
    return made.tobytes()
