"""Clients of AMQP 1.0 with a login, that want all of the broker for themselves."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing

from bench.hostile.attacks import amqp10_wire as wire
from bench.hostile.attacks.strikes import logged_in
from bench.hostile.attacks.target import Target
from bench.wire import publish_frames

_LINKS = 2000
"""Attached and detached; less than 128 KiB."""
_HELD, _HOLDERS = 1024, 4
"""As many links as a connection may have, on so many connections."""
_UNSETTLED, _RECEIVERS = 5_000, 2
"""As many deliveries as a link may leave unsettled, and as many such links as a connection may have."""
_ALL = _UNSETTLED * _RECEIVERS
_CROWD, _EACH = 32, 1000
"""Connections that receive at once, and deliveries that each leaves unsettled."""
_TYPISTS = 20


def links(target: Target) -> None:
    """Attaches and detaches by the thousand in one go, and again once all are answered."""
    with wire.opened(target) as client:
        strike = (wire.sender(0) + wire.frame(wire.DETACH, wire.ZERO, wire.TRUE)) * _LINKS
        while True:
            client.sendall(strike)
            wire.wait(client, wire.DETACH, _LINKS)
            target.count.value += _LINKS


def held_links(target: Target) -> None:
    """4,096 links on four connections, all of whose sessions end at once; again and again."""
    for _ in range(1, _HOLDERS):
        threading.Thread(target=_hold_links, args=(target,), daemon=True).start()
    _hold_links(target)


def _hold_links(target: Target) -> None:
    strike = b"".join(wire.sender(handle) for handle in range(_HELD))
    while True:
        with wire.opened(target) as client:
            client.sendall(strike)
            wire.wait(client, wire.ATTACH, _HELD)
            client.sendall(wire.frame(wire.END))
            wire.wait(client, wire.END, 1)
        target.count.value += 1


def hoard(target: Target) -> None:
    """Credit without end; all 10,000 that have come are released by one disposition, and come again."""
    _fill(target, "hoard", _ALL + _ALL // 2)
    with _hoarding(target, "hoard") as client:
        first = 0
        while True:
            wire.wait(client, wire.TRANSFER, _ALL)
            last = first + _ALL - 1
            client.sendall(wire.released(first, last))
            had = (last + 1) // _RECEIVERS
            client.sendall(b"".join(wire.credit(handle, had=had) for handle in range(_RECEIVERS)))
            first = last + 1
            target.count.value += 1


def lost(target: Target) -> None:
    """A connection that is gone with 10,000 unsettled deliveries; again and again."""
    _fill(target, "lost10", _ALL)
    while True:
        with closing(_hoarding(target, "lost10")) as client:
            wire.wait(client, wire.TRANSFER, _ALL)
        target.count.value += 1


def receivers(target: Target) -> None:
    """Thirty-two connections release all that has come to each, which comes again."""
    for number in range(1, _CROWD):
        threading.Thread(target=_receive, args=(target, f"receivers{number}"), daemon=True).start()
    _receive(target, "receivers0")


def _receive(target: Target, queue: str) -> None:
    _fill(target, queue, _EACH)
    with wire.opened(target) as client:
        client.sendall(wire.receiver(queue, 0) + wire.credit(0, had=0))
        first = 0
        while True:
            wire.wait(client, wire.TRANSFER, _EACH)
            last = first + _EACH - 1
            client.sendall(wire.released(first, last) + wire.credit(0, had=last + 1))
            first = last + 1
            target.count.value += 1


def _fill(target: Target, queue: str, messages: int) -> None:
    client = logged_in(target)
    client.declare(queue, durable=False)
    client.socket.sendall(publish_frames(1, queue, b"x", persistent=False) * messages)
    client.close()


def _hoarding(target: Target, queue: str) -> socket.socket:
    client = wire.opened(target)
    for handle in range(_RECEIVERS):
        client.sendall(wire.receiver(queue, handle) + wire.credit(handle, had=0))
    return client


def wrong_types(target: Target) -> None:
    """An attach whose name is a number, and an open whose properties have binary keys, on 20 sockets."""
    for _ in range(1, _TYPISTS):
        threading.Thread(target=_wrong_types, args=(target,), daemon=True).start()
    _wrong_types(target)


def _wrong_types(target: Target) -> None:
    key = b"\xa0\x03key" + wire.string("value")
    properties = b"\xc1" + bytes((len(key) + 1, 2)) + key
    binary_keys = wire.frame(wire.OPEN, wire.string("hostile"), *[wire.NULL] * 8, properties)
    number_for_name = wire.frame(wire.ATTACH, wire.uint(7), wire.ZERO, wire.TRUE)
    while True:
        for ready, strike, answer in (
            (wire.connected, binary_keys, wire.OPEN), (wire.opened, number_for_name, wire.CLOSE)
        ):  # fmt: skip
            try:
                with ready(target) as client:
                    client.sendall(strike)
                    wire.wait(client, answer, 1)
            except (OSError, EOFError):
                time.sleep(0.01)
            target.count.value += 1
