"""Messages between AMQP 1.0 and 0-9-1. Pure functions.

A message that was published over AMQP 1.0 is stored as content frames like any other, on channel 0, where no
0-9-1 client can publish: that is the mark. Its header frame has the 0-9-1 properties, so that whatever looks
at properties finds them (routing by headers, expiry, priorities, dead-lettering); its body frame has the
sections as they came, but for header and delivery-annotations. A 0-9-1 consumer gets `as_0_9_1` of it, an
AMQP 1.0 consumer what `outgoing` makes of it or of a message of 0-9-1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

from broker.amqp091.codec.frames import BODY, OVERHEAD, body_of, frame
from broker.amqp091.codec.properties import PRIORITY, PROPERTIES_AT, Checked, headers_of
from broker.amqp10.from_091 import Pair, Translated, annotation, deaths, translated
from broker.amqp10.to_091 import AMQP_TYPE, Converted, converted
from broker.model.octets import readable
from understudy.shared.amqp10.decoder import pairs, read_key
from understudy.shared.amqp10.encoder import write, write_binary, write_list, write_map, write_section
from understudy.shared.amqp10.sections import DATA, HEADER, MESSAGE_ANNOTATIONS, body_octets, outline, section
from understudy.shared.amqp10.types import DecodeError, UByte, UInt, skip

REPLICATION_ID: Final = "x-replication-id"

_ON_CHANNEL_0: Final = b"\0\0"
_REMEMBERED: Final = 1024
"""Octets of properties up to which a result is kept: publishers repeat themselves."""
_LONGEST_TTL: Final = 0xFFFFFFFF

_converted = lru_cache(maxsize=512)(converted)
_translated = lru_cache(maxsize=512)(translated)


class Incoming(NamedTuple):
    """A message as it came over AMQP 1.0, ready to be published."""

    raw: bytes
    """Content frames on channel 0."""
    kind: Checked
    to: str | None
    subject: str | None
    largest: int
    """Octets of the largest frame in `raw`."""
    user_id: bytes | None
    """As it came, whether it is text or not: who publishes may only name himself."""
    as_it_came: int
    """So many octets before the last one of `raw` are the last ones of what came."""


def is_stored(raw: bytes) -> bool:
    """Are these content frames those of a message that was published over AMQP 1.0?"""
    return raw[1:3] == _ON_CHANNEL_0


def incoming(payload: bytes) -> Incoming:
    """What came in a transfer, as it is stored. Raises DecodeError."""
    plan = outline(payload)
    head = payload[: plan.body]
    convert = _converted if plan.body <= _REMEMBERED else converted
    made: Converted = convert(head, bool(plan.data))
    size = len(made.kept) + len(payload) - plan.body
    raw = b"\2\0\0%b\0\x3c\0\0%b%b\xce\3\0\0%b%b%b\xce" % (
        (len(made.properties) + 12).to_bytes(4, "big"), size.to_bytes(8, "big"), made.properties,
        size.to_bytes(4, "big"), made.kept, payload[plan.body :],
    )  # fmt: skip
    largest = OVERHEAD + max(size, len(made.properties) + 12)
    return Incoming(raw, made.kind, made.to, made.subject, largest, made.user_id, len(payload) - plan.body)


def as_0_9_1(raw: bytes) -> bytes:
    """Stored frames of a message of AMQP 1.0 as those of one of 0-9-1, still on channel 0: only once, since
    nothing tells the result from what it was made of. The properties stay what they have become since."""
    stored = body_of(raw)
    try:
        plan = outline(stored, deep=False)
        body = body_octets(stored, plan)
    except DecodeError:
        body = stored
    end = int.from_bytes(raw[3:7], "big") + OVERHEAD
    head = raw[:11] + len(body).to_bytes(8, "big") + raw[PROPERTIES_AT:end]
    return head + frame(BODY, 0, body) if body else head


def outgoing(
    raw: bytes, *, channel: int, persistent: bool, priority: int, ttl: int | None, redelivered: bool,
    exchange: str, routing_key: str, replication_id: str | None,
) -> bytes:  # fmt: skip
    """What an AMQP 1.0 consumer gets in a transfer, of a message of either kind. `channel`: the envelope's;
    `ttl`: the milliseconds that are left."""
    left = None if ttl is None else min(ttl, _LONGEST_TTL)
    header = _header(persistent, priority if _has_priority(raw) else None, left, redelivered)
    added = _route(exchange, routing_key)
    if replication_id is not None:
        added += ((REPLICATION_ID, annotation(REPLICATION_ID, replication_id)),)
    body = body_of(raw)
    if channel == 0:
        try:
            return header + _stored(raw, body, added)
        except DecodeError:
            pass  # not by `incoming`: to be given as octets
    end = int.from_bytes(raw[3:7], "big") + OVERHEAD - 1
    listed = raw[PROPERTIES_AT:end]
    translate = _translated if len(listed) <= _REMEMBERED else translated
    made: Translated = translate(listed)
    annotations = _annotated([written for key, written in made.annotations if not _has(added, key)], added)
    sections = _encoded(body) if made.type == AMQP_TYPE else None
    if sections is None:
        sections = write_section(DATA, write_binary(body))
    return header + annotations + made.sections + sections


def octets_alone(raw: bytes, *, persistent: bool, redelivered: bool) -> bytes:
    """What an AMQP 1.0 consumer gets of a message that `outgoing` fails on, so that it holds up nobody."""
    return _header(persistent, None, None, redelivered) + write_section(DATA, write_binary(body_of(raw)))


def _has_priority(raw: bytes) -> bool:
    """Was it said? Here none is 0, in AMQP 1.0 it is 4."""
    return bool((raw[PROPERTIES_AT] << 8 | raw[PROPERTIES_AT + 1]) & PRIORITY)


@lru_cache(maxsize=1024)
def _header(durable: bool, priority: int | None, ttl: int | None, redelivered: bool) -> bytes:
    fields: list[Any] = [
        durable, None if priority is None else UByte(priority), None if ttl is None else UInt(ttl)
    ]  # fmt: skip
    fields += [None, UInt(1)] if redelivered else [True]
    return write_section(HEADER, write_list([write(field) for field in fields]))


@lru_cache(maxsize=1024)
def _route(exchange: str, routing_key: str) -> tuple[Pair, ...]:
    """The annotations that say how a message was routed."""
    told = (("x-exchange", exchange), ("x-routing-key", readable(routing_key)))
    return tuple((key, annotation(key, value)) for key, value in told)


def _has(pairs_: tuple[Pair, ...], key: object) -> bool:
    return any(key == known for known, _ in pairs_)


def _annotated(written: list[bytes], added: tuple[Pair, ...]) -> bytes:
    return write_section(MESSAGE_ANNOTATIONS, write_map([*written, *(pair for _, pair in added)]))


def _stored(raw: bytes, body: bytes, added: tuple[Pair, ...]) -> bytes:
    """The sections of a message of AMQP 1.0, with more annotations, which replace those of the same name.
    Raises DecodeError for what is none."""
    outline(body, deep=False)
    if raw.find(b"-death", 0, int.from_bytes(raw[3:7], "big")) >= 0:
        added += deaths(headers_of(raw))
    code, value = section(body, 0, len(body))
    if code != MESSAGE_ANNOTATIONS:
        return _annotated([], added) + body
    at, stop, count = pairs(body, value + 1, len(body), 4 if body[value] & 0x10 else 1)
    written = []
    for _ in range(count):
        key, value = read_key(body, at, stop)
        after = skip(body, value, stop)
        if not _has(added, key):
            written.append(body[at:after])
        at = after
    return _annotated(written, added) + body[stop:]


def _encoded(body: bytes) -> bytes | None:
    """A body that says it is AMQP 1.0's, if it is: nothing before it, and not data."""
    try:
        plan = outline(body)
    except DecodeError:
        return None
    return None if plan.body else body
