"""asyncio protocols of the shell: one per inbound connection, one per dial. They carry bytes and decide
nothing.

Owner: `Shell`. `BufferedProtocol` with a shared 64 KiB buffer: asyncio's own 256 KiB reads cost up to twice
as much at small windows, and a buffer is only in use between `get_buffer` and `buffer_updated`.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING, Any, cast

from broker.engine import Peer
from broker.security.access import Door
from broker.server.clock import now

if TYPE_CHECKING:
    from broker.server.driven import Dialing, DialWanted, DrivenConnection
    from broker.server.shell import Shell

READ_SIZE = 65536
WRITE_HIGH = 1 << 20
WRITE_LOW = 1 << 18
LINGER = 3.0
"""Seconds that a socket being closed may take to send its last bytes to a peer that does not read."""


def peer_of(address: Any, door: Door = Door.ANY) -> Peer:
    """A `Peer` from what `getpeername` said. `door`: whom the listener is for."""
    host, port = str(address[0]), int(address[1])
    try:
        parsed = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return Peer(host, port, loopback=False, door=door)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return Peer(host, port, loopback=(mapped or parsed).is_loopback, door=door)


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
        """One write; octets that the kernel has not taken yet."""
        if self.transport is None:
            return 0
        if parts:
            self.transport.write(b"".join(parts))
        return self.transport.get_write_buffer_size()

    def close(self) -> None:
        """Close once what is buffered has gone, or after LINGER."""
        if self.closing or self.transport is None:
            return
        self.closing = True
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.shell.loop.call_later(LINGER, self.abort)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Inbound(_Socket):
    """A client's, peer's or operator's socket."""

    def __init__(self, shell: Shell, door: Door) -> None:
        super().__init__(shell)
        self.door = door
        self.connection: DrivenConnection | None = None
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        if address is None or not self.shell.admit(self):
            transport.abort()  # type: ignore[attr-defined]
            return
        self.connection = self.shell.driven.accept(peer_of(address, self.door), now())
        self.shell.inbound[self.connection] = self
        self.shell.tick_soon()

    def buffer_updated(self, nbytes: int) -> None:
        if self.connection is not None:
            self.connection.receive(bytes(self.shell.buffer[:nbytes]), now())
            self.shell.tick_soon()

    def eof_received(self) -> bool:
        if self.connection is not None:
            self.connection.eof(now())
            self.shell.tick_soon()
        return True

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
        if connection is None or transport is None:
            return
        connection.written(self.write(connection.take_output()))
        if connection.wants_close:
            self.close()
        elif connection.paused_reading is not self.paused and not self.closing:
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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.shell.outbound[self.dial_id] = self
        self.node.dialed(self.dial_id, now())
        self.shell.tick_soon()

    def buffer_updated(self, nbytes: int) -> None:
        self.node.dial_received(self.dial_id, bytes(self.shell.buffer[:nbytes]), now())
        self.shell.tick_soon()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.shell.outbound.pop(self.dial_id, None) is not None:
            # FIN or RST: the peer's kernel answered. Anything else, a timeout above all, is silence.
            clean = exc is None or isinstance(exc, ConnectionResetError | BrokenPipeError)
            self.node.dial_closed(self.dial_id, clean, now())
            self.shell.tick_soon()

    def serve(self) -> None:
        """After a tick: write what the node has for this dial."""
        self.write(self.node.take_dial_output(self.dial_id))
        if self.node.dial_wants_close(self.dial_id):
            self.close()
