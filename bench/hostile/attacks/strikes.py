"""What attacks over AMQP 0-9-1 have in common: to log in, and to say the same thing again and again."""

from __future__ import annotations

import struct
import threading
import time

from bench.hostile.attacks.target import Target
from bench.wire import BODY, HEADER, Wire, WireError, frame, longstr, method, shortstr

CLOSE = method(0, 10, 50, struct.pack(">H", 200) + shortstr("") + bytes(4))
_DELIVER, _REFUSED = b"\0\x3c\0\x3c", b"\0\x14\0\x28"
"""basic.deliver; channel.close."""
_STEP = 100
_RATE = 15_000


def logged_in(target: Target, user: str | None = None) -> Wire:
    """`user`: another one than the target's, whose password is the same, too."""
    name = user or target.user
    return Wire.open(target.host, target.port, user=name, password=name, timeout=60)


def again(target: Target, first: bytes, then: bytes, user: str | None = None) -> None:
    """One connection after another: what comes first, then the other as often as it is taken."""
    while True:
        try:
            wire = logged_in(target, user)
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


# -- what is said


def publish(exchange: str, routing_key: str = "nobody") -> bytes:
    """basic.publish alone."""
    return method(1, 60, 40, b"\0\0" + shortstr(exchange) + shortstr(routing_key) + b"\0")


def empty(flags: int = 0, properties: bytes = b"") -> bytes:
    """The content header of a message without a body."""
    return frame(HEADER, 1, struct.pack(">HHQH", 60, 0, 0, flags) + properties)


def declare(queue: str, arguments: bytes = b"", *, flags: int = 0) -> bytes:
    """`flags`: 1 passive, 2 durable, 4 exclusive, 8 auto-delete, 16 without an answer."""
    return method(1, 50, 10, b"\0\0" + shortstr(queue) + bytes((flags,)) + longstr(arguments))


def bind(queue: str, exchange: str, routing_key: str = "", arguments: bytes = b"") -> bytes:
    """Without an answer."""
    where = shortstr(queue) + shortstr(exchange) + shortstr(routing_key)
    return method(1, 50, 20, b"\0\0" + where + b"\1" + longstr(arguments))


def consume(wire: Wire, queue: str) -> None:
    """Without a limit to what is unacked."""
    wire.call(1, 60, 20, b"\0\0" + shortstr(queue) + shortstr("") + b"\0" + longstr(b""))


def text(key: str, value: str) -> bytes:
    return shortstr(key) + b"S" + longstr(value.encode())


def number(key: str, value: int) -> bytes:
    return shortstr(key) + b"I" + struct.pack(">i", value)


# -- messages in numbers


def fill(wire: Wire, queue: str, count: int, *, over_at: float | None = None) -> None:
    """Messages of 100 octets at a steady rate, which others do not notice. `over_at`: when they expire."""
    begun = time.monotonic()
    for done in range(0, count, _STEP):
        now = time.monotonic()
        time.sleep(max(0.0, begun + done / _RATE - now))
        left = b"" if over_at is None else shortstr(str(max(1, int((over_at - now) * 1000))))
        header = struct.pack(">HHQHB", 60, 0, 100, 0x1000 | (0x100 if left else 0), 1) + left
        message = publish("", queue) + frame(HEADER, 1, header) + frame(BODY, 1, bytes(100))
        wire.socket.sendall(message * min(_STEP, count - done))


def time_to_fill(count: int) -> float:
    """Seconds."""
    return count / _RATE


def take(wire: Wire, count: int) -> None:
    """Read so many deliveries of what these attacks publish, which holds no such octets. What comes after
    them in one read is lost."""
    data = bytes(wire.held)
    wire.held.clear()
    while (count := count - data.count(_DELIVER)) > 0:
        got = wire.socket.recv(1 << 20)
        if not got or _REFUSED in got:
            raise WireError(f"closed by the broker: {got[-200:]!r}")
        data = data[-3:] + got


def ready(wire: Wire, queue: str) -> int:
    """Messages in it that nobody has."""
    answer = wire.call(1, 50, 10, b"\0\0" + shortstr(queue) + b"\x01" + longstr(b""))
    (count,) = struct.unpack_from(">I", answer, 1 + answer[0])
    return int(count)
