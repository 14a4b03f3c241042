"""The method table of AMQP 0-9-1, read from `grammar.txt` at import into encoders and decoders.

`decode_arguments` decodes a method frame's payload; `encode_frame` encodes one. Publish, deliver and ack
normally bypass this module: they compare and slice bytes (`publish.py`, `delivery.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from broker.amqp091.codec.fields import (
    read_arguments,
    read_longstr,
    read_octets,
    read_shortstr,
    read_table,
    write_longstr,
    write_octets,
    write_shortstr,
    write_table,
)
from broker.errors import AmqpError, NotImplemented_, SyntaxError_
from broker.model.octets import as_octets, as_text

_INTEGERS = {"octet": 1, "short": 2, "long": 4, "longlong": 8}
_TYPES = {*_INTEGERS, "shortstr", "octets", "longstr", "table", "arguments", "bit"}
_Reader = Callable[[bytes, int], tuple[Any, int]]


@dataclass(slots=True, frozen=True)
class Method:
    """One line of the grammar. `name` is `class.method`, as in the specification."""

    name: str
    class_id: int
    method_id: int
    sender: str
    fields: tuple[tuple[str, str], ...]

    @property
    def from_client(self) -> bool:
        return self.sender != "S"


def parse_grammar(text: str) -> list[Method]:
    """The methods of a grammar. Raises ValueError with the line."""
    methods = []
    class_name, class_id = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] == "class" and len(words) == 3:
            class_name, class_id = words[1], int(words[2])
        elif words[0] == "method" and len(words) >= 4 and words[3] in ("S", "C", "B"):
            fields = tuple(_parse_field(word, number) for word in words[4:])
            methods.append(Method(f"{class_name}.{words[1]}", class_id, int(words[2]), words[3], fields))
        else:
            raise ValueError(f"grammar line {number}: {line.strip()}")
    return methods


def _parse_field(word: str, number: int) -> tuple[str, str]:
    name, _, kind = word.partition(":")
    if kind not in _TYPES:
        raise ValueError(f"grammar line {number}: unknown type {kind!r}")
    return name, kind


METHODS = parse_grammar(files("broker.amqp091.codec").joinpath("grammar.txt").read_text())
BY_NAME = {method.name: method for method in METHODS}
BY_ID = {(method.class_id, method.method_id): method for method in METHODS}
_ARGUMENTS = {method.name: frozenset(field for field, _ in method.fields) for method in METHODS}
_ids = struct.Struct(">HH").unpack_from


def lookup(payload: bytes) -> Method:
    """The method of a method frame's payload. Raises 502 if it is too short, 540 if there is no such
    method."""
    if len(payload) < 4:
        raise SyntaxError_("method frame shorter than its class and method ids")
    class_id, method_id = _ids(payload)
    if class_id == 250:
        return _extension(method_id)
    method = BY_ID.get((class_id, method_id))
    if method is None:
        raise NotImplemented_(f"no method {method_id} in class {class_id}", class_id, method_id)
    return method


@lru_cache(256)
def _extension(method_id: int) -> Method:
    return Method("extension.any", 250, method_id, "B", (("payload", "longstr"),))


def decode_arguments(method: Method, payload: bytes) -> dict[str, Any]:
    """Arguments by name, without the reserved ones. Raises SyntaxError_ (502), or PreconditionFailed (406)
    for too large a table, with the method's ids."""
    arguments: dict[str, Any] = {}
    at, bit = 4, 8
    try:
        for name, kind in method.fields:
            value: Any
            if kind == "bit":
                if bit >= 8:
                    bit, at = 0, at + 1
                    if at > len(payload):
                        raise SyntaxError_("arguments cut short")
                value = bool(payload[at - 1] >> bit & 1)
                bit += 1
            else:
                bit = 8
                value, at = _READERS[kind](payload, at)
            if name != "-":
                arguments[name] = value
        if at != len(payload):
            raise SyntaxError_("octets left over after the arguments")
    except AmqpError as error:
        error.class_id, error.method_id = method.class_id, method.method_id
        raise
    return arguments


def _integer(size: int) -> _Reader:
    def read(payload: bytes, at: int) -> tuple[int, int]:
        end = at + size
        if end > len(payload):
            raise SyntaxError_("arguments cut short")
        return int.from_bytes(payload[at:end], "big"), end

    return read


def _read_key(payload: bytes, at: int) -> tuple[str, int]:
    octets, at = read_octets(payload, at)
    return as_text(octets), at


_READERS: dict[str, _Reader] = {
    **{kind: _integer(size) for kind, size in _INTEGERS.items()},
    "shortstr": read_shortstr, "octets": _read_key, "longstr": read_longstr, "table": read_table,
    "arguments": read_arguments,
}  # fmt: skip


def encode(name: str, **arguments: Any) -> bytes:
    """A method frame's payload. Missing arguments are zero or empty. Raises TypeError for an unknown
    argument."""
    method = BY_NAME[name]
    if not _ARGUMENTS[name].issuperset(arguments):
        unknown = sorted(arguments.keys() - _ARGUMENTS[name])
        raise TypeError(f"{name} has no argument {', '.join(unknown)}")
    parts = [struct.pack(">HH", method.class_id, method.method_id)]
    bits, count = 0, 0
    for field, kind in method.fields:
        value = arguments.get(field)
        if kind == "bit":
            bits |= bool(value) << count % 8
            count += 1
            if count % 8 == 0:
                parts.append(bytes((bits,)))
                bits = 0
            continue
        if count % 8:
            parts.append(bytes((bits,)))
        bits = count = 0
        parts.append(_write(kind, value))
    if count % 8:
        parts.append(bytes((bits,)))
    return b"".join(parts)


def _write(kind: str, value: Any) -> bytes:
    size = _INTEGERS.get(kind)
    if size is not None:
        return int(value or 0).to_bytes(size, "big")
    if kind == "shortstr":
        return write_shortstr(value or "")
    if kind == "octets":
        return write_octets(as_octets(value or ""))
    if kind == "longstr":
        return write_longstr(value or b"")
    return write_table(value or {})


def encode_frame(channel: int, name: str, **arguments: Any) -> bytes:
    """A complete method frame."""
    return _frame(channel, encode(name, **arguments)) if arguments else _bare_frame(channel, name)


@lru_cache(1024)
def _bare_frame(channel: int, name: str) -> bytes:
    """Cached: an -ok without arguments is always the same."""
    return _frame(channel, encode(name))


def _frame(channel: int, payload: bytes) -> bytes:
    return b"\x01%b%b%b\xce" % (channel.to_bytes(2, "big"), len(payload).to_bytes(4, "big"), payload)
