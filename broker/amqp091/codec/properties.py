"""Content headers: checked when they arrive, decoded only where needed. Pure functions.

Consumers get a message's header unchanged. So a malformed header must be refused on the publisher's
connection, or it would break others. A list of the same shape as one that was checked is not checked again
(`property_shape.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from broker.amqp091.codec.fields import (
    read_octets,
    read_shortstr,
    read_table,
    read_value,
    write_longstr,
    write_shortstr,
)
from broker.amqp091.codec.frames import HEADER, OVERHEAD, frame
from broker.errors import PreconditionFailed, SyntaxError_
from broker.model.octets import as_text
from broker.model.queue.arguments import LONGEST, field_type
from broker.model.queue.direct_reply import REPLY_TO

CONTENT_TYPE, CONTENT_ENCODING, HEADERS, DELIVERY_MODE = 1 << 15, 1 << 14, 1 << 13, 1 << 12
PRIORITY, REPLY, EXPIRATION, TIMESTAMP, USER_ID = 1 << 11, 1 << 9, 1 << 8, 1 << 6, 1 << 4
_UNKNOWN = 0b11
"""Bit 0 announces more flags, bit 1 is not a property: basic has 14, so both are errors (bad input 21)."""

PROPERTIES_AT = 7 + 12
"""Offset of the property flags in a content header frame: head, class, weight, body size."""


@dataclass(slots=True, frozen=True)
class Checked:
    """What the broker itself needs from a property list."""

    persistent: bool
    user_id: str | None = None
    expiration: int | None = None
    """Milliseconds."""
    priority: int = 0
    copies: bool = False
    """It has further routing keys, in the headers `CC` or `BCC`."""
    blind: bool = False
    """Some of them are in `BCC`, which no consumer may see."""
    direct_reply: bool = False
    """Replies are to go to the consumer of `REPLY_TO` on the publisher's channel."""


TRANSIENT, PERSISTENT = Checked(False), Checked(True)

_OCTETS, _TABLE, _MODE, _OCTET, _TIME, _USER, _EXPIRATION, _REPLY = range(8)
_KINDS = {
    HEADERS: _TABLE, DELIVERY_MODE: _MODE, PRIORITY: _OCTET, EXPIRATION: _EXPIRATION, TIMESTAMP: _TIME,
    USER_ID: _USER, REPLY: _REPLY,
}  # fmt: skip


DIRECT_REPLY = write_shortstr(REPLY_TO)
"""A property `reply-to` of this name."""

MOST_COPIES = 256
"""Maximum further routing keys of a message: each is looked up for each message."""


@lru_cache(maxsize=4096)
def _checked(
    persistent: bool,
    user_id: str | None,
    expiration: int | None,
    priority: int,
    copies: bool,
    blind: bool,
    direct_reply: bool,
) -> Checked:
    """Usually one object for equal values: they are first compared by identity."""
    return Checked(persistent, user_id, expiration, priority, copies, blind, direct_reply)


def _copies(headers: dict[str, Any]) -> bool:
    """Whether there are further routing keys. Raises PreconditionFailed, as RabbitMQ does, if they are not a
    list."""
    found = 0
    for name in ("CC", "BCC"):
        keys = headers.get(name, [])
        if not isinstance(keys, list):
            what = f'{{unacceptable_type_in_header,"{name}",{field_type(keys)}}}'
            raise PreconditionFailed(f"invalid message: {what}")
        found += len(keys)
    if found > MOST_COPIES:
        raise PreconditionFailed(f"invalid message: more than {MOST_COPIES} routing keys in CC and BCC")
    return True


@lru_cache(maxsize=4096)
def _expiration(text: str) -> int:
    """Milliseconds. Raises PreconditionFailed, as RabbitMQ does, unless it is a whole number of them."""
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or int(text) > LONGEST:
        raise PreconditionFailed(
            f"invalid expiration '{text[:40]}': not a number of milliseconds from 0 to {LONGEST}"
        )
    return int(text)


@lru_cache(maxsize=4096)
def _plan(flags: int) -> tuple[int, ...]:
    """The kinds of the properties that `flags` announces, in order. At most 2^14 different flags exist."""
    if flags & _UNKNOWN:
        raise SyntaxError_("content header with unknown property flags")
    bits = [1 << n for n in range(15, 1, -1)]
    return tuple(_KINDS.get(bit, _OCTETS) for bit in bits if flags & bit)


def check(data: bytes) -> Checked:
    """Check a whole property list (flags first). Raises SyntaxError_ (502) for malformed data, and
    PreconditionFailed (406) for an invalid expiration or routing keys that are not a list.

    Called on the publishing path for every message whose properties differ from those of the previous one.
    """
    size = len(data)
    if size < 2:
        raise SyntaxError_("content header cut short")
    at, persistent, priority, copies, blind, direct_reply = 2, False, 0, False, False, False
    user_id: bytes | None = None
    expiration: bytes | None = None
    for kind in _plan(data[0] << 8 | data[1]):
        if at >= size:
            raise SyntaxError_("content header cut short")
        if kind == _OCTETS:
            at += 1 + data[at]
        elif kind == _MODE:
            persistent = data[at] == 2
            at += 1
        elif kind == _TABLE:
            headers, at = read_table(data, at)
            blind = "BCC" in headers
            copies = (blind or "CC" in headers) and _copies(headers)
        elif kind == _REPLY:
            direct_reply = data.startswith(DIRECT_REPLY, at)
            at += 1 + data[at]
        elif kind == _USER:
            user_id, at = read_octets(data, at)
        elif kind == _EXPIRATION:
            expiration, at = read_octets(data, at)
        elif kind == _OCTET:
            priority = data[at]
            at += 1
        else:
            at += 8
    if at != size:
        raise SyntaxError_("content header does not end where its properties do")
    if user_id is not None or expiration is not None or priority or copies or direct_reply:
        user = None if user_id is None else as_text(user_id)
        limit = None if expiration is None else _expiration(as_text(expiration))
        return _checked(persistent, user, limit, priority, copies, blind, direct_reply)
    return PERSISTENT if persistent else TRANSIENT


def table_span(raw: bytes) -> tuple[int, int]:
    """Start and end of the headers table in a checked header frame. Without a table, both are its place."""
    at = PROPERTIES_AT
    flags = raw[at] << 8 | raw[at + 1]
    at += 2
    for bit in (CONTENT_TYPE, CONTENT_ENCODING):
        if flags & bit:
            at += 1 + raw[at]
    if not flags & HEADERS:
        return at, at
    return at, at + 4 + int.from_bytes(raw[at : at + 4], "big")


def entries_of(raw: bytes, start: int, end: int) -> Iterator[tuple[str, Any, int, int]]:
    """Key, value, start and end of each entry of the table at `start`, which ends at `end`."""
    at = start + 4
    while at < end:
        begin = at
        key, at = read_shortstr(raw, at)
        value, at = read_value(raw, at, end)
        yield key, value, begin, at


def headers_of(raw: bytes) -> dict[str, Any]:
    """The headers table of a message's content frames; empty without one."""
    start, end = table_span(raw)
    return read_table(raw, start)[0] if end > start else {}


def without_bcc(raw: bytes) -> bytes:
    """The content frames without the header `BCC`, whose keys consumers may not see."""
    start, end = table_span(raw)
    kept = [raw[begin:stop] for key, _, begin, stop in entries_of(raw, start, end) if key != "BCC"]
    table = b"".join(kept)
    if len(table) == max(0, end - start - 4):
        return raw
    head_end = int.from_bytes(raw[3:7], "big") + OVERHEAD
    payload = raw[7:start] + len(table).to_bytes(4, "big") + table + raw[end : head_end - 1]
    return frame(HEADER, int.from_bytes(raw[1:3], "big"), payload) + raw[head_end:]


def with_header(raw: bytes, key: str, value: str | int) -> bytes:
    """The content frames with one more header, which replaces one of the same name. Body frames stay
    unchanged."""
    start, end = table_span(raw)
    field = (
        b"S" + write_longstr(value)
        if isinstance(value, str)
        else b"l" + value.to_bytes(8, "big", signed=True)
    )
    entry = write_shortstr(key) + field
    table = raw[start + 4 : end]
    if entry[: 1 + len(key)] in table:
        others = [raw[begin:stop] for name, _, begin, stop in entries_of(raw, start, end) if name != key]
        table = b"".join(others)
    new = (len(table) + len(entry)).to_bytes(4, "big") + table + entry
    head_end = int.from_bytes(raw[3:7], "big") + OVERHEAD
    flags = (raw[PROPERTIES_AT] << 8 | raw[PROPERTIES_AT + 1] | HEADERS).to_bytes(2, "big")
    payload = raw[7:PROPERTIES_AT] + flags + raw[PROPERTIES_AT + 2 : start] + new + raw[end : head_end - 1]
    return frame(HEADER, int.from_bytes(raw[1:3], "big"), payload) + raw[head_end:]
