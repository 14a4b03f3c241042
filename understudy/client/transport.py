"""A non-blocking transport for py-amqp that reads while it writes.

py-amqp writes with `sendall`, which can deadlock: the broker waits until the client reads its confirms, and
the client reads nothing until its write is done. This transport buffers what the socket does not accept, and
sends it while it reads input.

py-amqp also sets TCP_USER_TIMEOUT to 1 s. The kernel would then end a connection to a live broker that reads
nothing for a second, for example under a memory alarm, and the publisher would resend everything each time.
This transport turns the option off; heartbeats detect a dead broker.

Role: the transport of the kit's connection. Owner: that connection, on its thread.
"""

from __future__ import annotations

import socket
import ssl
import time
from math import ceil
from select import POLLIN, POLLOUT, poll
from struct import Struct
from typing import Any

from amqp.exceptions import UnexpectedFrame
from amqp.transport import AMQP_PROTOCOL_HEADER, SSLTransport, TCPTransport

_CHUNK = 65536
"""Most octets that one read takes."""
_HEAD = Struct(">BHI")
_FRAME_END = 0xCE
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_SETTINGS = {socket.TCP_USER_TIMEOUT: 0} if hasattr(socket, "TCP_USER_TIMEOUT") else {}
_Plain: Any = TCPTransport
_Secure: Any = SSLTransport

Frame = tuple[int, int, bytes]
"""Type, channel, payload."""


class Lost(OSError):
    """The connection is lost. `str()` is one line."""


def _lost(error: OSError) -> OSError:
    """The exception to raise for `error`: Lost if it came from the socket.

    An OSError without an errno is the application's own, for example a TimeoutError that a signal handler
    raised. It is returned unchanged."""
    if error.errno is None and not isinstance(error, ssl.SSLError):
        return error
    return Lost(str(error))


class _Buffered:
    """The common part of both transports.

    `unsent`: octets that the socket has not accepted yet. `read_at`: time of the last input, by
    `time.monotonic`."""

    sock: Any
    _at_once = 1 << 20
    """Most octets that one call gives to the socket."""

    def _init_socket(self, _settings: Any, _read_timeout: Any, _write_timeout: Any) -> None:
        self.unsent = bytearray()
        self.read_at = time.monotonic()
        self._input = b""
        self._at = 0
        self.sock.settimeout(None)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._set_socket_options(_SETTINGS)
        self._setup_transport()
        self.sock.setblocking(False)
        self._poll = poll()
        self._poll.register(self.sock, POLLIN)
        self.write(AMQP_PROTOCOL_HEADER)

    def _set_socket_options(self, settings: Any) -> None:
        super()._set_socket_options(settings)  # type: ignore[misc]

    def _setup_transport(self) -> None:
        super()._setup_transport()  # type: ignore[misc]

    def write(self, data: bytes | memoryview) -> None:
        """Send or buffer whole frames; returns at once. Raises Lost."""
        if self.unsent:
            self.unsent += data
            return
        sent = self._send(data if len(data) <= self._at_once else data[: self._at_once])
        if sent < len(data):
            self.unsent += data[sent:]
            if sent:
                self._send_unsent()

    def next_frame(self) -> Frame | None:
        """The next frame of the input read so far; None if it is incomplete. Raises UnexpectedFrame if
        invalid."""
        buffer, at = self._input, self._at
        if len(buffer) - at < _HEAD.size:
            return None
        kind, channel, size = _HEAD.unpack_from(buffer, at)
        start = at + _HEAD.size
        end = start + size
        if len(buffer) <= end:
            return None
        if buffer[end] != _FRAME_END:
            raise UnexpectedFrame(f"a frame ends with {buffer[end]:#04x} instead of 0xce")
        self._at = end + 1
        return kind, channel, buffer[start:end]

    def read_frame_within(self, timeout: float) -> Frame:
        """Wait for one frame. Raises Lost after `timeout` seconds."""
        until = time.monotonic() + timeout
        while (frame := self.next_frame()) is None:
            left = until - time.monotonic()
            if left <= 0:
                raise Lost(f"the broker did not answer within {timeout:g} s")
            self.move(left)
        return frame

    def move(self, timeout: float) -> bool:
        """Send buffered output and read input. Returns whether input was read. Raises Lost.

        Waits up to `timeout` seconds, until input is read or the output buffer is empty."""
        until = time.monotonic() + timeout
        while True:
            had = len(self.unsent)
            if had:
                self._send_unsent()
            if self.fill():
                return True
            left = until - time.monotonic()
            if (had and not self.unsent) or left <= 0:
                return False
            self._poll.modify(self.sock, POLLIN | POLLOUT if self.unsent else POLLIN)
            self._poll.poll(ceil(left * 1000))

    def fill(self) -> bool:
        """Read available input without waiting. Returns whether there was any. Raises Lost."""
        try:
            data = self.sock.recv(_CHUNK)
        except _NOT_NOW:
            return False
        except OSError as error:
            raise _lost(error) from None
        if not data:
            raise Lost("closed by the broker without a reason")
        self._input = self._input[self._at :] + data
        self._at = 0
        self.read_at = time.monotonic()
        return True

    def _send_unsent(self) -> None:
        while self.unsent:
            sent = self._send(bytes(self.unsent[: self._at_once]))
            if not sent:
                return
            del self.unsent[:sent]

    def _send(self, data: bytes | memoryview) -> int:
        try:
            sent: int = self.sock.send(data)
        except _NOT_NOW:
            return 0
        except OSError as error:
            raise _lost(error) from None
        return sent


class PlainTransport(_Buffered, _Plain):  # type: ignore[misc]
    """Over TCP."""


class SecureTransport(_Buffered, _Secure):  # type: ignore[misc]
    """Over TLS. A retried TLS write must offer at least as many octets as the first attempt. No call offers
    more than one TLS record, so a retry never offers fewer."""

    _at_once = 16384
