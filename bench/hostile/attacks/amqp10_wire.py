"""Just enough AMQP 1.0 for attacks: frames by hand, so that they may be wrong. Sockets block."""

from __future__ import annotations

import socket
import struct

from bench.hostile.attacks.target import Target

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
NULL, ZERO, TRUE, FALSE = b"\x40", b"\x43", b"\x41", b"\x42"
RELEASED = b"\0\x53\x26\x45"
MOST = 2**31 - 1
PATIENCE = 60.0


def connected(target: Target) -> socket.socket:
    """Logged in, and nothing said yet."""
    client = socket.create_connection((target.host, target.port), PATIENCE)
    response = f"\0{target.user}\0{target.user}".encode()
    given = b"\xa0" + bytes((len(response),)) + response
    client.sendall(b"AMQP\3\1\0\0" + frame(0x41, string("PLAIN", 0xA3), given, kind=1) + b"AMQP\0\1\0\0")
    return client


def opened(target: Target) -> socket.socket:
    """With a session, whose window does not shut."""
    client = connected(target)
    client.sendall(frame(OPEN, string("hostile")))
    client.sendall(frame(BEGIN, NULL, ZERO, uint(MOST), uint(2048)))
    wait(client, BEGIN, 1)
    return client


def wait(client: socket.socket, performative: int, times: int) -> None:
    """Until so many frames of it have come."""
    mark, rest = bytes((0, 0x53, performative)), b""
    while times > 0:
        data = client.recv(1 << 20)
        if not data:
            raise EOFError("the broker has closed the connection")
        data = rest + data
        times -= data.count(mark)
        rest = data[-2:]


def receiver(queue: str, handle: int) -> bytes:
    """attach; what it receives is settled by nobody but itself."""
    name = string(queue)
    source = b"\0\x53\x28\xc0" + bytes((len(name) + 1, 1)) + name
    return frame(ATTACH, string(f"l{handle}"), uint(handle), TRUE, NULL, NULL, source)


def sender(handle: int) -> bytes:
    return frame(
        ATTACH, string(f"l{handle}"), uint(handle), *(FALSE, NULL, NULL, NULL, NULL, NULL, NULL), ZERO
    )


def credit(handle: int, *, had: int) -> bytes:
    """Without end, to a link that has had so many deliveries."""
    return frame(FLOW, ZERO, uint(MOST), ZERO, uint(2048), uint(handle), uint(had), uint(MOST))


def released(first: int, last: int) -> bytes:
    """disposition of all of these deliveries."""
    return frame(DISPOSITION, TRUE, uint(first), uint(last), TRUE, RELEASED)


def frame(performative: int, *fields: bytes, kind: int = 0) -> bytes:
    body = struct.pack(">I", len(fields)) + b"".join(fields)
    body = bytes((0, 0x53, performative, 0xD0)) + struct.pack(">I", len(body)) + body
    return struct.pack(">IBBH", 8 + len(body), 2, kind, 0) + body


def string(text: str, kind: int = 0xA1) -> bytes:
    return bytes((kind, len(text))) + text.encode()


def uint(number: int) -> bytes:
    return b"\x70" + struct.pack(">I", number)
