"""Clients with a login that make very many dead letters at once: by refusing, and by times that end together.

Both publish at a steady rate that others do not notice, so that what the victim sees is the dead letters'.
"""

from __future__ import annotations

import struct
import time

from bench.hostile.target import Target
from bench.wire import BODY, HEADER, Wire, frame, longstr, method, shortstr

REFUSED = 50_000
OVER = 100_000
_STEP = 100
_RATE = 15_000
"""Messages a second."""
_DELIVER = b"\0\x3c\0\x3c"
_NACK_ALL = method(1, 60, 120, struct.pack(">QB", 0, 1))


def refusals(target: Target) -> None:
    """50,000 deliveries without an ack, then one nack for all of them; again and again."""
    wire, queue, _ = _ready(target, "refused")
    wire.call(1, 60, 20, b"\0\0" + shortstr(queue) + shortstr("c") + b"\0" + longstr(b""))
    while True:
        _publish(wire, queue, REFUSED)
        _read(wire, REFUSED)
        wire.socket.sendall(_NACK_ALL)
        target.count.value += 1


def expiries(target: Target) -> None:
    """100,000 messages whose time is over at one moment; their dead letters go round between two queues."""
    wire, queue, over = _ready(target, "over", cycle=True)
    while True:
        at = time.monotonic() + OVER / _RATE + 0.5
        _publish(wire, queue, OVER, over_at=at)
        time.sleep(max(0.0, at - time.monotonic()))
        while _count(wire, queue) or _count(wire, over):
            time.sleep(0.2)
        target.count.value += 1


def _ready(target: Target, name: str, *, cycle: bool = False) -> tuple[Wire, str, str]:
    """A queue whose dead letters go to another one, which keeps ten, or sends them back after 0.1 s."""
    wire = Wire.open(target.host, target.port, user=target.user, password=target.user, timeout=60)
    to = name + "-dead"
    back = _way(name) + _number("x-message-ttl", 100) if cycle else _number("x-max-length", 10)
    for queue, arguments in ((name, _way(to)), (to, back)):
        wire.call(1, 50, 10, b"\0\0" + shortstr(queue) + b"\0" + longstr(arguments))
    return wire, name, to


def _way(to: str) -> bytes:
    there = shortstr("x-dead-letter-routing-key") + b"S" + longstr(to.encode())
    return shortstr("x-dead-letter-exchange") + b"S" + longstr(b"") + there


def _number(key: str, value: int) -> bytes:
    return shortstr(key) + b"I" + struct.pack(">i", value)


def _publish(wire: Wire, queue: str, count: int, *, over_at: float | None = None) -> None:
    publish = method(1, 60, 40, b"\0\0" + shortstr("") + shortstr(queue) + b"\0")
    begun = time.monotonic()
    for done in range(0, count, _STEP):
        now = time.monotonic()
        time.sleep(max(0.0, begun + done / _RATE - now))
        left = b"" if over_at is None else shortstr(str(max(1, int((over_at - now) * 1000))))
        header = struct.pack(">HHQHB", 60, 0, 100, 0x1000 | (0x100 if left else 0), 1) + left
        wire.socket.sendall((publish + frame(HEADER, 1, header) + frame(BODY, 1, bytes(100))) * _STEP)


def _read(wire: Wire, count: int) -> None:
    """So many deliveries of what `_publish` sends, which holds no other such octets."""
    rest = b""
    while count > 0:
        data = rest + wire.socket.recv(1 << 20)
        count -= data.count(_DELIVER)
        rest = data[-3:]


def _count(wire: Wire, queue: str) -> int:
    """Messages that are ready."""
    answer = wire.call(1, 50, 10, b"\0\0" + shortstr(queue) + b"\x01" + longstr(b""))
    (count,) = struct.unpack_from(">I", answer, 1 + answer[0])
    return int(count)
