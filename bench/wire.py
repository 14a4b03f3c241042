"""Just enough AMQP 0-9-1 to open a channel for the load generator: blocking, made to be read.

Shares no code with the broker, so that a mistake in its codec cannot hide. Called by bench/generator.py
before the measured loop, which then owns the socket.
"""

from __future__ import annotations

import socket
import ssl
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


@dataclass(slots=True, frozen=True, kw_only=True)
class Properties:
    """Those of a content header that the benchmarks set."""

    content_type: str | None = None
    headers: bytes | None = None
    """The fields of a table, encoded."""
    persistent: bool = False
    priority: int | None = None
    correlation_id: str | None = None
    message_id: str | None = None

    def encoded(self) -> bytes:
        """Flags and values, in the order of the standard."""
        values = [
            (0x8000, None if self.content_type is None else shortstr(self.content_type)),
            (0x2000, None if self.headers is None else longstr(self.headers)),
            (0x1000, bytes([2 if self.persistent else 1])),
            (0x0800, None if self.priority is None else bytes([self.priority])),
            (0x0400, None if self.correlation_id is None else shortstr(self.correlation_id)),
            (0x0080, None if self.message_id is None else shortstr(self.message_id)),
        ]
        flags = sum(flag for flag, value in values if value is not None)
        return struct.pack(">H", flags) + b"".join(value for _, value in values if value is not None)


def message_frames(key: str, body: bytes, properties: Properties, *, exchange: str = "") -> bytes:
    """basic.publish on channel 1, its content header, and its body in as many frames as it needs."""
    arguments = b"\0\0" + shortstr(exchange) + shortstr(key) + b"\0"
    header = struct.pack(">HHQ", 60, 0, len(body)) + properties.encoded()
    most = FRAME_MAX - 8
    bodies = [frame(BODY, 1, body[at : at + most]) for at in range(0, len(body), most)]
    return b"".join([method(1, 60, 40, arguments), frame(HEADER, 1, header), *bodies])


def publish_frames(
    channel: int, queue: str, body: bytes, *, persistent: bool, message_id: str | None = None
) -> bytes:
    """basic.publish to the default exchange, its content header, and its body in one frame."""
    arguments = b"\0\0" + shortstr("") + shortstr(queue) + b"\0"
    properties = Properties(persistent=persistent, message_id=message_id)
    header = struct.pack(">HHQ", 60, 0, len(body)) + properties.encoded()
    return method(channel, 60, 40, arguments) + frame(HEADER, channel, header) + frame(BODY, channel, body)


def client_properties(producer: str | None, producer_id: str | None = None) -> bytes:
    """The client-properties table of connection.start-ok."""
    capabilities = b"".join(
        shortstr(name) + b"t\x01"
        for name in ("publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked")
    )
    table = shortstr("product") + b"S" + longstr(b"understudy bench")
    table += shortstr("capabilities") + b"F" + longstr(capabilities)
    if producer:
        table += shortstr("producer") + b"S" + longstr(producer.encode())
    if producer_id:
        table += shortstr("producer_id") + b"S" + longstr(producer_id.encode())
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
        producer_id: str | None = None,
        timeout: float = 20,
        ca: str | None = None,
    ) -> Wire:
        """Connect, log in with PLAIN, agree on no heartbeat, and open channel 1. `timeout` in seconds; `ca`:
        over TLS, with a file of that authority's certificate."""
        connected = socket.create_connection((host, port), timeout)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if ca:
            connected = ssl.create_default_context(cafile=ca).wrap_socket(connected, server_hostname=host)
        wire = cls(connected)
        connected.sendall(b"AMQP\0\0\x09\x01")
        wire.expect(CONNECTION_START)
        response = longstr(f"\0{user}\0{password}".encode())
        told = client_properties(producer, producer_id)
        start_ok = told + shortstr("PLAIN") + response + shortstr("en_US")
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

    def declare(self, queue: str, *, durable: bool, arguments: bytes = b"") -> None:
        """`arguments`: the fields of a table, encoded."""
        self.call(1, 50, 10, b"\0\0" + shortstr(queue) + bytes([2 if durable else 0]) + longstr(arguments))

    def declare_exchange(self, name: str, kind: str) -> None:
        """It goes with its last binding."""
        self.call(1, 40, 10, b"\0\0" + shortstr(name) + shortstr(kind) + b"\4" + longstr(b""))

    def bind(self, queue: str, exchange: str, key: str = "", arguments: bytes = b"") -> None:
        """`arguments`: the fields of a table, encoded."""
        names = shortstr(queue) + shortstr(exchange) + shortstr(key)
        self.call(1, 50, 20, b"\0\0" + names + b"\0" + longstr(arguments))

    def delete(self, queue: str) -> None:
        self.call(1, 50, 40, b"\0\0" + shortstr(queue) + b"\0")

    def confirm_select(self) -> None:
        self.call(1, 85, 10, b"\0")

    def consume(self, queue: str, prefetch: int, *, tag: str = "bench") -> None:
        """basic.qos and basic.consume with acknowledgements."""
        self.call(1, 60, 10, struct.pack(">IHB", 0, prefetch, 0))
        self.call(1, 60, 20, b"\0\0" + shortstr(queue) + shortstr(tag) + b"\0" + longstr(b""))

    def consume_without_answer(self, queue: str, prefetch: int, *, tag: str) -> None:
        """The same with no-wait: whatever is read next is of deliveries."""
        self.call(1, 60, 10, struct.pack(">IHB", 0, prefetch, 0))
        arguments = b"\0\0" + shortstr(queue) + shortstr(tag) + b"\x08" + longstr(b"")
        self.socket.sendall(method(1, 60, 20, arguments))

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
