"""Converts messages between AMQP 1.0 and 0-9-1. Pure functions.

A message published over AMQP 1.0 is stored as 0-9-1 content frames on channel 0. No 0-9-1 client can publish
on channel 0, so the channel marks it. Its header frame has the 0-9-1 properties, for everything that reads
properties (routing by headers, expiry, priorities, dead-lettering). Its body frame has the original sections,
except header and delivery-annotations. `as_0_9_1` converts it for a 0-9-1 consumer; `outgoing` converts
messages of both kinds for an AMQP 1.0 consumer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

from broker.amqp091.codec.frames import BODY, OVERHEAD, body_of, frame
from broker.amqp091.codec.properties import PRIORITY, PROPERTIES_AT, Checked, headers_of
from broker.amqp10.from_091 import Pair, Translated, annotation, deaths, translated
from broker.amqp10.head_shape import HeadShapes, Matched
from broker.amqp10.to_091 import AMQP_TYPE, Converted, converted
from broker.model.octets import readable
from understudy.shared.amqp10.decoder import pairs, read_key
from understudy.shared.amqp10.encoder import write, write_binary, write_list, write_map, write_section
from understudy.shared.amqp10.sections import (
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    body_octets,
    is_octets,
    is_plain,
    outline,
    section,
)
from understudy.shared.amqp10.types import DecodeError, UByte, UInt, skip

REPLICATION_ID: Final = "x-replication-id"

_ON_CHANNEL_0: Final = b"\0\0"
_REMEMBERED: Final = 1024
"""Maximum octets of properties for which a result is cached: publishers repeat themselves."""
_LONGEST_TTL: Final = 0xFFFFFFFF

_converted = lru_cache(maxsize=512)(converted)
_translated = lru_cache(maxsize=512)(translated)


class Incoming(NamedTuple):
    """A message received over AMQP 1.0, ready to be published."""

    raw: bytes
    """Content frames on channel 0."""
    kind: Checked
    to: str | None
    subject: str | None
    largest: int
    """Octets of the largest frame in `raw`."""
    user_id: bytes | None
    """Unchanged, whether or not it is text. A publisher may only name itself."""
    as_it_came: int
    """This many octets before the last octet of `raw` are the last octets of the received payload."""


def is_stored(raw: bytes) -> bool:
    """Whether these content frames belong to a message published over AMQP 1.0."""
    return raw[1:3] == _ON_CHANNEL_0


def incoming(payload: bytes, shapes: HeadShapes | None = None) -> Incoming:
    """Convert a transfer's payload to its stored form. Raises DecodeError. `shapes`: of the connection's
    earlier messages."""
    if shapes is not None:
        found = shapes.find(payload)
        if found is not None and is_octets(payload, found.body):
            return _stored_form(payload, found, found.kept, found.body)
    plan = outline(payload)
    head = payload[: plan.body]
    convert = _converted if plan.body <= _REMEMBERED else converted
    made: Converted = convert(head, bool(plan.data))
    if shapes is not None and plan.data:
        shapes.learn(payload, plan.body, made)
    return _stored_form(payload, made, plan.body - len(made.kept), plan.body)


def _stored_form(payload: bytes, made: Converted | Matched, kept: int, body: int) -> Incoming:
    """`kept`: start of the sections that are stored; those before the body end with the head."""
    listed, size = made.properties, len(payload) - kept
    raw = b"\2\0\0%b\0\x3c\0\0%b%b\xce\3\0\0%b%b\xce" % (
        (len(listed) + 12).to_bytes(4, "big"), size.to_bytes(8, "big"), listed, size.to_bytes(4, "big"),
        payload[kept:],
    )  # fmt: skip
    largest = OVERHEAD + max(size, len(listed) + 12)
    return Incoming(raw, made.kind, made.to, made.subject, largest, made.user_id, len(payload) - body)


def as_0_9_1(raw: bytes) -> bytes:
    """Convert stored frames of an AMQP 1.0 message to those of a 0-9-1 message, still on channel 0. Call it
    only once, since the result looks like its input. Keeps later changes of the properties."""
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
    """The payload that an AMQP 1.0 consumer gets, from a message of either kind. `channel`: the envelope's.
    `ttl`: the remaining milliseconds."""
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
            pass  # not made by `incoming`: deliver the octets
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
    """The payload for a message on which `outgoing` fails, so that the message blocks nobody."""
    return _header(persistent, None, None, redelivered) + write_section(DATA, write_binary(body_of(raw)))


def _has_priority(raw: bytes) -> bool:
    """Whether a priority was set. The default is 0 here and 4 in AMQP 1.0."""
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
    """The annotations that tell how a message was routed."""
    told = (("x-exchange", exchange), ("x-routing-key", readable(routing_key)))
    return tuple((key, annotation(key, value)) for key, value in told)


def _has(pairs_: tuple[Pair, ...], key: object) -> bool:
    return any(key == known for known, _ in pairs_)


def _annotated(written: list[bytes], added: tuple[Pair, ...]) -> bytes:
    return write_section(MESSAGE_ANNOTATIONS, write_map([*written, *(pair for _, pair in added)]))


@lru_cache(maxsize=256)
def _added(added: tuple[Pair, ...]) -> bytes:
    """The annotations of a message that has none of its own."""
    return _annotated([], added)


def _stored(raw: bytes, body: bytes, added: tuple[Pair, ...]) -> bytes:
    """The sections of an AMQP 1.0 message with added annotations, which replace those of the same name.
    Raises DecodeError if it is not one."""
    if not is_plain(body):
        outline(body, deep=False)
    if raw.find(b"-death", 0, int.from_bytes(raw[3:7], "big")) >= 0:
        added += deaths(headers_of(raw))
    code, value = section(body, 0, len(body))
    if code != MESSAGE_ANNOTATIONS:
        return _added(added) + body
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
    """The body of a message of type `amqp-1.0`, if it is valid: body sections only, and not data."""
    try:
        plan = outline(body)
    except DecodeError:
        return None
    return None if plan.body else body
