"""One value of a message by its name: a header, or else a property. Pure functions."""

from __future__ import annotations

from broker.amqp091.codec.fields import read_octets
from broker.amqp091.codec.properties import (
    DELIVERY_MODE,
    HEADERS,
    PRIORITY,
    PROPERTIES_AT,
    TIMESTAMP,
    headers_of,
    table_span,
)
from broker.model.octets import as_text

_BITS = {
    "content-type": 15, "content-encoding": 14, "correlation-id": 10, "reply-to": 9, "expiration": 8,
    "message-id": 7, "timestamp": 6, "type": 5, "user-id": 4, "app-id": 3, "cluster-id": 2,
}  # fmt: skip
"""The properties that are short strings, besides `timestamp`, and the bits that announce them."""


def value_of(raw: bytes, name: str) -> object:
    """None if the message has neither a header nor a property of that name."""
    flags = raw[PROPERTIES_AT] << 8 | raw[PROPERTIES_AT + 1]
    if flags & HEADERS and name.encode() in raw[: int.from_bytes(raw[3:7], "big") + 7]:
        headers = headers_of(raw)
        if name in headers:
            return headers[name]
    return property_of(raw, name)


def property_of(raw: bytes, name: str) -> str | bytes | None:
    """A property that is a short string, or the eight octets of `timestamp`; None without it."""
    bit = _BITS.get(name)
    if bit is None or not (raw[PROPERTIES_AT] << 8 | raw[PROPERTIES_AT + 1]) & 1 << bit:
        return None
    at = _place(raw, 1 << bit)
    return raw[at : at + 8] if 1 << bit == TIMESTAMP else as_text(read_octets(raw, at)[0])


def _place(raw: bytes, wanted: int) -> int:
    """Where the value of that property begins."""
    flags = raw[PROPERTIES_AT] << 8 | raw[PROPERTIES_AT + 1]
    at = PROPERTIES_AT + 2
    bit = 1 << 15
    while bit > wanted:
        if flags & bit:
            if bit == HEADERS:
                at = table_span(raw)[1]
            elif bit in (DELIVERY_MODE, PRIORITY):
                at += 1
            elif bit == TIMESTAMP:
                at += 8
            else:
                at += 1 + raw[at]
        bit >>= 1
    return at
