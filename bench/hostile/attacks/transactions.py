"""A client with a login whose commits do very much at once."""

from __future__ import annotations

import struct

from bench.hostile.attacks.strikes import consume, declare, empty, logged_in, number, publish, take, text
from bench.hostile.attacks.target import Target
from bench.wire import method

MANY = 10_000
_COMMIT = method(1, 90, 20)


def commits(target: Target) -> None:
    """Each commit publishes 10,000 messages and refuses the 10,000 of the one before, which are dead letters
    then."""
    wire = logged_in(target)
    dead = text("x-dead-letter-exchange", "") + text("x-dead-letter-routing-key", "tx-dead")
    for queue, arguments in (("tx-dead", number("x-max-length", 10)), ("tx", dead)):
        wire.socket.sendall(declare(queue, arguments))
        wire.expect((50, 11))
    wire.call(1, 90, 10)
    consume(wire, "tx")
    published = (publish("", "tx") + empty()) * MANY
    wire.socket.sendall(published + _COMMIT)
    tag = 0
    while True:
        take(wire, MANY)
        rejects = b"".join(method(1, 60, 90, struct.pack(">QB", tag + n, 0)) for n in range(1, MANY + 1))
        wire.socket.sendall(published + rejects + _COMMIT)
        tag += MANY
        target.count.value += 1
