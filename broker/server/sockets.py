"""asyncio protocols of the shell: one per inbound connection, one per dial. They carry bytes and decide
nothing.

Owner: `Shell`. `BufferedProtocol` with a shared 64 KiB buffer: asyncio's own 256 KiB reads cost up to twice
as much at small windows, and a buffer is only in use between `get_buffer` and `buffer_updated`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from typing import TYPE_CHECKING, Any, cast

from broker.engine import Peer
from broker.security.access import Door
from broker.security.tls_faults import SAY, fault_of
from broker.server.clock import now

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from broker.server.driven import Dialing, DialWanted, DrivenConnection
    from broker.server.shell import Shell

READ_SIZE = 65536
WRITE_HIGH = 1 << 20
WRITE_LOW = 1 << 18
TLS_MOST = 60.0
"""Seconds that TLS may take in any case; the broker's own limit on handshakes is less, unless configured."""
LINGER = 3.0
"""Seconds that a socket being closed may take to send its last bytes to a peer that does not read."""

_LOGGER = logging.getLogger("understudy.shell")


def peer_of(address: Any, door: Door = Door.ANY, *, tls: bool = False) -> Peer:
    """A `Peer` from what `getpeername` said. `door`: whom the listener is for."""
    host, port = str(address[0]), int(address[1])
    try:
        parsed = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return Peer(host, port, loopback=False, tls=tls, door=door)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return Peer(host, port, loopback=(mapped or parsed).is_loopback, tls=tls, door=door)


class _Socket(asyncio.BufferedProtocol):
    """What both kinds share: the buffer, writing, closing with a limit."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.transport: asyncio.Transport | None = None
        self.closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH, low=WRITE_LOW)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.shell.buffer

    def write(self, parts: list[bytes]) -> int:
        """One write; octets that the kernel has not taken yet. (A transport of TLS that the peer has closed
        takes nothing, not even questions.)"""
        if self.transport is None or self.transport.is_closing():
            return 0
        if parts:
            self.transport.write(b"".join(parts))
        return self.transport.get_write_buffer_size()

    def close(self) -> None:
        """Close once what is buffered has gone, or after LINGER."""
        if self.closing or self.transport is None:
            return
        self.closing = True
        by_peer = self.transport.is_closing()
        if not by_peer:
            self.transport.close()
        if by_peer or self.transport.get_write_buffer_size():
            self.shell.loop.call_later(LINGER, self.abort)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Inbound(_Socket):
    """A client's, peer's or operator's socket."""

    def __init__(self, shell: Shell, door: Door, tls: Callable[[], SSLContext] | None) -> None:
        super().__init__(shell)
        self.door = door
        self.tls = tls
        self.connection: DrivenConnection | None = None
        self.paused = False
        self.handshaking: asyncio.Transport | None = None
        """The bare transport while TLS is being agreed on. Nothing is read or written meanwhile; the limit on
        the whole handshake runs, and ends it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        if address is None or not self.shell.admit(self):
            transport.abort()  # type: ignore[attr-defined]
            return
        peer = peer_of(address, self.door, tls=self.tls is not None)
        self.connection = self.shell.driven.accept(peer, now())
        self.shell.inbound[self.connection] = self
        self.shell.tick_soon()
        if self.tls is not None:
            bare = cast(asyncio.Transport, transport)
            bare.pause_reading()
            self.handshaking, self.transport = bare, None
            self.shell.spawn(self._secure(bare, peer.address, self.tls()))

    async def _secure(self, bare: asyncio.Transport, peer: str, context: SSLContext) -> None:
        """Agree on TLS, then go on as any connection; a failure is one line in the log, and the end of it."""
        error: BaseException | None = None
        try:
            if not bare.is_closing():
                SAY.set(bare.write)  # of this task alone
                self.transport = await self.shell.loop.start_tls(
                    bare, self, context, server_side=True, ssl_handshake_timeout=TLS_MOST,
                    ssl_shutdown_timeout=LINGER,
                )  # fmt: skip
        except OSError as fault:
            error = fault
        finally:
            self.handshaking = None
            if self.transport is None:
                bare.abort()
                if error is not None and self.connection is not None:
                    _LOGGER.warning("connection %s: %s", peer, fault_of(error))
                self.connection_lost(error if isinstance(error, Exception) else None)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(high=WRITE_HIGH, low=WRITE_LOW)
            self.serve()

    def buffer_updated(self, nbytes: int) -> None:
        if self.connection is not None:
            self.connection.receive(bytes(self.shell.buffer[:nbytes]), now())
            self.shell.tick_soon()

    def eof_received(self) -> bool:
        if self.connection is not None:
            self.connection.eof(now())
            self.shell.tick_soon()
        return self.tls is None

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.writable(False)

    def resume_writing(self) -> None:
        if self.connection is not None:
            self.connection.writable(True)
            self.shell.tick_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        connection, self.connection = self.connection, None
        if connection is not None:
            self.shell.inbound.pop(connection, None)
            connection.lost(now())
            self.shell.left(self)

    def serve(self) -> None:
        """After a tick: write what there is, then follow the connection's wishes."""
        connection, transport = self.connection, self.transport
        if connection is not None and connection.wants_close and self.handshaking is not None:
            self.handshaking.abort()
        if connection is None or transport is None:
            return
        connection.written(self.write(connection.take_output()))
        if connection.wants_close:
            self.close()
        elif connection.paused_reading is not self.paused and not transport.is_closing():
            self.paused = connection.paused_reading
            if self.paused:
                transport.pause_reading()
            else:
                transport.resume_reading()


class Outbound(_Socket):
    """A socket that the node dialled."""

    def __init__(self, shell: Shell, node: Dialing, wanted: DialWanted) -> None:
        super().__init__(shell)
        self.node = node
        self.dial_id = wanted.dial_id
        self.heard = self.over_tls = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.over_tls = transport.get_extra_info("ssl_object") is not None
        self.shell.outbound[self.dial_id] = self
        self.node.dialed(self.dial_id, now())
        self.shell.tick_soon()

    def buffer_updated(self, nbytes: int) -> None:
        self.heard = True
        self.node.dial_received(self.dial_id, bytes(self.shell.buffer[:nbytes]), now())
        self.shell.tick_soon()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.shell.outbound.pop(self.dial_id, None) is not None:
            # FIN or RST: the peer's kernel answered. Anything else, a timeout above all, is silence.
            # An EOF without TLS's own goodbye is a FIN all the same: that of a process that was killed.
            clean = exc is None or isinstance(exc, ConnectionResetError | BrokenPipeError | ssl.SSLEOFError)
            distrust = ""
            if isinstance(exc, ssl.SSLError) and not clean:
                distrust = fault_of(exc)
            elif self.over_tls and not self.heard:
                distrust = "it closes the connection at once, its log says why"
            self.node.dial_closed(self.dial_id, clean, now(), distrust)
            self.shell.tick_soon()

    def serve(self) -> None:
        """After a tick: write what the node has for this dial."""
        self.write(self.node.take_dial_output(self.dial_id))
        if self.node.dial_wants_close(self.dial_id):
            self.close()
