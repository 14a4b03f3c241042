"""A client with a login whose commits do as much at once as `broker.transaction_max` lets them."""

from __future__ import annotations

import struct
import threading

from bench.hostile.attacks.directory import topic_keys
from bench.hostile.attacks.strikes import (
    bind,
    consume,
    declare,
    empty,
    logged_in,
    number,
    publish,
    take,
    text,
)
from bench.hostile.attacks.target import Target
from bench.wire import Wire, method

PUBLISHED = 30_000
REFUSED = 310
"""Each dead letter counts as a hundred messages."""
_SELECT, _COMMIT, _REJECT = 10, 20, 90


def commits(target: Target) -> None:
    """On one connection commits of 30,000 messages. On another one each commit publishes 310 messages and
    refuses the 310 of the one before, which are dead letters then."""
    threading.Thread(target=_publish_many, args=(target,), daemon=True).start()
    wire = _ready(
        target, "tx", text("x-dead-letter-exchange", "") + text("x-dead-letter-routing-key", "tx-many")
    )
    consume(wire, "tx")
    published = (publish("", "tx") + empty()) * REFUSED
    commit = method(1, 90, _COMMIT)
    wire.socket.sendall(published + commit)
    tag = 0
    while True:
        take(wire, REFUSED)
        rejects = b"".join(
            method(1, 60, _REJECT, struct.pack(">QB", tag + n, 0)) for n in range(1, REFUSED + 1)
        )
        wire.socket.sendall(published + rejects + commit)
        tag += REFUSED
        target.count.value += 1


def topic_commits(target: Target) -> None:
    """Each commit refuses 100 messages, which go on to the patterns of `bind_topics`."""
    wire = _ready(target, "tx-topics", text("x-dead-letter-exchange", "amq.topic"))
    keys = topic_keys()
    wire.socket.sendall(b"".join(bind("tx-topics", "amq.direct", key) for key in keys))
    published = b"".join(publish("amq.direct", key) + empty() for key in keys)
    consume(wire, "tx-topics")
    wire.socket.sendall(published + method(1, 90, _COMMIT))
    tag = 0
    while True:
        take(wire, len(keys))
        rejects = b"".join(
            method(1, 60, _REJECT, struct.pack(">QB", tag + n + 1, 0)) for n in range(len(keys))
        )
        wire.socket.sendall(published + rejects + method(1, 90, _COMMIT))
        tag += len(keys)
        target.count.value += 1


def _publish_many(target: Target) -> None:
    """To a queue that keeps few."""
    wire = _ready(target, "tx-many", number("x-max-length", 10))
    published = (publish("", "tx-many") + empty()) * PUBLISHED
    while True:
        wire.socket.sendall(published)
        wire.call(1, 90, _COMMIT)
        target.count.value += 1


def _ready(target: Target, queue: str, arguments: bytes) -> Wire:
    wire = logged_in(target)
    wire.socket.sendall(declare(queue, arguments))
    wire.expect((50, 11))
    wire.call(1, 90, _SELECT)
    return wire
