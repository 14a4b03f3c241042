"""Dead-lettering: what a message becomes when its queue sends it to a dead-letter exchange. Pure functions.

The serving node calls this for a message that was rejected, has expired, or was pushed out of a full queue.
Names, fields and the cycle rule are RabbitMQ's: https://www.rabbitmq.com/docs/dlx (`mc.erl`,
`rabbit_dead_letter.erl`). The death history is in the message's own header, as in RabbitMQ up to 3.13, so it
survives wherever the message does. A client can forge it. A malformed history, or one above `MOST_DEATHS`
entries or `_MOST_OCTETS`, is dropped or cut. The worst effect is the loss of the forger's own message.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

from broker.amqp091.codec.fields import Timestamp, read_octets, write_longstr, write_shortstr
from broker.amqp091.codec.frames import HEADER, OVERHEAD, frame
from broker.amqp091.codec.properties import (
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    PRIORITY,
    PROPERTIES_AT,
    entries_of,
    table_span,
)  # fmt: skip
from broker.model.octets import as_octets, as_text, key_in_table
from broker.model.queue.removals import Death

MOST_DEATHS = 128
"""Maximum entries of a death history: chains of delay queues need some thirty."""
_MOST_OCTETS = 32 * 1024
_LARGEST_ENTRY = 6 * 1024
_MOST_KEYS = 16
_LARGEST_HEADER = 128 * 1024
"""Maximum octets of a header frame: no client has agreed to more."""
_SMALL = 8 * 1024
"""Octets of a header frame that is too small for a full history."""
_REMEMBERED = 256
"""Cached pieces of headers that messages dying together share; each at most a few KiB."""
_BEFORE_EXPIRATION = (1 << 10, 1 << 9)  # correlation-id, reply-to

_HISTORY = "x-death"
_WHAT = ("reason", "queue", "exchange")
_GONE = frozenset((_HISTORY, *(f"x-last-death-{what}" for what in _WHAT)))
_FIRST = frozenset(f"x-first-death-{what}" for what in _WHAT)
_COPIES, _NONE = frozenset(("CC", "BCC")), frozenset[str]()


class _Record(NamedTuple):
    """An entry of `x-death`."""

    queue: str
    reason: str
    exchange: str
    keys: tuple[str, ...]
    times: int
    seconds: int
    expiration: str | None


@lru_cache(_REMEMBERED)
def _encoded(record: _Record) -> bytes:
    """Cached, because messages that die together have equal records."""
    expiration = record.expiration
    fields = (
        b"" if expiration is None else _text("original-expiration", as_octets(expiration)),
        b"\x05countl" + record.times.to_bytes(8, "big"),
        _text("reason", record.reason),
        _text("queue", record.queue),
        b"\x04timeT" + record.seconds.to_bytes(8, "big"),
        _text("exchange", record.exchange),
        b"\x0crouting-keysA"
        + write_longstr(b"".join([b"S" + write_longstr(as_octets(key)) for key in record.keys])),
    )
    return b"F" + write_longstr(b"".join(fields))


@lru_cache(_REMEMBERED)
def _told(reason: str, queue: str, exchange: str, *, begins: bool) -> bytes:
    """`x-last-death-...` and, for the first death, `x-first-death-...`."""
    return b"".join(
        _text(f"x-{which}-death-{what}", value)
        for which in (("first", "last") if begins else ("last",))
        for what, value in zip(_WHAT, (reason, queue, exchange), strict=True)
    )


def dead_lettered(raw: bytes, death: Death, *, drop_cc: bool) -> bytes:
    """The content frames with their death history, without `expiration`, and with `drop_cc` (the queue sets a
    routing key) without `CC` and `BCC`. Body frames stay unchanged. The history does not mention `BCC`,
    because consumers see it.

    A header that would exceed every peer's frame_max loses its history, and then counts as a cycle.
    """
    start, end = table_span(raw)
    spans = {key: (value, begin, stop) for key, value, begin, stop in entries_of(raw, start, end)}
    begins = not all(key in spans for key in _FIRST)
    gone = (_GONE | _FIRST if begins else _GONE) | (_COPIES if drop_cc else _NONE)
    kept = b"".join([raw[begin:stop] for key, (_, begin, stop) in spans.items() if key not in gone])
    value, expiration_at, expiration_end = _expiration(raw, end)
    copies = spans.get("CC", (None,))[0]
    keys = [death.routing_key, *(_keys(copies) if isinstance(copies, list) else ())]
    records = _with(_records(spans.get(_HISTORY, (None,))[0]), death, tuple(keys[:_MOST_KEYS]), value)
    told = _told(death.reason, death.queue, death.exchange, begins=begins)
    rest = raw[end:expiration_at] + raw[expiration_end : _header_end(raw) - 1]
    flags = ((raw[PROPERTIES_AT] << 8 | raw[PROPERTIES_AT + 1]) | HEADERS) & ~EXPIRATION
    head = raw[7:PROPERTIES_AT] + flags.to_bytes(2, "big") + raw[PROPERTIES_AT + 2 : start]
    history = b"\x07x-deathA" + write_longstr(b"".join(records))
    payload = head + write_longstr(kept + history + told) + rest
    if len(payload) + OVERHEAD > _LARGEST_HEADER:
        payload = head + write_longstr(kept) + rest
    return frame(HEADER, int.from_bytes(raw[1:3], "big"), payload) + raw[_header_end(raw) :]


def cycles(raw: bytes, queues: Sequence[str], reason: str) -> Sequence[str]:
    """The `queues` to which the message, as `dead_lettered` made it for `reason`, may not go.

    RabbitMQ's rule: it died in that queue before and was not rejected since ("messages will be dropped if
    there was no rejection in the entire cycle"). A message whose history is full of automatic deaths, or did
    not fit, also counts as a cycle. Otherwise it would circulate forever.
    """
    if reason == "rejected":
        return ()
    size = _header_end(raw)
    if size < _SMALL:
        queues = [queue for queue in queues if raw.find(queue.encode(), 0, size) >= 0]
        if not queues:
            return ()
    been = _been_in(raw)
    return queues if been is None else [queue for queue in queues if queue in been]


def _been_in(raw: bytes) -> set[str] | None:
    """The queues in which it died since it was last rejected. None: treat as all queues."""
    start, end = table_span(raw)
    history = next((value for key, value, _, _ in entries_of(raw, start, end) if key == _HISTORY), None)
    records = _records(history)
    been: set[str] = set()
    for at, record in enumerate(records):
        if record.reason == "rejected":
            return been
        been.add(record.queue)
        if at + 1 >= MOST_DEATHS:
            return None
    full = sum(len(_encoded(r)) for r in records) > _MOST_OCTETS - _LARGEST_ENTRY
    return None if full or not records else been


def _header_end(raw: bytes) -> int:
    return int.from_bytes(raw[3:7], "big") + OVERHEAD


def _text(key: str, value: str | bytes) -> bytes:
    return write_shortstr(key) + b"S" + write_longstr(value)


def _keys(fields: list[Any]) -> list[str]:
    """The fields that are routing keys."""
    found = map(key_in_table, fields)
    return [key for key in found if key is not None and len(as_octets(key)) <= 255]


def _expiration(raw: bytes, at: int) -> tuple[str | None, int, int]:
    """The `expiration` property, its start and its end. `at`: the end of the headers."""
    flags = raw[PROPERTIES_AT] << 8 | raw[PROPERTIES_AT + 1]
    if not flags & EXPIRATION:
        return None, at, at
    at += bool(flags & DELIVERY_MODE) + bool(flags & PRIORITY)
    for bit in _BEFORE_EXPIRATION:
        if flags & bit:
            at += 1 + raw[at]
    value, end = read_octets(raw, at)
    return as_text(value), at, end


def _records(history: object) -> list[_Record]:
    """The valid entries of `x-death`, newest first; one for each queue and reason."""
    found: dict[tuple[str, str], _Record] = {}
    for item in history[:MOST_DEATHS] if isinstance(history, list) else ():
        record = _record(item) if isinstance(item, dict) else None
        if record is not None:
            found.setdefault((record.queue, record.reason), record)
    return list(found.values())


def _record(item: dict[str, Any]) -> _Record | None:
    """None for an entry that no broker has written."""
    queue, reason, exchange = item.get("queue"), item.get("reason"), item.get("exchange", "")
    count, keys, expiration = item.get("count"), item.get("routing-keys"), item.get("original-expiration")
    seconds = item.get("time")
    if not (_is_name(queue) and _is_name(reason) and _is_name(exchange)):
        return None
    if type(count) is not int or count < 1 or not isinstance(seconds, Timestamp):
        return None
    if not isinstance(keys, list) or len(keys) > _MOST_KEYS or len(known := _keys(keys)) < len(keys):
        return None
    told = expiration if isinstance(expiration, str) and len(expiration) <= 20 else None
    return _Record(queue, reason, exchange, tuple(known), count, seconds, told)


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and len(value.encode()) <= 255


def _with(records: list[_Record], death: Death, keys: tuple[str, ...], expiration: str | None) -> list[bytes]:
    """The encoded history after one more death. Its entry comes first and continues an earlier count."""
    known = (death.queue, death.reason)
    new = _Record(death.queue, death.reason, death.exchange, keys, 1, death.wall_ms // 1000, expiration)
    for record in records:
        if (record.queue, record.reason) == known:
            new = record._replace(times=min(record.times + 1, 2**63 - 1))
    encoded = [_encoded(new)]
    size = len(encoded[0])
    for record in records:
        if (record.queue, record.reason) != known and len(encoded) < MOST_DEATHS:
            one = _encoded(record)
            size += len(one)
            if size > _MOST_OCTETS:
                break
            encoded.append(one)
    return encoded
