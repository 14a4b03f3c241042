"""A client on a bare socket, for what no client library would do or tell."""

from __future__ import annotations

import socket
from typing import Any

from broker.amqp091.codec.frames import PROTOCOL_HEADER
from broker.amqp091.codec.grammar import encode_frame
from tests.failover.nodes.cluster import PATIENCE, Login
from understudy.shared.addresses import HostPort

CLOSE = (10, 50)
DECLARE_OK = (50, 11)
DELIVER = (60, 60)
HEADER = b"\x02\0\1\0\0\0\x0e" + b"\0<\0\0" + b"\0\0\0\0\0\0\0\1" + b"\0\0" + b"\xce"
BODY = b"\x03\0\1\0\0\0\1x\xce"


class Bare:
    """A client that sends frames and reads the names of methods, and thinks nothing."""

    def __init__(self, address: HostPort, login: Login | None = None) -> None:
        login = login or Login()
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self._rest = b""
        self.socket.sendall(PROTOCOL_HEADER)
        response = f"\0{login.user}\0{login.password}".encode()
        self.call(
            0,
            "connection.start-ok",
            client_properties={},
            mechanism="PLAIN",
            response=response,
            locale="en_US",
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

    def settle_down(self, queue: str) -> None:
        """With three messages, one delivery unacked, and nothing that the broker still owes."""
        self.call(1, "queue.declare", queue=queue, durable=True, arguments={})
        self.call(1, "confirm.select")
        for _ in range(3):
            self.publish(queue)
        self.call(1, "basic.qos", prefetch_count=1)
        self.call(1, "basic.consume", queue=queue, consumer_tag="c", arguments={})
        self.read_until(DELIVER)
        self.call(1, "queue.declare", queue=f"{queue}.last", durable=True, arguments={})
        self.read_until(DECLARE_OK)

    def ask_for_more(self, queue: str) -> None:
        """What would be answered with a message, a delivery and a confirm."""
        self.call(1, "basic.get", queue=queue)
        self.call(1, "basic.ack", delivery_tag=1)
        self.publish(queue)

    def close(self) -> None:
        self.socket.close()
