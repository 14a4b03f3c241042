"""A socket for py-amqp that reads while it writes, and waits for neither but where it is told to.

py-amqp writes with `sendall`: a broker that does not read until its returns and confirms are read, and a
client that does not read until it has written, wait for each other for ever. Here what the socket does not
take is kept, and goes out while input is read.

It also sets TCP_USER_TIMEOUT to 1 s: the kernel then ends a connection to a broker that lives and does not
read for a second, as one under a memory alarm does, and a publisher sends all again each time. Here it is
off: heartbeats say whether a broker lives.

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
"""Octets that are read at once, at most."""
_HEAD = Struct(">BHI")
_FRAME_END = 0xCE
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_SETTINGS = {socket.TCP_USER_TIMEOUT: 0} if hasattr(socket, "TCP_USER_TIMEOUT") else {}
_Plain: Any = TCPTransport
_Secure: Any = SSLTransport

Frame = tuple[int, int, bytes]
"""Type, channel, payload."""


class Lost(OSError):
    """The connection is gone. `str()` is one line."""


def _lost(error: OSError) -> OSError:
    """What stands for an error of the socket. One without a number is none: it was raised by a handler of
    signals, as many an application's TimeoutError is, and is the application's."""
    if error.errno is None and not isinstance(error, ssl.SSLError):
        return error
    return Lost(str(error))


class _Buffered:
    """What both transports do. `unsent`: octets that the socket does not take yet. `read_at`: when something
    was last read, on the clock of `time.monotonic`."""

    sock: Any
    _at_once = 1 << 20
    """Octets that are given to the socket in one call, at most."""

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
        """Whole frames. Returns at once. Raises Lost."""
        if self.unsent:
            self.unsent += data
            return
        sent = self._send(data if len(data) <= self._at_once else data[: self._at_once])
        if sent < len(data):
            self.unsent += data[sent:]
            if sent:
                self._send_unsent()

    def next_frame(self) -> Frame | None:
        """Of what was read; None if that is not a whole one. Raises UnexpectedFrame for what is none."""
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
        """Raises Lost after so many seconds."""
        until = time.monotonic() + timeout
        while (frame := self.next_frame()) is None:
            left = until - time.monotonic()
            if left <= 0:
                raise Lost(f"the broker did not answer within {timeout:g} s")
            self.move(left)
        return frame

    def move(self, timeout: float) -> bool:
        """Send what is unsent and read what has come. Waits up to `timeout` seconds, until something is read
        or nothing is unsent any more. Was something read? Raises Lost."""
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
        """Read what is there, without waiting. Was there anything? Raises Lost."""
        try:
            data = self.sock.recv(_CHUNK)
        except _NOT_NOW:
            return False
        except OSError as error:
            raise _lost(error) from None
        if not data:
            raise Lost("closed by the broker without a word")
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
    """Over TLS. What it did not take is to be offered again with no fewer octets: no call offers more than a
    record has, so none that repeats it offers fewer."""

    _at_once = 16384
