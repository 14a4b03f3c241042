"""Clients with a login that let go of very much at once: of messages, queues, or what they have not acked."""

from __future__ import annotations

import time

from bench.hostile.attacks.strikes import consume, declare, empty, fill, logged_in, publish, take
from bench.hostile.attacks.target import Target
from bench.wire import Wire, shortstr

DEPTHS = (1_000_000, 1_000_000, *[100_000] * 4)
"""Messages that queues have before the attack."""
_AGAIN = 30_000
EXCLUSIVE = 20_000
UNACKED = 20_000
_PIECE = 10_000


def fill_deep_queues(target: Target) -> None:
    """With messages without a body, as fast as the broker takes them."""
    wire = logged_in(target)
    for at, depth in enumerate(DEPTHS):
        wire.declare(f"deep{at}", durable=False)
        strike = (publish("", f"deep{at}") + empty()) * _PIECE
        for _ in range(depth // _PIECE):
            wire.socket.sendall(strike)
        _count(wire, f"deep{at}")
    wire.close()


def purges(target: Target) -> None:
    """Purge and delete of queues with a million messages, then of smaller ones, filled again at a steady
    rate that others do not notice."""
    wire = logged_in(target)
    for at in range(len(DEPTHS)):
        time.sleep(0.5)
        _remove(wire, f"deep{at}", delete=at % 2 == 1)
        target.count.value += 1
    delete = False
    while True:
        wire.declare("refilled", durable=False)
        fill(wire, "refilled", _AGAIN)
        _remove(wire, "refilled", delete=delete)
        delete = not delete
        target.count.value += 1


def _remove(wire: Wire, queue: str, *, delete: bool) -> None:
    wire.call(1, 50, 40 if delete else 30, b"\0\0" + shortstr(queue) + b"\0")


def _count(wire: Wire, queue: str) -> None:
    """Once it is answered, all that was published before is in the queue."""
    wire.socket.sendall(declare(queue, flags=1))
    wire.expect((50, 11))


def exclusive(target: Target) -> None:
    """A connection with 20,000 exclusive queues is lost; again and again."""
    sets = [
        (b"".join(declare(f"own{which}.{n}", flags=4 | 16) for n in range(EXCLUSIVE)), f"own{which}.0")
        for which in range(2)
    ]
    while True:
        for declared, first in sets:
            wire = logged_in(target)
            wire.socket.sendall(declared)
            _count(wire, first)
            wire.socket.close()
            target.count.value += 1


def fill_unacked(target: Target) -> None:
    wire = logged_in(target)
    wire.declare("lost", durable=False)
    fill(wire, "lost", UNACKED)
    wire.close()


def unacked(target: Target) -> None:
    """A connection that is lost with 20,000 unacked deliveries; again and again."""
    while True:
        taker = logged_in(target)
        consume(taker, "lost")
        take(taker, UNACKED)
        taker.socket.close()
        target.count.value += 1
