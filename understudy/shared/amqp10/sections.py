"""The sections of an AMQP 1.0 message (part 3 of the specification, 3.2): their order, their positions, and
the contents that the broker reads. Pure functions; every error is a `DecodeError`.

`outline` walks over a message, and checks its order and its body without building values. `parse_head` reads
the sections before the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from understudy.shared.amqp10.types import (
    DecodeError,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    Uuid,
    extent,
    read,
    skip,
)

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES = 0x70, 0x71, 0x72, 0x73
APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE, FOOTER = 0x74, 0x75, 0x76, 0x77, 0x78
"""Descriptors of the sections, in the order that a message has."""

_NAMES: Final = {
    HEADER: "header", DELIVERY_ANNOTATIONS: "delivery-annotations", PROPERTIES: "properties",
    MESSAGE_ANNOTATIONS: "message-annotations", APPLICATION_PROPERTIES: "application-properties",
    DATA: "data", SEQUENCE: "amqp-sequence", VALUE: "amqp-value", FOOTER: "footer",
}  # fmt: skip
_SYMBOLS: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_LISTS: Final = frozenset((0x45, 0xC0, 0xD0))
_MAPS: Final = frozenset((0xC1, 0xD1))
_BINARIES: Final = frozenset((0xA0, 0xB0))
_FORMS: Final = {
    HEADER: _LISTS, DELIVERY_ANNOTATIONS: _MAPS, MESSAGE_ANNOTATIONS: _MAPS, PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS, DATA: _BINARIES, SEQUENCE: _LISTS, FOOTER: _MAPS,
}  # fmt: skip
"""Format codes allowed for the value of a section. An amqp-value may have any."""
_DESCRIPTORS: Final = frozenset((0x44, 0x53, 0x80, 0xA3, 0xB3))
"""Format codes allowed for the descriptor of a section: a ulong or a symbol."""

MOST_AROUND: Final = 256 * 1024
"""Maximum octets before the body, and after it, because all of them are read. 0-9-1 allows 128 KiB."""
MOST_LOOKED_AT: Final = 256 * 1024
"""Octets of a body of values up to which each value is checked, which takes 0.4 us an octet at worst. Beyond
that, only the outermost size is checked, because the broker does not read it."""
MOST_PARTS: Final = 4096
"""Maximum sections of a body."""


class Header(NamedTuple):
    """The header (3.2.1): how the message is transported. None or the default for a missing field."""

    durable: bool | None = None
    priority: UByte | None = None
    ttl: UInt | None = None
    """Milliseconds."""
    first_acquirer: bool | None = None
    delivery_count: UInt | None = None


class Properties(NamedTuple):
    """The immutable properties (3.2.4)."""

    message_id: ULong | Uuid | bytes | str | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: ULong | Uuid | bytes | str | None = None
    content_type: Symbol | None = None
    content_encoding: Symbol | None = None
    absolute_expiry_time: Timestamp | None = None
    creation_time: Timestamp | None = None
    group_id: str | None = None
    group_sequence: UInt | None = None
    reply_to_group_id: str | None = None


_SIMPLE: Final = {0xA0: 1, 0xB0: 4, 0xA1: 1, 0xB1: 4}
"""Format codes of binaries and strings, and the octets of their lengths."""
_ID = (ULong, Uuid, bytes, str)
_HEADER_TYPES: Final[tuple[tuple[type[Any], ...], ...]] = ((bool,), (UByte,), (UInt,), (bool,), (UInt,))
_PROPERTY_TYPES: Final[tuple[tuple[type[Any], ...], ...]] = (
    _ID, (bytes,), (str,), (str,), (str,), _ID, (Symbol,), (Symbol,), (Timestamp,), (Timestamp,), (str,),
    (UInt,), (str,),
)  # fmt: skip


class Outline(NamedTuple):
    """The positions of the parts of a message."""

    body: int
    """Start of the body."""
    footer: int
    """Start of the footer, or the end of the message."""
    kind: int
    """`DATA`, `SEQUENCE` or `VALUE`."""
    data: list[tuple[int, int]]
    """Start and end of the octets in each data section, or in an amqp-value that is a binary or a string;
    empty for any other body."""


class Head(NamedTuple):
    """The contents before the body."""

    header: Header
    annotations: dict[Symbol | ULong, Any]
    """The message annotations."""
    properties: Properties
    application: dict[str, Any]
    kept: int
    """Start of the sections that are kept unchanged: those after header and delivery-annotations."""


def body_octets(payload: bytes, plan: Outline) -> bytes:
    """The body as a client of another protocol gets it. A body that is neither octets nor text is its encoded
    section or sections."""
    if not plan.data:
        return payload[plan.body : plan.footer]
    if len(plan.data) == 1:
        start, end = plan.data[0]
        return payload[start:end]
    return b"".join([payload[start:end] for start, end in plan.data])


def is_octets(payload: bytes, at: int) -> bool:
    """Whether the rest of a message from `at` on is a valid body of octets or text: one section data, or one
    short amqp-value, without a footer. False if only `outline` can tell."""
    if not payload.startswith(b"\0\x53", at) or len(payload) - at < 5:
        return False
    code, form = payload[at + 2], payload[at + 3]
    start = at + (8 if form & 0x10 else 5)
    size = payload[at + 4] if start == at + 5 else int.from_bytes(payload[at + 4 : start], "big")
    if start + size != len(payload):
        return False
    if code == DATA:
        return form in _BINARIES
    if code != VALUE or form not in _SIMPLE or size > MOST_LOOKED_AT // 2:
        return False
    if form in _BINARIES:
        return True
    try:
        payload[start:].decode()
    except UnicodeDecodeError:
        return False
    return True


def is_plain(payload: bytes) -> bool:
    """Whether `outline` finds no fault in a message, as far as a quick look can tell: its sections are
    written as usual, and its body is octets or text (see `is_octets`)."""
    at, last, end = 0, HEADER - 1, len(payload)
    while at + 5 < end:
        code, form = payload[at + 2], payload[at + 3]
        if code >= DATA:
            return is_octets(payload, at)
        if payload[at] or payload[at + 1] != 0x53 or code <= last or form not in _FORMS[code]:
            return False
        if form == 0x45:
            at += 4
        else:
            width = 4 if form & 0x10 else 1
            at += 4 + width + int.from_bytes(payload[at + 4 : at + 4 + width], "big")
        if at > MOST_AROUND:
            return False
        last = code
    return False


def outline(payload: bytes, *, deep: bool = True) -> Outline:
    """The positions of the parts. Sections before the body are not checked inside. Raises DecodeError.

    Without `deep`, a body that is not data is not checked inside either, and extends to the end of the
    message, including its footer.
    """
    at, end, last = 0, len(payload), 0
    while True:
        code, value = section(payload, at, end)
        if code >= DATA:
            break
        if code <= last:
            raise _misplaced(code, last, at)
        last, at = code, _stop(payload, code, value, end)
        if at > MOST_AROUND:
            raise DecodeError(f"more than {MOST_AROUND} octets before the body at octet {at}")
    body, data, parts, room = at, [], 0, MOST_LOOKED_AT
    if code == FOOTER:
        raise DecodeError(f"a message without a body at octet {at}")
    kind = code
    while code == kind:
        parts += 1
        if parts > MOST_PARTS:
            raise DecodeError(f"a body of more than {MOST_PARTS} sections at octet {at}")
        if kind == DATA:
            at = _stop(payload, code, value, end)
            data.append((value + (2 if payload[value] == 0xA0 else 5), at))
        elif deep:
            _stop(payload, code, value, end)
            at = extent(payload, value, end)
            room -= at - value
            if room >= 0:
                at = skip(payload, value, at)
            data += _simple(payload, code, value)
        else:
            return Outline(body, end, kind, _simple(payload, code, value))
        if at == end:
            return Outline(body, end, kind, data)
        code, value = section(payload, at, end)
        if code == kind == VALUE:
            break
    if code != FOOTER:
        raise _misplaced(code, kind, at)
    _check_footer(payload, at, value, end)
    return Outline(body, at, kind, data)


def _check_footer(payload: bytes, at: int, value: int, end: int) -> None:
    stop = _stop(payload, FOOTER, value, end)
    if stop != end:
        raise DecodeError(f"octets behind the footer at octet {stop}")
    if end - at > MOST_AROUND:
        raise DecodeError(f"a footer of more than {MOST_AROUND} octets at octet {at}")
    _annotations(payload, FOOTER, value, end)


def _simple(payload: bytes, code: int, at: int) -> list[tuple[int, int]]:
    """Start and end of the octets of an amqp-value that is a binary or a string, as one element."""
    width = _SIMPLE.get(payload[at]) if code == VALUE and at < len(payload) else None
    if width is None:
        return []
    start = at + 1 + width
    return [(start, start + int.from_bytes(payload[at + 1 : start], "big"))]


def parse_head(payload: bytes) -> Head:
    """Read the sections before the body, which `payload` does not include. Raises DecodeError."""
    found: dict[int, Any] = {}
    at, end, kept = 0, len(payload), len(payload)
    while at < end:
        code, value = section(payload, at, end)
        stop = _stop(payload, code, value, end)
        found[code] = _PARSERS[code](payload, code, value, stop)
        if code > DELIVERY_ANNOTATIONS:
            kept = min(kept, at)
        at = stop
    return Head(
        found.get(HEADER, _NO_HEADER), found.get(MESSAGE_ANNOTATIONS, {}),
        found.get(PROPERTIES, _NO_PROPERTIES), found.get(APPLICATION_PROPERTIES, {}), kept,
    )  # fmt: skip


_NO_HEADER, _NO_PROPERTIES = Header(), Properties()


def section(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The descriptor of the section at `at`, and where its value begins. Raises DecodeError."""
    if at >= end:
        raise DecodeError(f"a message without a body at octet {at}")
    if data[at]:
        raise DecodeError(f"a section that is no described type at octet {at}")
    if at + 3 < end and data[at + 1] == 0x53:
        code, value = data[at + 2], at + 3
    elif at + 1 < end and data[at + 1] in _DESCRIPTORS:
        descriptor, value = read(data, at + 1, end)
        code = _SYMBOLS.get(descriptor, 0) if isinstance(descriptor, Symbol) else int(descriptor)
    else:
        code, value = 0, at
    if code not in _NAMES:
        raise DecodeError(f"a section that no message has at octet {at}")
    return code, value


def _stop(data: bytes, code: int, at: int, end: int) -> int:
    """The end of a section whose value is at `at`, going by its size; its start for an amqp-value."""
    if code == VALUE:
        return at
    if at >= end or data[at] not in _FORMS[code]:
        raise DecodeError(f"a section {_NAMES[code]} of another type at octet {at}")
    form = data[at]
    if form == 0x45:
        return at + 1
    width = 4 if form & 0x10 else 1
    stop = at + 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "big")
    if at + 1 + width > end or stop > end:
        raise DecodeError(f"a section {_NAMES[code]} that is cut short at octet {at}")
    return stop


def _misplaced(code: int, last: int, at: int) -> DecodeError:
    if code == last:
        return DecodeError(f"a second section {_NAMES[code]} at octet {at}")
    return DecodeError(f"a section {_NAMES[code]} after {_NAMES[last]} at octet {at}")


def _fields(
    data: bytes, code: int, at: int, stop: int, types: tuple[tuple[type[Any], ...], ...]
) -> list[Any]:
    fields: list[Any] = read(data, at, stop)[0]
    if len(fields) > len(types):
        raise DecodeError(f"a section {_NAMES[code]} with {len(fields)} fields at octet {at}")
    for number, (field, allowed) in enumerate(zip(fields, types, strict=False)):
        if field is not None and type(field) not in allowed:
            raise DecodeError(f"field {number} of {_NAMES[code]} is of another type at octet {at}")
    return fields


def _header(data: bytes, code: int, at: int, stop: int) -> Header:
    return Header(*_fields(data, code, at, stop, _HEADER_TYPES))


def _properties(data: bytes, code: int, at: int, stop: int) -> Properties:
    return Properties(*_fields(data, code, at, stop, _PROPERTY_TYPES))


def _annotations(data: bytes, code: int, at: int, stop: int) -> dict[Symbol | ULong, Any]:
    table: dict[Any, Any] = read(data, at, stop)[0]
    for key in table:
        if type(key) not in (Symbol, ULong):
            raise DecodeError(f"a key of {_NAMES[code]} that is no symbol at octet {at}")
    return table


def _application(data: bytes, code: int, at: int, stop: int) -> dict[str, Any]:
    table: dict[Any, Any] = read(data, at, stop)[0]
    for key, value in table.items():
        if type(key) is not str:
            raise DecodeError(f"a key of {_NAMES[code]} that is no string at octet {at}")
        plain = value
        while isinstance(plain, Described):
            plain = plain.value
        if isinstance(plain, list | dict):
            raise DecodeError(f"a value of {_NAMES[code]} that is not simple at octet {at}")
    return table


_PARSERS: Final[dict[int, Callable[[bytes, int, int, int], Any]]] = {
    HEADER: _header, DELIVERY_ANNOTATIONS: _annotations, MESSAGE_ANNOTATIONS: _annotations,
    PROPERTIES: _properties, APPLICATION_PROPERTIES: _application,
}  # fmt: skip
