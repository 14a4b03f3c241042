"""TLS of one connection without its socket: octets of the wire in, those of the application out, and back.

Owner: the socket. asyncio's own TLS keeps a buffer of 256 KiB for each connection, drops the alert that tells
a refused peer why, and has transports that may not be asked anything once the peer has closed them; here the
socket stays a plain one, with one write a tick.
"""

from __future__ import annotations

import ssl

_PIECE = 16384
"""What a record of TLS holds at most."""

_NO_TLS = b"\x15\x03\x03\0\x02\x02\x46"
"""The alert protocol_version, which OpenSSL does not send to who speaks no TLS at all: nodes and operators of
this broker understand it."""


class TlsStream:
    """`begun`: something has come. `open`: the handshake is done. `ended`: the peer has said goodbye, and
    sends no more. `broken`: a fault has ended it, or `goodbye`."""

    __slots__ = ("_incoming", "_outgoing", "_tls", "begun", "broken", "ended", "open")

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        """`server_hostname`: whom this end has dialled; None: it was dialled itself."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
        )
        self.begun = self.open = self.ended = self.broken = False

    def receive(self, data: bytes | memoryview) -> bytes:
        """Octets came; what of the application's is in them. Write `output` afterwards, also when it raises
        ssl.SSLError: the peer is told why. After that it is `broken`, and sends no more."""
        try:
            return self._receive(data)
        except ssl.SSLError:
            self.broken = True
            if not self.open and not self._outgoing.pending:
                self._outgoing.write(_NO_TLS)
            raise

    def _receive(self, data: bytes | memoryview) -> bytes:
        self.begun = self.begun or len(data) > 0
        self._incoming.write(data)
        if not self.open and not self._shaken():
            return b""
        pieces = []
        try:
            while piece := self._tls.read(_PIECE):
                pieces.append(piece)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _shaken(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.open = True
        return True

    def shown(self) -> bytes | None:
        """The peer's certificate in DER, once the handshake is done; None where none was asked for. For whom
        it is, TLS has looked at only where it dialled."""
        return self._tls.getpeercert(binary_form=True) if self.open else None

    def send(self, data: bytes) -> bytes:
        """What to write for that; nothing before the handshake is done, or after `goodbye`."""
        if self.open and not self.broken:
            try:
                self._tls.write(data)
            except ssl.SSLError:
                self.broken = True
        return self.output()

    def goodbye(self) -> bytes:
        """What to write last. The peer's own goodbye is not waited for."""
        if self.open and not self.broken:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass
        self.broken = True
        return self.output()

    def output(self) -> bytes:
        """What TLS itself has to write, drained."""
        return self._outgoing.read() if self._outgoing.pending else b""
