"""Clients with a login that make very many dead letters at once: by refusing, and by times that end together.

All publish at a steady rate that others do not notice, so that what the victim sees is the dead letters'.
"""

from __future__ import annotations

import struct
import time

from bench.hostile.attacks.directory import topic_keys
from bench.hostile.attacks.strikes import (
    again,
    bind,
    consume,
    declare,
    empty,
    fill,
    logged_in,
    number,
    publish,
    ready,
    take,
    text,
)
from bench.hostile.attacks.strikes import time_to_fill as filled_in
from bench.hostile.attacks.target import Target
from bench.wire import Wire, longstr, method, shortstr

REFUSED = 50_000
OVER = 100_000
ROUND = 20_000
_NACK_ALL = method(1, 60, 120, struct.pack(">QB", 0, 1))


def refusals(target: Target) -> None:
    """50,000 deliveries without an ack, then one nack for all of them; again and again."""
    wire = logged_in(target)
    _declare(wire, "refused", _way("refused-dead"))
    _declare(wire, "refused-dead", number("x-max-length", 10))
    consume(wire, "refused")
    while True:
        fill(wire, "refused", REFUSED)
        take(wire, REFUSED)
        wire.socket.sendall(_NACK_ALL)
        target.count.value += 1


def expiries(target: Target) -> None:
    """100,000 messages whose time is over at one moment; their dead letters' time is over 0.1 s later."""
    wire = logged_in(target)
    _declare(wire, "over", _way("over-dead"))
    _declare(wire, "over-dead", _way("over") + number("x-message-ttl", 100))
    while True:
        at = time.monotonic() + filled_in(OVER) + 0.5
        fill(wire, "over", OVER, over_at=at)
        time.sleep(max(0.0, at - time.monotonic()))
        while ready(wire, "over") or ready(wire, "over-dead"):
            time.sleep(0.2)
        target.count.value += 1


def fill_cycle(target: Target) -> None:
    """Two dead letter exchanges, each of which leads to the other queue: no message leaves such a cycle."""
    wire = logged_in(target)
    for queue, other, more in (("round", "back", b""), ("back", "round", number("x-message-ttl", 10))):
        exchange = f"to-{queue}"
        wire.call(1, 40, 10, b"\0\0" + shortstr(exchange) + shortstr("fanout") + b"\0" + longstr(b""))
        _declare(wire, queue, text("x-dead-letter-exchange", f"to-{other}") + more)
        wire.socket.sendall(bind(queue, exchange))
    fill(wire, "round", ROUND)
    ready(wire, "round")
    wire.close()


def cycle(target: Target) -> None:
    """20,000 messages are refused at once in one queue, and expire at once in the other; again and again."""
    wire = logged_in(target)
    consume(wire, "round")
    while True:
        take(wire, ROUND)
        wire.socket.sendall(_NACK_ALL)
        target.count.value += 1


def topic_refusals(target: Target) -> None:
    """Messages for a full queue, which sends them on to the patterns of `bind_topics`."""
    arguments = text("x-dead-letter-exchange", "amq.topic") + text("x-overflow", "reject-publish-dlx")
    wire = logged_in(target)
    _declare(wire, "full", arguments + number("x-max-length", 0))
    every = b"".join(bind("full", "amq.direct", key) for key in topic_keys())
    strike = b"".join(publish("amq.direct", key) + empty() for key in topic_keys())
    again(target, every, strike)


def _declare(wire: Wire, queue: str, arguments: bytes) -> None:
    wire.socket.sendall(declare(queue, arguments))
    wire.expect((50, 11))


def _way(to: str) -> bytes:
    """By the default exchange."""
    return text("x-dead-letter-exchange", "") + text("x-dead-letter-routing-key", to)
