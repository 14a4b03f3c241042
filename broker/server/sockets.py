"""asyncio protocols of the shell: one per inbound connection, one per dial. They carry bytes and decide
nothing.

Owner: `Shell`. Uses `BufferedProtocol` with a shared buffer, because asyncio's own 256 KiB reads cost up to
twice as much at small windows. The buffer is only in use between `get_buffer` and `buffer_updated`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from abc import abstractmethod
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from broker import codes
from broker.peer import Peer
from broker.security.access import Door
from broker.security.loopback import is_loopback
from broker.server.clock import now
from broker.server.tls_stream import TlsStream
from understudy.shared.codes import Coded
from understudy.shared.octets import blocks
from understudy.shared.tls_faults import fault_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from broker.server.driven import Dialing, DialWanted, Driven, DrivenConnection

READ_SIZE = 65536
LARGE_READ_SIZE = 262144
"""Octets read at once while large messages come, or much of anything: each read costs a tick."""
LOGIN_READ_SIZE = 8192
"""Octets read at once from a connection that has not logged in."""
WRITE_HIGH = 1 << 20
WRITE_LOW = 1 << 18
_SLICE = 1 << 18
"""Octets given to the transport at once. After each partial write by the kernel, the transport moves
everything it holds."""
LINGER = 3.0
"""Seconds in which a closing socket sends its last bytes and discards the peer's input."""
DRAINED_MAX = 32 << 20
"""Maximum octets that a closing socket reads and discards."""

_LOGGER = logging.getLogger("understudy.shell")


def peer_of(address: Any, door: Door = Door.ANY, *, tls: bool = False) -> Peer:
    """A `Peer` from the result of `getpeername`. `door`: the connections that the listener accepts."""
    host, port = str(address[0]), int(address[1])
    return Peer(host, port, loopback=is_loopback(host), tls=tls, door=door)


def without_cycle(transport: asyncio.BaseTransport | None) -> None:
    """Break a reference cycle after a connection was lost: asyncio stores one of the transport's own methods
    in it, which would leave each transport to the garbage collector."""
    setattr(transport, "_read_ready_cb", None)  # noqa: B010


class SocketOwner(Protocol):
    """What sockets need from the shell."""

    driven: Driven
    loop: asyncio.AbstractEventLoop
    buffer: memoryview
    """Input buffer of all sockets, in use between `get_buffer` and `buffer_updated`."""
    small_buffer: memoryview
    """The first READ_SIZE octets of it."""
    inbound: dict[DrivenConnection, Inbound]
    outbound: dict[int, Outbound]

    def admit(self, socket: Inbound) -> bool: ...
    def joined(self, socket: Inbound) -> None: ...
    def queue_input(self, socket: Inbound) -> None: ...
    def may_linger(self) -> bool: ...
    def linger(self, socket: Inbound, limit: float) -> None: ...
    def lingered(self, socket: Inbound) -> None: ...
    def left(self, socket: Inbound) -> None: ...
    def warn(self, kind: str, said: Coded) -> None: ...
    def tick_soon(self) -> None: ...
    def tick_for_acks(self) -> None: ...


class _Socket(asyncio.BufferedProtocol):
    """The common part: the buffer, optional TLS, writing, closing with a limit."""

    def __init__(self, shell: SocketOwner) -> None:
        self.shell = shell
        self.transport: asyncio.Transport | None = None
        self.closing = False
        self.tls: TlsStream | None = None
        self._waiting: deque[memoryview] = deque()
        """Output for which the transport has no room yet."""
        self._waiting_octets = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH, low=WRITE_LOW)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.shell.buffer

    def taken(self, arrived: memoryview) -> bytes:
        """The application's data in the input. Empty after a TLS fault, which is passed to `tls_failed`, and
        once this end is closing."""
        if self.tls is None:
            return bytes(arrived)
        if self.closing or self.transport is None:
            return b""
        data, fault = b"", None
        try:
            data = self.tls.receive(arrived)
        except ssl.SSLError as error:
            fault = error
        if reply := self.tls.output():
            self._put(self.transport, reply)
        if fault is None:
            return data
        self.tls_failed(fault_of(fault, open_=self.tls.open))
        self.close()
        return b""

    @abstractmethod
    def tls_failed(self, fault: str) -> None:
        """TLS with the other end has failed."""

    def write(self, parts: list[bytes], octets: int) -> int:
        """Write `parts`, about `octets` in total. Returns the octets that the kernel has not taken yet."""
        if self.transport is None:
            return 0
        if parts and not self.closing:
            for data in [b"".join(parts)] if octets <= _SLICE else blocks(parts, _SLICE):
                self._put(self.transport, data if self.tls is None else self.tls.send(data))
        return self.transport.get_write_buffer_size() + self._waiting_octets

    def _put(self, transport: asyncio.Transport, data: bytes) -> None:
        if len(data) <= _SLICE and not self._waiting:
            transport.write(data)
            return
        self._waiting.append(memoryview(data))
        self._waiting_octets += len(data)
        self._pass_on(transport)

    def _pass_on(self, transport: asyncio.Transport) -> bool:
        """Pass slices of the waiting output to the transport until it is full. Returns whether nothing is
        left."""
        while self._waiting and transport.get_write_buffer_size() <= WRITE_HIGH:
            data = self._waiting.popleft()
            if len(data) > _SLICE:
                self._waiting.appendleft(data[_SLICE:])
                data = data[:_SLICE]
            self._waiting_octets -= len(data)
            transport.write(data)
        return not self._waiting

    def resume_writing(self) -> None:
        """The transport has room again."""
        if self.transport is not None and self._pass_on(self.transport):
            self.has_room()

    def has_room(self) -> None:
        """All waiting output has been passed on, and more may come."""

    def close(self) -> None:
        """Close once buffered output is sent, or after LINGER."""
        if self.closing or self.transport is None:
            return
        self._send_last(self.transport)
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.shell.loop.call_later(LINGER, self.abort)

    def _send_last(self, transport: asyncio.Transport) -> None:
        self.closing = True
        transport.writelines(self._waiting)
        self._waiting.clear()
        self._waiting_octets = 0
        if self.tls is not None and (goodbye := self.tls.goodbye()):
            transport.write(goodbye)

    def abort(self) -> None:
        self.closing = True
        if self.transport is not None:
            self.transport.abort()


class Inbound(_Socket):
    """The socket of a client, peer or operator. The handshake limit runs from the start and includes TLS."""

    def __init__(self, shell: SocketOwner, door: Door, tls: Callable[[], SSLContext] | None) -> None:
        super().__init__(shell)
        self.door = door
        self.context = tls
        self.connection: DrivenConnection | None = None
        self.peer = self.host = ""
        self.paused = False
        self._peer_ended = False
        self._drained = 0
        self._halted = False
        self._more = False
        """The last input was as much as one read takes, so there may be more."""
        self._unserved = b""
        """Input of a connection without a login whose turn has not come."""
        self._ends = False
        """The peer has sent FIN after that input."""

    @property
    def let_in(self) -> bool:
        """Whether the connection has logged in."""
        return self.connection is not None and self.connection.let_in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        if address is None or not self.shell.admit(self):
            transport.abort()  # type: ignore[attr-defined]
            return
        bound = transport.get_extra_info("sockname") or ("", 0)
        peer = peer_of(address, self.door, tls=self.context is not None)
        peer = replace(peer, local=(str(bound[0]), int(bound[1])))
        self.peer, self.host = peer.address, peer.host
        if self.context is not None:
            self.tls = TlsStream(self.context())
            peer = replace(peer, shown=self.tls.shown, suite=self.tls.suite)
        self.connection = self.shell.driven.accept(peer, now())
        self.shell.inbound[self.connection] = self
        self.shell.joined(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        connection = self.connection
        if connection is None or not connection.let_in:
            return self.shell.buffer[:LOGIN_READ_SIZE]
        return self.shell.buffer if self._more or connection.sends_much else self.shell.small_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._more = nbytes >= READ_SIZE
        if self.connection is None:
            self._drain(nbytes)
        elif self.connection.let_in and not self._unserved:
            self._serve_input(self.shell.buffer[:nbytes])
        else:
            self._unserved = bytes(self.shell.buffer[:nbytes])
            self.halt()
            self.shell.queue_input(self)

    def serve_input(self) -> None:
        """The turn of this socket has come."""
        if self.connection is None:
            return
        if arrived := self._unserved:
            self._unserved = b""
            self._serve_input(memoryview(arrived))
        if self._ends:
            self._input_ended()
        self.go_on()

    def halt(self) -> None:
        """Pause reading until its turn."""
        self._halted = True
        if self.transport is not None:
            self.transport.pause_reading()

    def go_on(self) -> None:
        """Resume reading."""
        self._halted = False
        if self.transport is not None and not self.paused:
            self.transport.resume_reading()

    def _serve_input(self, arrived: memoryview) -> None:
        assert self.connection is not None
        if data := self.taken(arrived):
            self.connection.receive(data, now())
            if self.connection.successor is not None:
                self._switch_machine(self.connection.successor)
            if self.connection.only_acked:
                self.shell.tick_for_acks()
            else:
                self.shell.tick_soon()
        if self.tls is not None and self.tls.ended:
            self._input_ended()

    def _switch_machine(self, connection: DrivenConnection) -> None:
        """Switch to the machine of another protocol."""
        assert self.connection is not None
        del self.shell.inbound[self.connection]
        self.connection = connection
        self.shell.inbound[connection] = self

    def eof_received(self) -> bool:
        if self.connection is not None and not self.let_in:
            self._ends = True
            self.shell.queue_input(self)
        else:
            self._input_ended()
        return True

    def _input_ended(self) -> None:
        """The peer will send no more."""
        self._peer_ended = True
        if self.closing and self.transport is not None:
            self.transport.close()
        elif self.connection is not None:
            self._left_early()
            self.connection.eof(now())
            self.shell.tick_soon()

    def _left_early(self) -> None:
        """Report a peer that left during the TLS handshake, unless this end closed it."""
        tls = self.tls
        if tls is not None and tls.begun and not (tls.open or tls.broken or self.closing):
            tls.broken = True
            self.tls_failed("it left in the middle of the TLS handshake")

    def tls_failed(self, fault: str) -> None:
        self.shell.warn(f"{self.host}: {fault}", codes.TLS_HANDSHAKE.say(peer=self.peer, fault=fault))

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.writable(False)

    def has_room(self) -> None:
        if self.connection is not None:
            self.connection.writable(True)
            self.shell.tick_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        without_cycle(self.transport)
        self.transport = None
        self._release()
        self.shell.lingered(self)

    def _release(self) -> None:
        """Tell the machine that this socket is lost. The socket itself may linger."""
        connection, self.connection = self.connection, None
        self._unserved = b""
        if connection is not None:
            self._left_early()
            self.shell.inbound.pop(connection, None)
            connection.lost(now())
            self.shell.left(self)

    def close(self) -> None:
        """Send the last output, then read and discard the peer's input until it closes its end.

        If a connection is closed with unread input, the kernel resets it. Then the peer's next write fails,
        and its client may never see the last output. Bounded by LINGER, DRAINED_MAX and `Shell.may_linger`.
        """
        if self._peer_ended or self.closing or self.transport is None or not self.shell.may_linger():
            super().close()
            return
        self._send_last(self.transport)
        self.shell.linger(self, LINGER)
        self.shell.loop.call_soon(self._release)
        try:
            self.transport.write_eof()
        except OSError:  # the peer has reset it
            self.abort()
            return
        if self.paused or self._halted:
            self.transport.resume_reading()

    def _drain(self, nbytes: int) -> None:
        self._drained += nbytes
        if self._drained > DRAINED_MAX:
            self.abort()

    def serve(self) -> None:
        """After a tick: write the output, then close, pause or resume as the connection demands."""
        connection, transport = self.connection, self.transport
        if connection is None or transport is None:
            return
        octets = connection.unsent
        connection.written(self.write(connection.take_output(), octets))
        if connection.wants_close:
            self.close()
        elif connection.paused_reading is not self.paused and not self.closing:
            self.paused = connection.paused_reading
            if self.paused:
                transport.pause_reading()
            elif not self._halted:
                transport.resume_reading()


class Outbound(_Socket):
    """A socket that the node dialled. The node hears of it when it is `ready` (after TLS, if any), and of its
    end, however early."""

    def __init__(
        self, shell: SocketOwner, node: Dialing, wanted: DialWanted, context: SSLContext | None
    ) -> None:
        super().__init__(shell)
        self.node = node
        self.dial_id = wanted.dial_id
        self.host = wanted.host
        self.timeout = wanted.timeout
        self.context = context
        self.ready = self.heard = False
        self.distrust = ""
        self.limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.shell.outbound[self.dial_id] = self
        if self.context is None:
            self._ready()
            return
        try:
            self.tls = TlsStream(self.context, self.host)
        except ValueError as error:  # a name that no certificate can have
            self.distrust = str(error)
            self.abort()
            return
        self.limit = self.shell.loop.call_later(self.timeout, self.abort)
        self.taken(self.shell.buffer[:0])

    def _ready(self) -> None:
        self.ready = True
        if self.limit is not None:
            self.limit.cancel()
        self.node.dialed(self.dial_id, now())
        self.shell.tick_soon()

    def buffer_updated(self, nbytes: int) -> None:
        data = self.taken(self.shell.buffer[:nbytes])
        if not self.ready and self.tls is not None and self.tls.open:
            self._ready()
        if data:
            self.heard = True
            self.node.dial_received(self.dial_id, data, now())
            self.shell.tick_soon()
        if self.tls is not None and self.tls.ended:
            self.close()

    def tls_failed(self, fault: str) -> None:
        self.distrust = fault

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.limit is not None:
            self.limit.cancel()
        if self.shell.outbound.pop(self.dial_id, None) is None:
            return
        if self.ready:
            # FIN or RST: the peer's kernel answered. Anything else, above all a timeout, is silence.
            clean = not self.distrust and (
                exc is None or isinstance(exc, ConnectionResetError | BrokenPipeError)
            )
            if self.context is not None and not self.heard and not self.closing:
                self.distrust = self.distrust or "it closes the connection at once, its log says why"
            self.node.dial_closed(self.dial_id, clean, now(), self.distrust)
        else:
            text = self.distrust or "no TLS handshake"
            self.node.dial_failed(self.dial_id, text, now(), distrusted=bool(self.distrust))
        self.shell.tick_soon()

    def serve(self) -> None:
        """After a tick: write the node's output for this dial."""
        if self.ready:
            parts = self.node.take_dial_output(self.dial_id)
            self.write(parts, sum(map(len, parts)))
            if self.node.dial_wants_close(self.dial_id):
                self.close()
