"""Content headers: checked where they enter, read only where something asks. Pure functions.

A message's header goes to consumers as it came, so what is malformed must be refused at the publisher's
connection: it would break others otherwise. Checking is per distinct property list; `publish.py` keeps a
memo.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from broker.amqp091.fields import read_shortstr, read_table, write_longstr, write_shortstr, write_table
from broker.amqp091.frames import HEADER, OVERHEAD, frame
from broker.errors import PreconditionFailed, SyntaxError_

CONTENT_TYPE, CONTENT_ENCODING, HEADERS, DELIVERY_MODE = 1 << 15, 1 << 14, 1 << 13, 1 << 12
PRIORITY, EXPIRATION, TIMESTAMP, USER_ID = 1 << 11, 1 << 8, 1 << 6, 1 << 4
_UNKNOWN = 0b11
"""Bit 0 says that more flags follow, bit 1 is no property: basic has 14, so both are errors (bad input
21)."""

PROPERTIES_AT = 7 + 12
"""Offset of the property flags in a content header frame: head, class, weight, body size."""


@dataclass(slots=True, frozen=True)
class Checked:
    """What the broker itself wants to know of a property list."""

    persistent: bool
    user_id: str | None = None
    expiration: int | None = None
    """Milliseconds."""
    priority: int = 0


TRANSIENT, PERSISTENT = Checked(False), Checked(True)
LONGEST_EXPIRATION = (1 << 32) - 1
"""Milliseconds: some seven weeks, as in RabbitMQ."""

_TEXT, _TABLE, _MODE, _OCTET, _TIME, _USER, _EXPIRATION = range(7)
_KINDS = {
    HEADERS: _TABLE, DELIVERY_MODE: _MODE, PRIORITY: _OCTET, EXPIRATION: _EXPIRATION, TIMESTAMP: _TIME,
    USER_ID: _USER,
}  # fmt: skip


@lru_cache(maxsize=4096)
def _checked(persistent: bool, user_id: str | None, expiration: int | None, priority: int) -> Checked:
    """One object for equal ones, as a rule: they are compared by identity first."""
    return Checked(persistent, user_id, expiration, priority)


@lru_cache(maxsize=4096)
def _expiration(text: str) -> int:
    """Milliseconds. Raises PreconditionFailed, as RabbitMQ does, for anything but a whole number of them."""
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > LONGEST_EXPIRATION:
        raise PreconditionFailed(
            f"invalid expiration '{text[:40]}': not a number of milliseconds from 0 to {LONGEST_EXPIRATION}"
        )
    return int(text)


@lru_cache(maxsize=4096)
def _plan(flags: int) -> tuple[int, ...]:
    """The kinds of the properties that `flags` announces, in order; at most 2^14 different ones exist."""
    if flags & _UNKNOWN:
        raise SyntaxError_("content header with unknown property flags")
    bits = [1 << n for n in range(15, 1, -1)]
    return tuple(_KINDS.get(bit, _TEXT) for bit in bits if flags & bit)


def check(data: bytes) -> Checked:
    """Walk a whole property list (flags first). Raises SyntaxError_ (502) for anything malformed, and
    PreconditionFailed (406) for an expiration that is no number.

    On the publishing path for every message whose properties are not those of the one before it.
    """
    size = len(data)
    if size < 2:
        raise SyntaxError_("content header cut short")
    at, persistent, priority = 2, False, 0
    user_id: str | None = None
    expiration: str | None = None
    ascii_ = data.isascii()
    for kind in _plan(data[0] << 8 | data[1]):
        if at >= size:
            raise SyntaxError_("content header cut short")
        if kind == _TEXT:
            start = at + 1
            at = start + data[at]
            if at > size or not ascii_ or data.find(0, start, at) >= 0:
                _, at = read_shortstr(data, start - 1)
        elif kind == _MODE:
            persistent = data[at] == 2
            at += 1
        elif kind == _TABLE:
            _, at = read_table(data, at)
        elif kind == _USER:
            user_id, at = read_shortstr(data, at)
        elif kind == _EXPIRATION:
            expiration, at = read_shortstr(data, at)
        elif kind == _OCTET:
            priority = data[at]
            at += 1
        else:
            at += 8
    if at != size:
        raise SyntaxError_("content header does not end where its properties do")
    if user_id is not None or expiration is not None or priority:
        limit = None if expiration is None else _expiration(expiration)
        return _checked(persistent, user_id, limit, priority)
    return PERSISTENT if persistent else TRANSIENT


def table_span(raw: bytes) -> tuple[int, int]:
    """Start and end of the headers table in a checked header frame; start == end where it would be."""
    at = PROPERTIES_AT
    flags = raw[at] << 8 | raw[at + 1]
    at += 2
    for bit in (CONTENT_TYPE, CONTENT_ENCODING):
        if flags & bit:
            at += 1 + raw[at]
    if not flags & HEADERS:
        return at, at
    return at, at + 4 + int.from_bytes(raw[at : at + 4], "big")


def headers_of(raw: bytes) -> dict[str, Any]:
    """The headers table of a message's content frames; empty when it has none."""
    start, end = table_span(raw)
    return read_table(raw, start)[0] if end > start else {}


def with_header(raw: bytes, key: str, value: str) -> bytes:
    """The content frames with one more header, replacing one of the same name; body frames as they are."""
    start, end = table_span(raw)
    entry = write_shortstr(key) + b"S" + write_longstr(value)
    table = raw[start + 4 : end]
    if entry[: 1 + len(key)] in table:
        headers = read_table(raw, start)[0]
        headers[key] = value
        new = write_table(headers)
    else:
        new = (len(table) + len(entry)).to_bytes(4, "big") + table + entry
    head_end = int.from_bytes(raw[3:7], "big") + OVERHEAD
    flags = (raw[PROPERTIES_AT] << 8 | raw[PROPERTIES_AT + 1] | HEADERS).to_bytes(2, "big")
    payload = raw[7:PROPERTIES_AT] + flags + raw[PROPERTIES_AT + 2 : start] + new + raw[end : head_end - 1]
    return frame(HEADER, int.from_bytes(raw[1:3], "big"), payload) + raw[head_end:]
