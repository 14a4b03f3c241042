"""Clients of AMQP 1.0 with a login, that want all of the broker for themselves."""

from __future__ import annotations

import socket
import struct

from bench.hostile.target import Target
from bench.wire import Wire, publish_frames

_LINKS = 2000
"""Less than 128 KiB."""
_MESSAGES, _UNSETTLED = 20_000, 5_000
_QUEUE = "hoard"
_BEGIN, _ATTACH, _FLOW, _TRANSFER, _DISPOSITION, _DETACH = 0x11, 0x12, 0x13, 0x14, 0x15, 0x16
_NULL, _ZERO, _TRUE, _FALSE = b"\x40", b"\x43", b"\x41", b"\x42"
_RELEASED = b"\0\x53\x26\x45"


def links(target: Target) -> None:
    """Attaches and detaches by the thousand in one go, and again once all are answered."""
    with _opened(target) as client:
        attach = _frame(_ATTACH, _string("l"), _ZERO, _FALSE, _NULL, _NULL, _NULL, _NULL, _NULL, _NULL, _ZERO)
        strike = (attach + _frame(_DETACH, _ZERO, _TRUE)) * _LINKS
        while True:
            client.sendall(strike)
            _wait(client, _DETACH, _LINKS)
            target.count.value += _LINKS


def hoard(target: Target) -> None:
    """Credit without end; all that has come is released by one disposition, and comes again."""
    wire = Wire.open(target.host, target.port, user=target.user, password=target.user)
    wire.declare(_QUEUE, durable=False)
    wire.socket.sendall(publish_frames(1, _QUEUE, b"x", persistent=False) * _MESSAGES)
    with _opened(target) as client:
        source = b"\0\x53\x28\xc0\x08\x01" + _string(_QUEUE)
        client.sendall(_frame(_ATTACH, _string("l"), _ZERO, _TRUE, _NULL, _NULL, source))
        most, first = _uint(2**31 - 1), 0
        while True:
            got = _uint(first)
            client.sendall(_frame(_FLOW, _ZERO, most, _ZERO, _uint(2048), _ZERO, got, most))
            _wait(client, _TRANSFER, _UNSETTLED)
            last = first + _UNSETTLED - 1
            client.sendall(_frame(_DISPOSITION, _TRUE, _uint(first), _uint(last), _TRUE, _RELEASED))
            first = last + 1
            target.count.value += 1


def _opened(target: Target) -> socket.socket:
    """With a session, whose window does not shut."""
    client = socket.create_connection((target.host, target.port))
    response = f"\0{target.user}\0{target.user}".encode()
    given = b"\xa0" + bytes((len(response),)) + response
    client.sendall(b"AMQP\3\1\0\0" + _frame(0x41, _string("PLAIN", 0xA3), given, kind=1))
    client.sendall(b"AMQP\0\1\0\0" + _frame(0x10, _string("hostile")))
    client.sendall(_frame(_BEGIN, _NULL, _ZERO, _uint(2**31 - 1), _uint(2048)))
    _wait(client, _BEGIN, 1)
    return client


def _wait(client: socket.socket, performative: int, times: int) -> None:
    """Until so many frames of it have come."""
    mark, rest = bytes((0, 0x53, performative)), b""
    while times > 0:
        data = client.recv(1 << 20)
        if not data:
            raise EOFError("the broker has closed the connection")
        data = rest + data
        times -= data.count(mark)
        rest = data[-2:]


def _frame(performative: int, *fields: bytes, kind: int = 0) -> bytes:
    body = struct.pack(">I", len(fields)) + b"".join(fields)
    body = bytes((0, 0x53, performative, 0xD0)) + struct.pack(">I", len(body)) + body
    return struct.pack(">IBBH", 8 + len(body), 2, kind, 0) + body


def _string(text: str, kind: int = 0xA1) -> bytes:
    return bytes((kind, len(text))) + text.encode()


def _uint(number: int) -> bytes:
    return b"\x70" + struct.pack(">I", number)
