"""A small AMQP 0-9-1 codec of the simulation's own: clients and checkers share no code with the broker.

Covers what the simulated clients say and hear. A method is its name and a dict of arguments; field tables
that come in are kept as raw bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
40 10 exchange.declare    h:r s:exchange s:type b:passive b:durable b:auto_delete b:internal b:nowait t:a
40 11 exchange.declare-ok
40 20 exchange.delete           h:r s:exchange b:if_unused b:nowait
40 21 exchange.delete-ok
40 30 exchange.bind             h:r s:destination s:source s:key b:nowait t:args
40 31 exchange.bind-ok
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


def _read_table() -> dict[str, Spec]:
    specs = {}
    for line in _TABLE.strip().splitlines():
        class_id, method_id, name, *fields = line.split()
        pairs = tuple((f.split(":")[0], f.split(":")[1]) for f in fields)
        specs[name] = Spec((int(class_id), int(method_id)), name, pairs)
    return specs


SPECS = _read_table()
BY_IDS = {spec.ids: spec for spec in SPECS.values()}
_NUMBER = {"o": ">B", "h": ">H", "l": ">I", "q": ">Q"}


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
                out += b"l" + struct.pack(">q", value)
            case str():
                out += b"S" + struct.pack(">I", len(value.encode())) + value.encode()
            case Mapping():
                out += b"F" + table(value)
            case _:
                raise TypeError(f"no field for {value!r}")
    return struct.pack(">I", len(out)) + bytes(out)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, name: str, **arguments: Value) -> bytes:
    """One method frame. Arguments left out are zero or empty."""
    spec = SPECS[name]
    out = bytearray(struct.pack(">HH", *spec.ids))
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
            out += struct.pack(_NUMBER[kind], value or 0)
        elif kind == "t":
            out += table(value if isinstance(value, Mapping) else {})
        else:
            raw = value if isinstance(value, bytes) else str(value or "").encode()
            out += (bytes((len(raw),)) if kind == "s" else struct.pack(">I", len(raw))) + raw
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
) -> bytes:
    """Publish method, header with the delivery mode, and body frames of at most `frame_max` bytes."""
    head = struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2 if persistent else 1)
    out = [
        method(channel, "basic.publish", exchange=exchange, key=key, mandatory=mandatory),
        frame(HEADER, channel, head),
    ]
    room = frame_max - 8
    out += [frame(BODY, channel, body[at : at + room]) for at in range(0, len(body), room)]
    return b"".join(out)


@dataclass(slots=True)
class Method:
    channel: int
    name: str
    arguments: dict[str, int | str | bytes | bool]


@dataclass(slots=True)
class Content:
    """A content header (`size` announced) or, when `body` is set, one body frame."""

    channel: int
    size: int
    body: bytes | None


def _decode(spec: Spec, payload: bytes) -> dict[str, int | str | bytes | bool]:
    values: dict[str, int | str | bytes | bool] = {}
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
            values[field] = struct.unpack_from(_NUMBER[kind], payload, at)[0]
            at += struct.calcsize(_NUMBER[kind])
            continue
        if kind == "s":
            size, at = payload[at], at + 1
        else:
            size, at = struct.unpack_from(">I", payload, at)[0], at + 4
        raw = payload[at : at + size]
        if len(raw) != size:
            raise WireError(f"{spec.name}: {field} runs past the end of its frame")
        values[field] = raw.decode() if kind == "s" else raw
        at += size
    if at + (bit > 0) != len(payload):
        raise WireError(f"{spec.name}: {len(payload) - at} bytes left over")
    return values


class Parser:
    """Cuts a peer's bytes into methods and content. `None` stands for a heartbeat."""

    def __init__(self, *, preamble: bool = False) -> None:
        self._buffer = bytearray()
        self._preamble = preamble

    def feed(self, data: bytes) -> Iterator[Method | Content | None]:
        buffer = self._buffer
        buffer += data
        if self._preamble:
            if len(buffer) < 8:
                return
            del buffer[:8]
            self._preamble = False
        while len(buffer) >= 7:
            kind, channel, size = struct.unpack_from(">BHI", buffer)
            if len(buffer) < size + 8:
                return
            if buffer[size + 7] != 0xCE:
                raise WireError(f"frame of type {kind} does not end with 0xCE")
            payload = bytes(buffer[7 : size + 7])
            del buffer[: size + 8]
            yield _frame(kind, channel, payload)


def _frame(kind: int, channel: int, payload: bytes) -> Method | Content | None:
    match kind:
        case 1:
            ids = struct.unpack_from(">HH", payload)
            spec = BY_IDS.get((ids[0], ids[1]))
            if spec is None:
                return Method(channel, f"{ids[0]}.{ids[1]}", {})
            return Method(channel, spec.name, _decode(spec, payload))
        case 2:
            return Content(channel, struct.unpack_from(">Q", payload, 4)[0], None)
        case 3:
            return Content(channel, 0, payload)
        case 8:
            return None
    raise WireError(f"frame of unknown type {kind}")
