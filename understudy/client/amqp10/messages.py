"""Encodes a publisher's arguments into a message, and decodes a message for a consumer.

Role: the kit's side of part 3 of the AMQP 1.0 specification. It uses the broker's own encoder and reader, so
a broker can read every message made here. Pure functions. The body is a data section. Text is UTF-8 and
marked so in `content_encoding`; 0-9-1 clients thus receive it as text, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from understudy.shared.amqp10.encoder import write_binary, write_list, write_map, write_section
from understudy.shared.amqp10.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    Header,
    Properties,
    body_octets,
    outline,
    parse_head,
    section,
)  # fmt: skip
from understudy.shared.amqp10.types import (
    DecodeError,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    Uuid,
    read,
    write,
)

TEXT = "utf-8"
_SYMBOLS = ("content_type", "content_encoding")
_TIMES = ("absolute_expiry_time", "creation_time")
_IDS = ("message_id", "correlation_id")
_NOTHING: Mapping[str, Any] = {}
_REMEMBERED = 1024
"""Largest head, in octets, whose successful check is cached: publishers repeat the same heads."""
_EMPTY = write_section(DATA, write_binary(b""))


class Message(NamedTuple):
    """A decoded message.

    `body`: bytes, or str if the sender named a text encoding as the content encoding; the value of an
    amqp-value section, or the list of an amqp-sequence."""

    body: Any
    header: Header
    properties: Properties
    headers: Mapping[str, Any]
    """The application properties."""
    annotations: Mapping[Any, Any]
    """The message annotations."""


def encoded(
    body: bytes | str,
    *,
    persistent: bool,
    priority: int | None,
    ttl: float | None,
    headers: Mapping[str, Any] | None,
    annotations: Mapping[str, Any] | None,
    properties: dict[str, Any],
) -> bytes:
    """`ttl` in seconds. Raises ValueError or TypeError for a message that no broker could read."""
    if isinstance(body, str):
        body = body.encode()
        properties.setdefault("content_encoding", TEXT)
    try:
        made = _header(persistent, priority, None if ttl is None else round(ttl * 1000))
        if annotations or properties or headers:
            made += _sections(annotations or _NOTHING, properties, headers or _NOTHING)
            (_check_once if len(made) <= _REMEMBERED else _check)(made)
    except (OverflowError, DecodeError) as error:
        raise ValueError(f"cannot be sent: {error}") from None
    return made + write_section(DATA, write_binary(body))


@lru_cache(maxsize=64)
def _header(persistent: bool, priority: int | None, ttl: int | None) -> bytes:
    fields = [persistent, None if priority is None else UByte(priority), None if ttl is None else UInt(ttl)]
    return write_section(HEADER, write_list([write(field) for field in fields]))


def _sections(
    annotations: Mapping[str, Any], properties: dict[str, Any], headers: Mapping[str, Any]
) -> bytes:
    made = b""
    if annotations:
        pairs = [write(Symbol(key)) + write(_plain(value)) for key, value in annotations.items()]
        made += write_section(MESSAGE_ANNOTATIONS, write_map(pairs))
    if properties:
        fields = Properties(**{key: _property(key, value) for key, value in properties.items()})
        made += write_section(PROPERTIES, write_list([write(field) for field in fields]))
    if headers:
        pairs = [write(str(key)) + write(_plain(value)) for key, value in headers.items()]
        made += write_section(APPLICATION_PROPERTIES, write_map(pairs))
    return made


def _property(key: str, value: Any) -> Any:
    if value is None:
        return None
    if key in _SYMBOLS:
        return Symbol(value)
    if key in _TIMES:
        return Timestamp(round(value * 1000))
    if key == "group_sequence":
        return UInt(value)
    if key in _IDS and isinstance(value, int):
        return ULong(value)
    return _plain(value)


def _plain(value: Any) -> Any:
    return Uuid(value.bytes) if isinstance(value, uuid.UUID) else value


def _check(head: bytes) -> None:
    """Check that a broker can read this head. Raises DecodeError.

    A broker rejects an unreadable message without counting it. All later numbers in the ledgers would then be
    wrong."""
    outline(head + _EMPTY)
    parse_head(head)


_check_once = lru_cache(maxsize=512)(_check)


def decoded(payload: bytes) -> Message:
    """Decode a message. Octets that are not a message become its body."""
    try:
        plan = outline(payload)
        head = parse_head(payload[: plan.body])
        encoded_body = payload[plan.body : plan.footer]
        body = body_octets(payload, plan) if plan.kind == DATA else _value(plan.kind, encoded_body)
    except DecodeError:
        return Message(payload, Header(), Properties(), {}, {})
    if isinstance(body, bytes) and plan.kind == DATA and head.properties.content_encoding is not None:
        body = _text(body, head.properties.content_encoding)
    return Message(body, head.header, head.properties, head.application, head.annotations)


def _text(body: bytes, encoding: str) -> bytes | str:
    try:
        return body.decode(encoding)
    except (LookupError, UnicodeError, ValueError):
        return body


def _value(kind: int, body: bytes) -> Any:
    at = 0
    found: list[Any] = []
    while at < len(body):
        _, start = section(body, at, len(body))
        value, at = read(body, start, len(body))
        found += value if kind == SEQUENCE else [value]
    return found if kind == SEQUENCE else found[0]
