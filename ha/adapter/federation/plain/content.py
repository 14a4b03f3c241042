"""Messages on their way from, and to, brokers that know plain AMQP only: the path in their headers. Pure.

RabbitMQ writes into the header `x-received-from` where a message came through: a list of tables, the nearest
broker first. Brokers stop loops by it, and so does this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from broker.amqp091.codec.fields import write_longstr, write_shortstr, write_table
from broker.amqp091.codec.frames import HEADER, OVERHEAD, frame
from broker.amqp091.codec.properties import (
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    PRIORITY,
    PROPERTIES_AT,
    TIMESTAMP,
    USER_ID,
    entries_of,
    table_span,
)
from broker.model.queue.link import RECEIVED_FROM

_KEY = write_shortstr(RECEIVED_FROM)
_SIZES = {DELIVERY_MODE: 1, PRIORITY: 1, TIMESTAMP: 8}
_ARRAY = ord("A")
_LEFT_OUT = frozenset((HEADERS, USER_ID))


class Came(NamedTuple):
    """`hops`: what the header says, the nearest first. `others`: its octets; `rest`: of other headers."""

    hops: list[Any]
    others: bytes
    rest: bytes


def came(raw: bytes) -> Came:
    """Where a message came through. SyntaxError_ if its headers cannot be read."""
    start, end = table_span(raw)
    if end <= start:
        return Came([], b"", b"")
    if raw.find(RECEIVED_FROM.encode(), start, end) < 0:
        return Came([], b"", raw[start + 4 : end])
    hops: list[Any] = []
    others = b""
    rest = []
    for key, value, begin, stop in entries_of(raw, start, end):
        if key != RECEIVED_FROM:
            rest.append(raw[begin:stop])
        elif isinstance(value, list) and raw[begin + len(_KEY)] == _ARRAY:
            hops, others = value, raw[begin + len(_KEY) + 5 : stop]
    return Came(hops, others, b"".join(rest))


def hop(cluster: str, vhost: str, exchange: str, uri: str, *, redelivered: bool = False) -> bytes:
    """An entry of the header, as RabbitMQ writes it."""
    entry = {
        "uri": uri, "exchange": exchange, "redelivered": redelivered, "cluster-name": cluster, "vhost": vhost,
    }  # fmt: skip
    return b"F" + write_table(entry)


def properties_of(raw: bytes) -> bytes:
    """The property list of a message, flags first."""
    return raw[PROPERTIES_AT : int.from_bytes(raw[3:7], "big") + OVERHEAD - 1]


def with_properties(raw: bytes, properties: bytes) -> bytes:
    """The message with that property list."""
    end = int.from_bytes(raw[3:7], "big") + OVERHEAD
    return frame(HEADER, int.from_bytes(raw[1:3], "big"), raw[7:PROPERTIES_AT] + properties) + raw[end:]


def passed_on(raw: bytes, found: Came, hops: Sequence[bytes], *, expiration: int | None = None) -> bytes:
    """The message with these hops in front, the nearest first, and without `user-id`: the user is one of
    another broker. `expiration`: the milliseconds that it has left; None: as it says itself."""
    table = found.rest
    if hops or found.others:
        table += _KEY + b"A" + write_longstr(b"".join(hops) + found.others)
    parts: list[bytes] = []
    flags = 0
    for bit, octets in _properties(raw):
        if bit in _LEFT_OUT:
            continue
        if bit == EXPIRATION and expiration is not None:
            octets = write_shortstr(str(expiration))
        if bit < HEADERS and not flags & HEADERS:
            flags |= HEADERS
            parts.append(write_longstr(table))
        flags |= bit
        parts.append(octets)
    if not flags & HEADERS:
        flags |= HEADERS
        parts.append(write_longstr(table))
    head_end = int.from_bytes(raw[3:7], "big") + OVERHEAD
    payload = raw[7:PROPERTIES_AT] + flags.to_bytes(2, "big") + b"".join(parts)
    return frame(HEADER, int.from_bytes(raw[1:3], "big"), payload) + raw[head_end:]


def _properties(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Flag and octets of each property of a checked message, in order."""
    at = PROPERTIES_AT + 2
    flags = raw[PROPERTIES_AT] << 8 | raw[PROPERTIES_AT + 1]
    bit = 1 << 15
    while bit > 2:
        if flags & bit:
            if bit == HEADERS:
                end = at + 4 + int.from_bytes(raw[at : at + 4], "big")
            else:
                end = at + (_SIZES.get(bit) or 1 + raw[at])
            yield bit, raw[at:end]
            at = end
        bit >>= 1
