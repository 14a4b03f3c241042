"""A small AMQP 0-9-1 codec of the simulation's own: clients and checkers share no code with the broker.

Covers what the simulated clients say and hear. A method is its name and a dict of arguments; field tables
that come in are kept as raw bytes. The same bytes are read by several parties and come again in every run, so
methods are remembered in both directions: what `feed` gives is shared, and nobody changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
PREAMBLE = b"AMQP\x00\x00\x09\x01"

# o octet, h short, l long, q longlong, s short string, S long string, t table, b bit (joined in octets)
_TABLE = """
10 10 connection.start          o:major o:minor t:properties S:mechanisms S:locales
10 11 connection.start-ok       t:properties s:mechanism S:response s:locale
10 30 connection.tune           h:channel_max l:frame_max h:heartbeat
10 31 connection.tune-ok        h:channel_max l:frame_max h:heartbeat
10 40 connection.open           s:vhost s:capabilities b:insist
10 41 connection.open-ok        s:known
10 50 connection.close          h:code s:text h:class_id h:method_id
10 51 connection.close-ok
10 60 connection.blocked        s:why
10 61 connection.unblocked
20 10 channel.open              s:reserved
20 11 channel.open-ok           S:reserved
20 40 channel.close             h:code s:text h:class_id h:method_id
20 41 channel.close-ok
40 10 exchange.declare    h:r s:exchange s:type b:passive b:durable b:auto_delete b:internal b:nowait t:args
40 11 exchange.declare-ok
40 20 exchange.delete           h:r s:exchange b:if_unused b:nowait
40 21 exchange.delete-ok
40 30 exchange.bind             h:r s:destination s:source s:key b:nowait t:args
40 31 exchange.bind-ok
40 40 exchange.unbind           h:r s:destination s:source s:key b:nowait t:args
40 51 exchange.unbind-ok
50 10 queue.declare             h:r s:queue b:passive b:durable b:exclusive b:auto_delete b:nowait t:args
50 11 queue.declare-ok          s:queue l:messages l:consumers
50 20 queue.bind                h:r s:queue s:exchange s:key b:nowait t:args
50 21 queue.bind-ok
50 50 queue.unbind              h:r s:queue s:exchange s:key t:args
50 51 queue.unbind-ok
50 30 queue.purge               h:r s:queue b:nowait
50 31 queue.purge-ok            l:messages
50 40 queue.delete              h:r s:queue b:if_unused b:if_empty b:nowait
50 41 queue.delete-ok           l:messages
60 10 basic.qos                 l:size h:count b:shared
60 11 basic.qos-ok
60 20 basic.consume             h:r s:queue s:tag b:no_local b:no_ack b:exclusive b:nowait t:args
60 21 basic.consume-ok          s:tag
60 30 basic.cancel              s:tag b:nowait
60 31 basic.cancel-ok           s:tag
60 40 basic.publish             h:r s:exchange s:key b:mandatory b:immediate
60 50 basic.return              h:code s:text s:exchange s:key
60 60 basic.deliver             s:consumer q:tag b:redelivered s:exchange s:key
60 70 basic.get                 h:r s:queue b:no_ack
60 71 basic.get-ok              q:tag b:redelivered s:exchange s:key l:messages
60 72 basic.get-empty           s:reserved
60 80 basic.ack                 q:tag b:multiple
60 90 basic.reject              q:tag b:requeue
60 120 basic.nack               q:tag b:multiple b:requeue
85 10 confirm.select            b:nowait
85 11 confirm.select-ok
90 10 tx.select
90 11 tx.select-ok
90 20 tx.commit
90 21 tx.commit-ok
90 30 tx.rollback
90 31 tx.rollback-ok
250 10 link.hello               S:json
250 11 link.hello-ok            S:json
250 50 manage                   S:json
250 51 manage-ok                S:json
"""


@dataclass(slots=True, frozen=True)
class Spec:
    ids: tuple[int, int]
    name: str
    fields: tuple[tuple[str, str], ...]

    @property
    def has_table(self) -> bool:
        return any(kind == "t" for kind, _ in self.fields)


def _read_table() -> dict[str, Spec]:
    specs = {}
    for line in _TABLE.strip().splitlines():
        class_id, method_id, name, *fields = line.split()
        pairs = tuple((f.split(":")[0], f.split(":")[1]) for f in fields)
        specs[name] = Spec((int(class_id), int(method_id)), name, pairs)
    return specs


SPECS = _read_table()
BY_IDS = {spec.ids: spec for spec in SPECS.values()}
_TABLED = frozenset(spec.name for spec in SPECS.values() if spec.has_table)
_NUMBER = {"o": Struct(">B"), "h": Struct(">H"), "l": Struct(">I"), "q": Struct(">Q")}
_IDS, _HEAD, _LONG, _LONGLONG, _CONTENT = (Struct(f">{f}") for f in ("HH", "BHI", "I", "Q", "HHQHB"))
_REMEMBERED = 1 << 14
"""Methods kept in each direction; a run has about a thousand different ones."""


class WireError(Exception):
    """Bytes that no AMQP 0-9-1 broker may send."""


Value = int | str | bytes | bool | Mapping[str, object]


def table(values: Mapping[str, object]) -> bytes:
    """A field table of strings, integers, booleans and tables."""
    out = bytearray()
    for name, value in values.items():
        out += bytes((len(name),)) + name.encode()
        match value:
            case bool():
                out += b"t" + bytes((value,))
            case int():
                out += b"l" + value.to_bytes(8, "big", signed=True)
            case str():
                raw = value.encode()
                out += b"S" + _LONG.pack(len(raw)) + raw
            case Mapping():
                out += b"F" + table(value)
            case _:
                raise TypeError(f"no field for {value!r}")
    return _LONG.pack(len(out)) + bytes(out)


def read_table(raw: bytes, at: int) -> dict[str, Any]:
    """The field table whose length is at `at`, of what `x-death` is made of: strings, integers, times, arrays
    and tables."""
    at, end = at + 4, at + 4 + _LONG.unpack_from(raw, at)[0]
    found: dict[str, Any] = {}
    while at < end:
        name = raw[at + 1 : at + 1 + raw[at]].decode()
        found[name], at = _read_field(raw, at + 1 + raw[at])
    return found


def _read_field(raw: bytes, at: int) -> tuple[Any, int]:
    """The value at `at`, its type first, and where the next one begins."""
    kind = raw[at : at + 1]
    if kind in b"lT":
        return int.from_bytes(raw[at + 1 : at + 9], "big", signed=True), at + 9
    start = at + 5
    end = start + _LONG.unpack_from(raw, at + 1)[0]
    if kind == b"S":
        return raw[start:end].decode(), end
    if kind == b"F":
        return read_table(raw, at + 1), end
    if kind != b"A":
        raise WireError(f"no field of type {kind!r} is expected")
    items, at = [], start
    while at < end:
        item, at = _read_field(raw, at)
        items.append(item)
    return items, end


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return b"%b%b\xce" % (_HEAD.pack(kind, channel, len(payload)), payload)


def method(channel: int, name: str, **arguments: Value) -> bytes:
    """One method frame. Arguments left out are zero or empty."""
    if name in _TABLED:
        return _encode(channel, name, arguments)
    return _remembered(channel, name, tuple(arguments.items()))


@lru_cache(_REMEMBERED)
def _remembered(channel: int, name: str, arguments: tuple[tuple[str, Value], ...]) -> bytes:
    return _encode(channel, name, dict(arguments))


def _encode(channel: int, name: str, arguments: dict[str, Value]) -> bytes:
    spec = SPECS[name]
    out = bytearray(_IDS.pack(*spec.ids))
    bits: list[bool] = []
    for kind, field in spec.fields:
        value = arguments.pop(field, None)
        if kind == "b":
            bits.append(bool(value))
            continue
        if bits:
            out.append(sum(1 << i for i, bit in enumerate(bits) if bit))
            bits = []
        if kind in _NUMBER:
            out += _NUMBER[kind].pack(value or 0)
        elif kind == "t":
            out += table(value if isinstance(value, Mapping) else {})
        else:
            raw = value if isinstance(value, bytes) else str(value or "").encode()
            out += (bytes((len(raw),)) if kind == "s" else _LONG.pack(len(raw))) + raw
    if bits:
        out.append(sum(1 << i for i, bit in enumerate(bits) if bit))
    if arguments:
        raise TypeError(f"{name} has no {sorted(arguments)}")
    return frame(METHOD, channel, bytes(out))


def publish(
    channel: int,
    exchange: str,
    key: str,
    body: bytes,
    *,
    persistent: bool,
    frame_max: int,
    mandatory: bool = False,
    expiration: int | None = None,
    priority: int = 0,
    correlation_id: str = "",
    headers: Mapping[str, object] | None = None,
) -> bytes:
    """Publish method, header with the delivery mode (and headers, priority, correlation id, and expiration in
    milliseconds), and body frames of at most `frame_max` bytes."""
    flags = 0x1000 | 0x0800 * (priority > 0) | 0x0100 * (expiration is not None)
    flags |= 0x0400 * (correlation_id != "")
    mode = 2 if persistent else 1
    head = _CONTENT.pack(60, 0, len(body), flags, mode)
    if headers:
        head = _CONTENT.pack(60, 0, len(body), flags | 0x2000, mode)[:-1] + table(headers) + bytes([mode])
    if priority:
        head += bytes([priority])
    if correlation_id:
        head += bytes([len(correlation_id)]) + correlation_id.encode()
    if expiration is not None:
        text = str(expiration).encode()
        head += bytes([len(text)]) + text
    out = [
        method(channel, "basic.publish", exchange=exchange, key=key, mandatory=mandatory),
        frame(HEADER, channel, head),
    ]
    room = frame_max - 8
    out += [frame(BODY, channel, body[at : at + room]) for at in range(0, len(body), room)]
    return b"".join(out)


Arguments = dict[str, Any]


@dataclass(slots=True, frozen=True)
class Method:
    channel: int
    name: str
    arguments: Arguments


class Content(NamedTuple):
    """A content header (`size` announced) or, when `body` is set, one body frame."""

    channel: int
    size: int
    body: bytes | None


Item = Method | Content | None
"""What a frame says; None for a heartbeat."""


def _decode(spec: Spec, payload: bytes) -> Arguments:
    values: Arguments = {}
    at, bit = 4, 0
    for kind, field in spec.fields:
        if kind == "b":
            if bit == 8:
                at, bit = at + 1, 0
            values[field] = bool(payload[at] >> bit & 1)
            bit += 1
            continue
        if bit:
            at, bit = at + 1, 0
        if kind in _NUMBER:
            number = _NUMBER[kind]
            values[field] = number.unpack_from(payload, at)[0]
            at += number.size
            continue
        if kind == "s":
            size, at = payload[at], at + 1
        else:
            size, at = _LONG.unpack_from(payload, at)[0], at + 4
        raw = payload[at : at + size]
        if len(raw) != size:
            raise WireError(f"{spec.name}: {field} runs past the end of its frame")
        values[field] = raw.decode() if kind == "s" else raw
        at += size
    if at + (bit > 0) != len(payload):
        raise WireError(f"{spec.name}: {len(payload) - at} bytes left over")
    return values


class Parser:
    """Cuts a peer's bytes into methods, content and heartbeats."""

    def __init__(self, *, preamble: bool = False) -> None:
        self._rest = b""
        self._preamble = preamble

    def feed(self, data: bytes) -> list[Item]:
        """What is complete with `data`, in order."""
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        if self._preamble and end >= 8:
            at, self._preamble = 8, False
        items: list[Item] = []
        while end - at >= 8 and not self._preamble:
            kind, channel, size = _HEAD.unpack_from(data, at)
            stop = at + 7 + size
            if stop >= end:
                break
            if data[stop] != 0xCE:
                raise WireError(f"frame of type {kind} does not end with 0xCE")
            items.append(_frame(kind, channel, data[at + 7 : stop]))
            at = stop + 1
        self._rest = data[at:] if at else data
        return items


def _frame(kind: int, channel: int, payload: bytes) -> Item:
    if kind == METHOD:
        return _method(channel, payload)
    if kind == BODY:
        return Content(channel, 0, payload)
    if kind == HEADER:
        return Content(channel, _LONGLONG.unpack_from(payload, 4)[0], None)
    if kind == HEARTBEAT:
        return None
    raise WireError(f"frame of unknown type {kind}")


@lru_cache(_REMEMBERED)
def _method(channel: int, payload: bytes) -> Method:
    class_id, method_id = _IDS.unpack_from(payload)
    spec = BY_IDS.get((class_id, method_id))
    if spec is None:
        return Method(channel, f"{class_id}.{method_id}", {})
    return Method(channel, spec.name, _decode(spec, payload))
