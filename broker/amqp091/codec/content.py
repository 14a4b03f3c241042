"""Whole messages for operators: content frames to and from properties and body. Pure functions.

Role: used by management only. Clients' messages keep their octets, and are never decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.amqp091.codec.fields import read_octets, read_table, text_or_octets, write_shortstr, write_table
from broker.amqp091.codec.frames import HEADER, OVERHEAD, body_frames, body_of, frame
from broker.amqp091.codec.properties import PROPERTIES_AT, Checked, check

TEXT, TABLE, OCTET, LONG = "text", "table", "octet", "long"
PROPERTIES = {
    "content_type": TEXT, "content_encoding": TEXT, "headers": TABLE, "delivery_mode": OCTET,
    "priority": OCTET, "correlation_id": TEXT, "reply_to": TEXT, "expiration": TEXT, "message_id": TEXT,
    "timestamp": LONG, "type": TEXT, "user_id": TEXT, "app_id": TEXT, "cluster_id": TEXT,
}  # fmt: skip
"""The properties of class basic, in the order of their flags, from bit 15 down (AMQP 0-9-1, 4.2.6.1)."""
_FIRST_FLAG = 15
_CHANNEL = 1
"""The channel inside the frames. 0 would stand for a message of AMQP 1.0."""


class Content(NamedTuple):
    """A message. `properties`: only those that it has, by their names in `PROPERTIES`. Strings that are not
    UTF-8 are bytes."""

    properties: dict[str, Any]
    body: bytes


class Framed(NamedTuple):
    """A message as the model keeps it. `largest`: octets of its largest frame."""

    raw: bytes
    checked: Checked
    largest: int


def read_content(raw: bytes) -> Content:
    """The message inside checked content frames of AMQP 0-9-1."""
    at = PROPERTIES_AT
    flags = int.from_bytes(raw[at : at + 2], "big")
    at += 2
    found: dict[str, Any] = {}
    for number, (name, kind) in enumerate(PROPERTIES.items()):
        if not flags & 1 << _FIRST_FLAG - number:
            continue
        match kind:
            case "text":
                octets, at = read_octets(raw, at)
                found[name] = text_or_octets(octets)
            case "table":
                found[name], at = read_table(raw, at)
            case _:
                end = at + (1 if kind == OCTET else 8)
                found[name], at = int.from_bytes(raw[at:end], "big"), end
    return Content(found, body_of(raw))


def write_content(properties: Mapping[str, Any], body: bytes, frame_max: int) -> Framed:
    """Content frames of at most `frame_max` octets.

    Raises ValueError for a wrong value, TypeError for a header that no field table holds, and what `check`
    raises.
    """
    flags, parts = 0, []
    for number, (name, kind) in enumerate(PROPERTIES.items()):
        if name in properties:
            flags |= 1 << _FIRST_FLAG - number
            parts.append(_written(name, kind, properties[name]))
    listed = flags.to_bytes(2, "big") + b"".join(parts)
    head = frame(HEADER, _CHANNEL, b"\0\x3c\0\0" + len(body).to_bytes(8, "big") + listed)
    if len(head) > frame_max:
        raise ValueError(f"the properties take {len(head)} octets, and may take {frame_max}")
    largest = max(len(head), min(frame_max, len(body) + OVERHEAD) if body else 0)
    return Framed(head + b"".join(body_frames(_CHANNEL, body, frame_max)), check(listed), largest)


def _written(name: str, kind: str, value: Any) -> bytes:
    if kind == TABLE and isinstance(value, Mapping):
        return write_table(value)
    if kind == TEXT and isinstance(value, str):
        try:
            return write_shortstr(value)
        except ValueError:
            raise ValueError(f"{name} is longer than 255 octets, or not UTF-8") from None
    most = {OCTET: 1, LONG: 8}.get(kind, 0)
    if most and type(value) is int and 0 <= value < 1 << 8 * most:
        return value.to_bytes(most, "big")
    wanted = {TEXT: "a string", TABLE: "an object", OCTET: "a number from 0 to 255"}
    raise ValueError(f"{name} must be {wanted.get(kind, 'a number of seconds since 1970')}")
