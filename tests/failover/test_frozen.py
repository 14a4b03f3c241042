"""SIGSTOP of the primary, a promotion, SIGCONT: real processes and a real socket (8, 28).

What the simulation cannot show: that the shell asks the clock before it writes.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.amqp091.frames import PROTOCOL_HEADER
from broker.amqp091.grammar import encode_frame
from tests.failover.pair import PATIENCE, Pair

CLOSE = (10, 50)
HEADER = b"\x02\0\1\0\0\0\x0e" + b"\0<\0\0" + b"\0\0\0\0\0\0\0\1" + b"\0\0" + b"\xce"
BODY = b"\x03\0\1\0\0\0\1x\xce"


class Bare:
    """A client that sends frames and reads the names of methods, and thinks nothing."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=PATIENCE)
        self._rest = b""
        self.socket.sendall(PROTOCOL_HEADER)
        login = b"\0guest\0guest"
        self.call(
            0, "connection.start-ok", client_properties={}, mechanism="PLAIN", response=login, locale="en_US"
        )
        self.call(0, "connection.tune-ok", channel_max=10, frame_max=131072, heartbeat=0)
        self.call(0, "connection.open", virtual_host="/")
        self.call(1, "channel.open")

    def call(self, channel: int, name: str, **arguments: Any) -> None:
        self.socket.sendall(encode_frame(channel, name, **arguments))

    def publish(self, queue: str) -> None:
        self.call(1, "basic.publish", exchange="", routing_key=queue)
        self.socket.sendall(HEADER + BODY)

    def read_until(self, key: tuple[int, int]) -> list[tuple[int, int]]:
        """Class and method of all that comes, up to and with `key`."""
        seen: list[tuple[int, int]] = []
        while key not in seen:
            more = self.socket.recv(65536)
            assert more, seen
            self._rest += more
            while len(self._rest) >= 7:
                size = int.from_bytes(self._rest[3:7], "big") + 8
                if len(self._rest) < size:
                    break
                frame, self._rest = self._rest[:size], self._rest[size:]
                if frame[0] == 1:
                    seen.append((int.from_bytes(frame[7:9], "big"), int.from_bytes(frame[9:11], "big")))
        return seen


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as made:
        yield made


def test_28_a_frozen_primary_wakes_and_says_nothing_but_good_bye(pair: Pair) -> None:
    pair.whole()
    address = pair.addresses["left"]
    client = Bare(address.host, address.port)
    client.call(1, "queue.declare", queue="q", durable=True, arguments={})
    client.call(1, "confirm.select")
    for _ in range(3):
        client.publish("q")
    client.call(1, "basic.qos", prefetch_count=1)
    client.call(1, "basic.consume", queue="q", consumer_tag="c", arguments={})
    client.read_until((60, 60))
    client.call(1, "queue.declare", queue="last", durable=True, arguments={})
    client.read_until((50, 11))
    pair.brokers["left"].signal(signal.SIGSTOP)
    try:
        client.call(1, "basic.get", queue="q")
        client.call(1, "basic.ack", delivery_tag=1)
        client.publish("q")
        refused = pair.command("promote", "right")
        assert refused[0] == 1, "mere silence"
        code, _, err = pair.command("promote", "right", "--force-lossy")
        assert code == 0, err
        assert pair.status("right") == "active"
    finally:
        pair.brokers["left"].signal(signal.SIGCONT)
    assert client.read_until(CLOSE) == [CLOSE], "no get-ok, no delivery, no confirm"
    pair.wait_for("left", "ready")
