"""A broker of a hundred lines that confirms and delivers: what the load generator is tested against.

One queue, one consumer, no limits; each connection has a thread. It keeps what it saw, so that tests can
compare it with what the generator counted.
"""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType
from typing import Self

from bench.wire import longstr, method, shortstr

TUNE = struct.pack(">HIH", 2047, 131072, 60)


class EchoBroker:
    """Listens on a port of the kernel's choice. `nack_every`: nack instead of ack each so many confirms."""

    def __init__(self, *, nack_every: int = 0, close_after: int = 0) -> None:
        self.nack_every = nack_every
        self.close_after = close_after
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.consumer: socket.socket | None = None
        self.published = self.delivered = self.acked = self.confirms = 0
        self.ack_frames: list[int] = []
        self.bodies: set[bytes] = set()
        self.headers: set[bytes] = set()
        self.header = b""
        self.open: list[socket.socket] = []
        self.threads = [threading.Thread(target=self.accept, daemon=True)]

    def __enter__(self) -> Self:
        self.threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.open:
            connection.close()
        for thread in self.threads:
            thread.join(5)

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.open.append(connection)
            thread = threading.Thread(target=self.serve, args=(connection,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def serve(self, connection: socket.socket) -> None:
        held = bytearray()
        try:
            while len(held) < 8:
                held += connection.recv(8 - len(held))
            del held[:8]
            connection.sendall(
                method(0, 10, 10, b"\0\x09" + longstr(b"") + longstr(b"PLAIN") + longstr(b"en_US"))
            )
            while got := connection.recv(65536):
                held += got
                self.frames(connection, held)
        except OSError:
            return  # the test is over, or the generator left

    def frames(self, connection: socket.socket, held: bytearray) -> None:
        """Handle all whole frames of one read; confirm and deliver once for all of them, as a tick does."""
        deliveries = bytearray()
        while len(held) >= 8:
            kind, _, size = struct.unpack_from(">BHI", held)
            if len(held) < size + 8:
                break
            payload = bytes(held[7 : size + 7])
            raw = bytes(held[: size + 8])
            del held[: size + 8]
            if kind == 1:
                self.method(connection, payload)
            if kind == 2:
                self.header = raw
                self.headers.add(raw)
            if kind == 3:
                deliveries += self.deliver_method() + self.header + raw
                self.bodies.add(payload)
                self.published += 1
        if deliveries:
            self.settle(connection, deliveries)

    def settle(self, connection: socket.socket, deliveries: bytearray) -> None:
        self.confirms += 1
        if self.close_after and self.published >= self.close_after:
            connection.sendall(
                method(1, 20, 40, struct.pack(">H", 404) + shortstr("NOT_FOUND - gone") + b"\0\0\0\0")
            )
            return
        negative = self.nack_every and self.confirms % self.nack_every == 0
        flags = struct.pack(">QB", self.published, 1)
        connection.sendall(method(1, 60, 120 if negative else 80, flags))
        if self.consumer:
            self.consumer.sendall(deliveries)

    def deliver_method(self) -> bytes:
        self.delivered += 1
        tag = struct.pack(">QB", self.delivered, 0)
        return method(1, 60, 60, shortstr("bench") + tag + shortstr("") + shortstr("q"))

    def method(self, connection: socket.socket, payload: bytes) -> None:
        """Answer one method; those without an answer are only noted."""
        class_id, method_id = struct.unpack_from(">HH", payload)
        answers = {
            (10, 11): method(0, 10, 30, TUNE),
            (10, 40): method(0, 10, 41, b"\0"),
            (10, 50): method(0, 10, 51),
            (20, 10): method(1, 20, 11, longstr(b"")),
            (50, 10): method(1, 50, 11, shortstr("q") + bytes(8)),
            (50, 40): method(1, 50, 41, bytes(4)),
            (85, 10): method(1, 85, 11),
            (60, 10): method(1, 60, 11),
            (60, 20): method(1, 60, 21, shortstr("bench")),
        }
        if (class_id, method_id) == (60, 20):
            self.consumer = connection
        if (class_id, method_id) == (60, 80):
            (tag,) = struct.unpack_from(">Q", payload, 4)
            self.ack_frames.append(tag)
        if answer := answers.get((class_id, method_id)):
            connection.sendall(answer)
        if (class_id, method_id) == (10, 50):
            connection.shutdown(socket.SHUT_WR)
