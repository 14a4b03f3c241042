"""TLS of one connection without its socket: converts wire octets to application octets and back.

Owner: the socket. asyncio's own TLS keeps a 256 KiB buffer for each connection, drops the alert that tells a
refused peer the reason, and has transports that fail on any call once the peer has closed. Here the socket
stays a plain one, with one write a tick.
"""

from __future__ import annotations

import ssl

from broker.peer import TlsSuite

_PIECE = 16384
"""Maximum octets of a TLS record."""

_NO_TLS = b"\x15\x03\x03\0\x02\x02\x46"
"""The alert protocol_version. OpenSSL does not send it to peers that do not speak TLS; nodes and operators of
this broker understand it."""


class TlsStream:
    """The TLS state of one connection.

    - `begun`: input has arrived.
    - `open`: the handshake is done.
    - `ended`: the peer has closed TLS and sends no more.
    - `broken`: a fault or `goodbye` ended the stream.
    """

    __slots__ = ("_incoming", "_outgoing", "_suite", "_tls", "begun", "broken", "ended", "open")

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        """`server_hostname`: the host that this end dialled; None if the peer dialled."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
        )
        self._suite: TlsSuite | None = None
        self.begun = self.open = self.ended = self.broken = False

    def receive(self, data: bytes | memoryview) -> bytes:
        """Decode input. Write `output` afterwards, even after ssl.SSLError, which tells the peer the reason.
        After that error the stream is `broken` and sends no more."""
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
        """The peer's certificate in DER after the handshake; None if none was requested. TLS has checked its
        names only if this end dialled."""
        return self._tls.getpeercert(binary_form=True) if self.open else None

    def suite(self) -> TlsSuite | None:
        """What was agreed on; None before the handshake is done."""
        if self._suite is None and self.open:
            self._suite = self._agreed()
        return self._suite

    def _agreed(self) -> TlsSuite | None:
        found = self._tls.cipher()
        if found is None:
            return None
        known = next((one for one in self._tls.context.get_ciphers() if one["name"] == found[0]), None)
        if known is None:
            return TlsSuite(_word(found[1]), "", _word(found[0]), "")
        kea, auth = (known[key].partition("-")[2] for key in ("kea", "auth"))
        both = kea if kea in ("any", auth) else f"{kea}_{auth}"
        mac = "aead" if known["aead"] else str(known["digest"])
        return TlsSuite(_word(self._tls.version() or ""), both, _word(known["symmetric"]), mac)

    def send(self, data: bytes) -> bytes:
        """The wire octets for `data`; none before the handshake is done or after `goodbye`."""
        if self.open and not self.broken:
            try:
                self._tls.write(data)
            except ssl.SSLError:
                self.broken = True
        return self.output()

    def goodbye(self) -> bytes:
        """The last octets to write. The peer's own close is not awaited."""
        if self.open and not self.broken:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass
        self.broken = True
        return self.output()

    def output(self) -> bytes:
        """Take what TLS itself has to write."""
        return self._outgoing.read() if self._outgoing.pending else b""


def _word(text: str) -> str:
    return text.lower().replace("-", "_")
