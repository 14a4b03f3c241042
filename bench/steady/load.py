"""A publisher and a consumer of one deep queue at a fixed rate: a process of its own.

Each message is confirmed and each delivery acked. As many are taken from the front of the queue as come in at
its end, so that its depth stays.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass

from bench.durable.nodes import connected
from bench.wire import METHOD, Wire, WireError, longstr, method, publish_frames, shortstr

BLOCK = 50
WINDOW = 20_000
"""Most messages without a confirm: more than come in during a long pause, so that the rate stays."""
PREFETCH, ACK_EVERY = 2_000, 500
PACE = 0.005
"""Seconds between two writes of the publisher."""
_CONFIRM = struct.Struct(">QB")
_ACK = struct.pack(">HH", 60, 80)


@dataclass(slots=True, frozen=True)
class Passed:
    """Messages of one run, and how often the publisher could not keep its rate."""

    confirmed: int
    delivered: int
    seconds: float
    behind: float
    """Seconds that the publisher was behind its rate at the worst."""


class Load:
    """Persistent messages of `body` octets, as the queue has them already. `run` it once. Raises WireError,
    OSError."""

    def __init__(self, port: int, queue: str, body: int) -> None:
        self._publisher = connected(port)
        self._publisher.confirm_select()
        self._block = publish_frames(1, queue, b"\0" * body, persistent=True) * BLOCK
        self._consumer = connected(port)
        self._queue = queue
        self._sent = self._confirmed = self._delivered = self._acked = 0
        self._size = 0
        """Octets of a delivery, which are all alike."""

    def run(self, rate: float, seconds: float) -> Passed:
        self._subscribe()
        began, behind = time.monotonic(), 0.0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * rate) // BLOCK * BLOCK
            behind = max(behind, (due - self._sent) / rate)
            self._publish(min(due, self._confirmed + WINDOW) - self._sent)
            self._listen(PACE)
        while self._confirmed < self._sent or self._acked < self._sent:
            self._listen(1.0)
        return Passed(self._confirmed, self._delivered, time.monotonic() - began, behind)

    def close(self) -> None:
        """What is acked has been heard then; what is delivered besides goes back to the queue."""
        self._publisher.close()
        self._consumer.close()

    def _subscribe(self) -> None:
        wire = self._consumer
        wire.call(1, 60, 10, struct.pack(">IHB", 0, PREFETCH, 0))
        wire.call(1, 60, 20, b"\0\0" + shortstr(self._queue) + shortstr("c") + b"\0" + longstr(b""))
        at = 0
        for _ in range(3):  # basic.deliver, header, body
            wire.fill(at + 7)
            at += int.from_bytes(wire.held[at + 3 : at + 7], "big") + 8
        wire.fill(at)
        self._size = at

    def _publish(self, count: int) -> None:
        blocks = count // BLOCK
        if blocks <= 0:
            return
        view, out = memoryview(self._block * blocks), self._publisher.socket
        self._sent += blocks * BLOCK
        while view:
            readable, writable, _ = select.select([out, self._consumer.socket], [out], [], 60)
            if not readable and not writable:
                raise WireError("the broker reads nothing")
            if writable:
                view = view[out.send(view[: 1 << 16]) :]
            self._hear(readable)

    def _listen(self, seconds: float) -> None:
        sockets = [self._publisher.socket, self._consumer.socket]
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            readable = select.select(sockets, [], [], left)[0]
            self._hear(readable)
            if self._confirmed == self._acked == self._sent:
                return

    def _hear(self, readable: list[socket.socket]) -> None:
        if self._publisher.socket in readable:
            self._confirms(self._publisher)
        if self._consumer.socket in readable:
            self._consumer.held += self._receive(self._consumer)
        self._deliveries()

    def _confirms(self, wire: Wire) -> None:
        wire.held += self._receive(wire)
        while len(wire.held) >= 21:  # a frame with basic.ack
            kind, payload = wire.read_frame()
            if kind != METHOD or payload[:4] != _ACK:
                raise WireError("something else than a confirm")
            tag, multiple = _CONFIRM.unpack_from(payload, 4)
            self._confirmed = tag if multiple else self._confirmed + 1

    def _deliveries(self) -> None:
        held, size = self._consumer.held, self._size
        count = len(held) // size
        if count and held[0 : count * size : size] != bytes([METHOD]) * count:
            raise WireError("a delivery of another shape")
        del held[: count * size]
        self._delivered += count
        upto = min(self._delivered, self._sent)
        if upto - self._acked >= ACK_EVERY or (upto == self._sent > self._acked):
            self._acked = upto
            self._consumer.socket.sendall(method(1, 60, 80, struct.pack(">QB", upto, 1)))

    @staticmethod
    def _receive(wire: Wire) -> bytes:
        octets: bytes = wire.socket.recv(1 << 18)
        if not octets:
            raise WireError("the broker closed the connection")
        return octets


def main() -> int:
    """PORT QUEUE BODY RATE SECONDS"""
    port, queue, body, rate, seconds = sys.argv[1:]
    try:
        load = Load(int(port), queue, int(body))
        passed = load.run(float(rate), float(seconds))
        load.close()
    except (OSError, WireError) as error:
        print(f"bench.steady.load: {error}", file=sys.stderr)
        return 1
    print(json.dumps({name: getattr(passed, name) for name in Passed.__slots__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
