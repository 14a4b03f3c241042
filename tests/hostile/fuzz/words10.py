"""Conversations of AMQP 1.0: performatives whose fields are mostly of their types, and messages."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.bad_inputs.test_amqp10 import LOGIN
from understudy.shared.amqp10.encoder import write, write_binary, write_list
from understudy.shared.amqp10.framing import AMQP_HEADER, SASL_HEADER
from understudy.shared.amqp10.types import Symbol, UByte, UInt, ULong, UShort

ADDRESSES = (
    "q",
    "/queues/q",
    "/exchanges/amq.topic/a.b",
    "/exchanges/amq.fanout",
    "/queues/none",
    "/",
    "",
    "/%",
)
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SOURCE, TARGET = 0x28, 0x29
OUTCOMES = (0x23, 0x24, 0x25, 0x26, 0x27)


def conversation(rng: Random) -> list[bytes]:
    """Frames of one connection, login first."""
    frames = [
        SASL_HEADER, LOGIN, AMQP_HEADER,
        _frame(rng, 0, _performative(OPEN, ["fuzz", None, UInt(rng.choice((512, 65536, 2**32 - 1)))])),
        _frame(rng, 0, _performative(BEGIN, [None, UInt(0), UInt(2048), UInt(2048)])),
    ]  # fmt: skip
    for handle in (0, 1):
        frames.append(_frame(rng, 0, _performative(ATTACH, _attach(rng, handle))))
    sent = Sent()
    for _ in range(rng.choice((1, 3, 10, 30))):
        frames.append(_step(rng, sent))
    return frames


@dataclass(slots=True)
class Sent:
    """What a session has sent so far."""

    transfers: int = 0
    deliveries: int = 0


def _step(rng: Random, sent: Sent) -> bytes:
    channel = 0 if rng.random() < 0.97 else rng.choice((1, 65535))
    if rng.random() < 0.05:
        return _frame(rng, channel, b"")
    kind = rng.choice((FLOW, FLOW, TRANSFER, TRANSFER, TRANSFER, TRANSFER, DISPOSITION, DISPOSITION, DETACH))
    if rng.random() < 0.1:
        kind = rng.choice((ATTACH, ATTACH, BEGIN, END, OPEN, CLOSE, rng.randrange(0x40)))
    fields, payload = _fields(rng, kind, sent), b""
    if rng.random() < 0.06 and fields:
        fields[rng.randrange(len(fields))] = _anything(rng)
    if kind == TRANSFER:
        payload = _message(rng)
    return _frame(rng, channel, _performative(kind, fields) + payload)


def _fields(rng: Random, kind: int, sent: Sent) -> list[Any]:
    handle, number = UInt(0 if kind == TRANSFER else rng.choice((0, 1))), UInt(rng.choice((0, 1, 5)))
    if rng.random() < 0.05:
        handle, number = UInt(rng.choice((2, 4095, 2**32 - 1))), UInt(2**32 - 1)
    flag = rng.random() < 0.5
    match kind:
        case 0x12:
            return _attach(rng, rng.choice((0, 1, 2, 4095)))
        case 0x13:
            window = [UInt(0), UInt(2048), UInt(sent.transfers), UInt(2048)]
            return [
                *window,
                handle,
                number,
                UInt(rng.choice((0, 1, 100, 2**31 - 1, 2**32 - 1))),
                None,
                flag,
                flag,
            ]
        case 0x14:
            delivery, more = UInt(sent.deliveries), rng.random() < 0.2
            sent.transfers += 1
            sent.deliveries += not more
            tag = rng.randbytes(rng.choice((1, 4, 32)))
            return [handle, delivery, tag, UInt(0), flag, more]
        case 0x15:
            return [flag, number, UInt(rng.choice((0, 1, 2**31, 2**32 - 1))), True, _outcome(rng)]
        case 0x16:
            return [handle, flag]
        case 0x11:
            return [None, UInt(0), UInt(2048), UInt(2048)]
        case 0x10:
            return ["again"]
    return []


def _attach(rng: Random, handle: int) -> list[Any]:
    """A sender at an even handle, a receiver at an odd one."""
    modes = [UByte(rng.choice((0, 1, 2))), UByte(rng.choice((0, 1)))]
    ends = [_terminus(rng, SOURCE), _terminus(rng, TARGET)]
    return [f"link{handle}", UInt(handle), handle % 2 == 1, *modes, *ends, None, None, UInt(0)]


def _terminus(rng: Random, kind: int) -> Any:
    address = "q" if rng.random() < 0.8 else rng.choice((*ADDRESSES, None))
    made = [address, UInt(rng.choice((0, 1, 2))), Symbol("session-end"), UInt(0)]
    made += [rng.random() < 0.05, {Symbol("lifetime-policy"): None} if rng.random() < 0.05 else None]
    return _Raw(_performative(kind, made))


def _outcome(rng: Random) -> Any:
    return _Raw(_performative(rng.choice(OUTCOMES), []))


class _Raw:
    """Encoded already."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets


def _performative(kind: int, fields: list[Any]) -> bytes:
    items = [field.octets if isinstance(field, _Raw) else write(field) for field in fields]
    return bytes((0, 0x53, kind)) + write_list(items)


def _frame(rng: Random, channel: int, body: bytes) -> bytes:
    offset = 2 if rng.random() < 0.97 else rng.choice((0, 1, 3, 255))
    kind = 0 if rng.random() < 0.97 else rng.choice((1, 2, 255))
    return struct.pack(">IBBH", 8 + len(body), offset, kind, channel) + body


def _message(rng: Random) -> bytes:
    sections = []
    if rng.random() < 0.5:
        sections.append(_performative(0x70, [rng.random() < 0.5, UByte(4), _anything(rng)]))
    if rng.random() < 0.5:
        sections.append(_performative(0x73, [_anything(rng), None, rng.choice(ADDRESSES), "a.b"]))
    if rng.random() < 0.3:
        sections.append(bytes((0, 0x53, 0x74)) + write({"k": _anything(rng)}))
    body = rng.choice((b"\0Su" + write_binary(bytes(rng.choice((0, 3, 3000)))), b"\0Sw" + write("text"), b""))
    return b"".join([*sections, body])


def _anything(rng: Random, depth: int = 0) -> Any:
    return rng.choice((
        lambda: None, lambda: True, lambda: UByte(255), lambda: UShort(65535), lambda: UInt(2**32 - 1),
        lambda: ULong(2**64 - 1), lambda: -1.5, lambda: "text" * 99, lambda: Symbol("s"),
        lambda: rng.randbytes(9), lambda: [_anything(rng, depth + 1)] if depth < 4 else [],
        lambda: {_hashable(rng): _anything(rng, depth + 1)} if depth < 4 else {},
    ))()  # fmt: skip


def _hashable(rng: Random) -> Any:
    return rng.choice((b"binary", "text", Symbol("s"), UInt(7), None, True))
