"""Just enough AMQP 0-9-1 to open a channel for the load generator: blocking, made to be read.

Shares no code with the broker, so that a mistake in its codec cannot hide. Called by bench/generator.py
before the measured loop, which then owns the socket.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field

METHOD, HEADER, BODY, HEARTBEAT, FRAME_END = 1, 2, 3, 8, 0xCE
FRAME_MAX = 131072

CONNECTION_START, CONNECTION_TUNE, CONNECTION_OPEN_OK = (10, 10), (10, 30), (10, 41)
CONNECTION_CLOSE, CHANNEL_CLOSE = (10, 50), (20, 40)
CLOSE_OK = b"\0\x0a\0\x33"


class WireError(Exception):
    """The broker refused, closed, or spoke something else than AMQP 0-9-1."""


def shortstr(text: str) -> bytes:
    """A short string: one octet of length."""
    raw = text.encode()
    return bytes([len(raw)]) + raw


def longstr(raw: bytes) -> bytes:
    """A long string: four octets of length."""
    return struct.pack(">I", len(raw)) + raw


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def publish_frames(
    channel: int, queue: str, body: bytes, *, persistent: bool, message_id: str | None = None
) -> bytes:
    """basic.publish to the default exchange, its content header, and its body in one frame."""
    arguments = b"\0\0" + shortstr("") + shortstr(queue) + b"\0"
    flags = 0x1000 if message_id is None else 0x1080
    header = struct.pack(">HHQHB", 60, 0, len(body), flags, 2 if persistent else 1)
    if message_id is not None:
        header += shortstr(message_id)
    return method(channel, 60, 40, arguments) + frame(HEADER, channel, header) + frame(BODY, channel, body)


def client_properties(producer: str | None) -> bytes:
    """The client-properties table of connection.start-ok."""
    capabilities = b"".join(
        shortstr(name) + b"t\x01"
        for name in ("publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked")
    )
    table = shortstr("product") + b"S" + longstr(b"understudy bench")
    table += shortstr("capabilities") + b"F" + longstr(capabilities)
    if producer:
        table += shortstr("producer") + b"S" + longstr(producer.encode())
    return longstr(table)


@dataclass(slots=True)
class Wire:
    """One connection with one channel, opened blockingly."""

    socket: socket.socket
    held: bytearray = field(default_factory=bytearray)

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        *,
        user: str,
        password: str,
        producer: str | None = None,
        timeout: float = 20,
    ) -> Wire:
        """Connect, log in with PLAIN, agree on no heartbeat, and open channel 1. `timeout` in seconds."""
        connected = socket.create_connection((host, port), timeout)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = cls(connected)
        connected.sendall(b"AMQP\0\0\x09\x01")
        wire.expect(CONNECTION_START)
        response = longstr(f"\0{user}\0{password}".encode())
        start_ok = client_properties(producer) + shortstr("PLAIN") + response + shortstr("en_US")
        connected.sendall(method(0, 10, 11, start_ok))
        channel_max, frame_max, _ = struct.unpack_from(">HIH", wire.expect(CONNECTION_TUNE))
        agreed = min(frame_max or FRAME_MAX, FRAME_MAX)
        connected.sendall(method(0, 10, 31, struct.pack(">HIH", channel_max, agreed, 0)))
        connected.sendall(method(0, 10, 40, shortstr("/") + b"\0\0"))
        wire.expect(CONNECTION_OPEN_OK)
        wire.call(1, 20, 10, shortstr(""))
        return wire

    def call(self, channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
        """Send a method and wait for its -ok, whose id is one higher; gives the arguments of the answer."""
        self.socket.sendall(method(channel, class_id, method_id, arguments))
        return self.expect((class_id, method_id + 1))

    def expect(self, wanted: tuple[int, int]) -> bytes:
        """The arguments of the next method, which must be the wanted one."""
        while True:
            kind, payload = self.read_frame()
            if kind == METHOD:
                break
        got = struct.unpack_from(">HH", payload)
        if got in (CONNECTION_CLOSE, CHANNEL_CLOSE):
            text = payload[7 : 7 + payload[6]].decode(errors="replace")
            raise WireError(f"closed by the broker: {text}")
        if got != wanted:
            raise WireError(f"expected method {wanted[0]}.{wanted[1]}, got {got[0]}.{got[1]}")
        return payload[4:]

    def read_frame(self) -> tuple[int, bytes]:
        """The next whole frame's type and payload."""
        self.fill(7)
        kind, _, size = struct.unpack_from(">BHI", self.held)
        if kind not in (METHOD, HEADER, BODY, HEARTBEAT):
            raise WireError(f"not an AMQP 0-9-1 frame: {bytes(self.held[:8])!r}")
        self.fill(size + 8)
        if self.held[size + 7] != FRAME_END:
            raise WireError("a frame without its end octet")
        payload = bytes(self.held[7 : size + 7])
        del self.held[: size + 8]
        return kind, payload

    def fill(self, size: int) -> None:
        """Read until `size` bytes are held."""
        while len(self.held) < size:
            got = self.socket.recv(65536)
            if not got:
                raise WireError("the broker closed the connection")
            self.held += got

    def declare(self, queue: str, *, durable: bool) -> None:
        self.call(1, 50, 10, b"\0\0" + shortstr(queue) + bytes([2 if durable else 0]) + longstr(b""))

    def delete(self, queue: str) -> None:
        self.call(1, 50, 40, b"\0\0" + shortstr(queue) + b"\0")

    def confirm_select(self) -> None:
        self.call(1, 85, 10, b"\0")

    def consume(self, queue: str, prefetch: int) -> None:
        """basic.qos and basic.consume with acknowledgements."""
        self.call(1, 60, 10, struct.pack(">IHB", 0, prefetch, 0))
        self.call(1, 60, 20, b"\0\0" + shortstr(queue) + shortstr("bench") + b"\0" + longstr(b""))

    def close(self) -> None:
        """connection.close, waiting for no more than its answer."""
        try:
            self.socket.settimeout(5)
            self.socket.sendall(method(0, 10, 50, struct.pack(">H", 200) + shortstr("") + b"\0\0\0\0"))
            while self.read_frame() != (METHOD, CLOSE_OK):
                pass
        except (OSError, WireError):
            pass  # it is gone, which is all that was wanted
        finally:
            self.socket.close()
