"""One AMQP 1.0 client connection: Proton's protocol engine, driven over a socket of this module.

Role: all network I/O. Owner: a `Failover`, on its thread. The socket does not block: every wait is a `poll`
here, with a time limit. TLS is Python's own, and SASL PLAIN is done here, since Proton's support for both
depends on how it was built.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from select import POLLIN, POLLOUT, poll
from typing import Any

from proton import Collector, Condition, Event, EventType, ProtonException, Transport, symbol
from proton import Connection as Engine

from understudy.shared.addresses import HostPort
from understudy.shared.amqp10.conditions import FORCED, NOT_ALLOWED, UNAUTHORIZED, Fault
from understudy.shared.amqp10.framing import SASL, SASL_HEADER, whole
from understudy.shared.amqp10.sasl import LARGEST_FRAME, OK, TEMPORARY, frame
from understudy.shared.amqp10.types import Array, DecodeError, Described, Symbol, read, write

_READ = 64 * 1024
_READS = 8
"""Most reads in a row before events are handled."""
_GOODBYE = 1.0
"""Seconds to wait for the answer to a close."""
_MECHANISMS, _INIT, _OUTCOME = 0x40, 0x41, 0x44
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_FOR_GOOD = (NOT_ALLOWED, UNAUTHORIZED)
"""Connection conditions that no retry can cure."""

_OTHERS = frozenset(
    (
        Event.DELIVERY, Event.LINK_FLOW, Event.LINK_REMOTE_OPEN, Event.LINK_REMOTE_CLOSE,
        Event.LINK_REMOTE_DETACH,
    )
)  # fmt: skip
"""Events for the owner of the links."""

Serve = Callable[[EventType, Any], bool]
"""Handles an event of a link or delivery. Returns True if a caller may be waiting for the event."""


class Lost(OSError):
    """The connection is lost, or could not be made. `str()` is one line."""


class Refused(Exception):
    """The broker refuses a request for good. `condition`: the AMQP 1.0 condition. `sequences`: the numbers of
    the messages that a publisher dropped for this reason, and will not resend."""

    def __init__(self, condition: str, text: str, sequences: tuple[int, ...] = ()) -> None:
        super().__init__(f"{condition}: {text}" if text else condition)
        self.condition = condition
        self.text = text
        self.sequences = sequences


def reason(condition: Condition | None) -> tuple[str, str]:
    """Why the broker closed a link: the AMQP 1.0 condition, and a text."""
    if condition is None:
        return "amqp:link:detach-forced", "closed without a reason"
    return str(condition.name), condition.description or "no reason given"


class Wire:
    """`session`: the connection's only session. `serve`: set by the owner of the links. `ended`: why the
    broker closed the connection or session, if it gave a reason other than its own shutdown."""

    def __init__(self, sock: socket.socket, heartbeat: float) -> None:
        self.serve: Serve = lambda _kind, _what: False
        self.ended: Condition | None = None
        self._sock = sock
        self._unsent = False
        self._opened = self._closing = self._closed = False
        self._due = 0.0
        self.engine = Engine()
        self._collector = Collector()
        self.engine.collect(self._collector)
        self._transport = Transport()
        self._transport.idle_timeout = 2 * heartbeat
        self._transport.bind(self.engine)
        self.session = self.engine.session()

    def open(self, name: str, hostname: str, properties: Mapping[str, str], deadline: float) -> None:
        """Exchange the opens. Raises Lost, and Refused."""
        engine = self.engine
        engine.container = name
        engine.hostname = hostname
        engine.properties = {symbol(key): value for key, value in properties.items()}
        engine.open()
        self.session.open()
        while not self._opened:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Lost("it did not open the connection in time")
            self.pump(left)

    # -- in and out

    @property
    def server_properties(self) -> dict[Any, Any]:
        """What the broker says of itself."""
        told = self.engine.remote_properties
        return told if isinstance(told, dict) else {}

    @property
    def held_up(self) -> bool:
        """Whether some output is waiting for the network."""
        return self._unsent

    @property
    def overdue(self) -> bool:
        """Whether a heartbeat is due, or a check of the broker's heartbeat: then call `pump(0)`."""
        return 0 < self._due <= time.monotonic()

    def pump(self, timeout: float) -> bool:
        """Send pending output, and handle input that arrives within `timeout` seconds.

        Returns whether something happened that a caller may be waiting for. Raises Lost, Refused, and the
        exceptions of `serve`."""
        unsent = self._unsent
        self.send()
        if not self._read() and timeout > 0:
            if self._due:
                timeout = min(timeout, max(self._due - time.monotonic(), 0.001))
            waiting = poll()
            waiting.register(self._sock, POLLIN | POLLOUT if self._unsent else POLLIN)
            if waiting.poll(timeout * 1000):
                self.send()
                self._read()
        self._due = self._transport.tick(time.monotonic())
        wanted = self._events()
        self.send()
        return wanted or (unsent and not self._unsent)

    def send(self) -> None:
        """Send as much as the network accepts now."""
        transport, sock = self._transport, self._sock
        try:
            while (size := transport.pending()) > 0:
                sent = sock.send(transport.peek(size) or b"")
                transport.pop(sent)
        except _NOT_NOW:
            self._unsent = True
        except (OSError, ProtonException) as error:
            raise _lost(error) from None
        else:
            self._unsent = False

    def _read(self) -> bool:
        """Pass input to the engine. At the end of input, handle the last events, then raise Lost."""
        some = False
        for _ in range(_READS):
            try:
                data = self._sock.recv(_READ)
            except _NOT_NOW:
                return some
            except OSError as error:
                why = _lost(error)
                self._events()
                raise why from None
            if not data:
                self._events()
                raise Lost("closed by the broker without a reason")
            self._push(data)
            some = True
        return some

    def _push(self, data: bytes) -> None:
        transport, at = self._transport, 0
        try:
            while at < len(data):
                room = transport.capacity()
                if room <= 0:
                    self._events()
                    if (room := transport.capacity()) <= 0:
                        raise Lost("the protocol engine rejects what the broker sent")
                transport.push(data[at : at + room])
                at += room
        except ProtonException as error:
            self._events()
            raise Lost(str(error)) from None

    # -- events

    def _events(self) -> bool:
        wanted = False
        collector = self._collector
        while (event := collector.peek()) is not None:
            kind = event.type
            collector.pop()  # before the call: `serve` may re-enter this method
            if kind in _OTHERS:
                wanted |= self.serve(kind, event.context)
            else:
                self._event(kind)
        return wanted

    def _event(self, kind: EventType) -> None:
        if kind is Event.CONNECTION_REMOTE_OPEN:
            self._opened = True
        elif kind is Event.CONNECTION_REMOTE_CLOSE:
            self._closed = True
            if not self._closing:
                raise self._ending(self.engine.remote_condition)
        elif kind is Event.TRANSPORT_ERROR:
            raise Lost(str(self._transport.condition or "the protocol engine failed"))
        elif kind is Event.SESSION_REMOTE_CLOSE and not self._closing:
            self.ended = self.session.remote_condition
            raise Lost(f"the broker ended the session: {self.ended or 'no reason given'}")

    def _ending(self, condition: Condition | None) -> Lost | Refused:
        if condition is None:
            return Lost("closed by the broker")
        name, text = str(condition.name), condition.description or ""
        if name in _FOR_GOOD:
            return Refused(name, text)
        if name != FORCED:
            self.ended = condition
        return Lost(f"{name}: {text}")

    # -- the end

    def close(self) -> None:
        """Close the connection in order. Never raises for network errors."""
        self.serve = lambda _kind, _what: False
        self._closing = True
        until = time.monotonic() + _GOODBYE
        try:
            self.engine.close()
            while not self._closed and (left := until - time.monotonic()) > 0:
                self.pump(left)
        except (OSError, ProtonException):
            pass
        self.drop()

    def drop(self) -> None:
        """Close the socket without an AMQP close."""
        self._sock.close()
        self._transport.unbind()
        self._collector.release()

    def abandon(self) -> None:
        """In a forked child: close the socket's descriptor, and nothing else."""
        self._sock.close()


def _lost(error: Exception) -> Exception:
    """The exception to raise for `error`: Lost if it came from the socket or the engine.

    An OSError without an errno is the application's own, for example a TimeoutError that a signal handler
    raised. It is returned unchanged."""
    if isinstance(error, OSError) and error.errno is None and not isinstance(error, ssl.SSLError):
        return error
    return Lost(str(error))


def dial(
    address: HostPort, user: str, password: str, tls: ssl.SSLContext | None, until: float
) -> socket.socket:
    """Connect and log in; returns a non-blocking socket. Raises OSError, including Lost, and Refused."""
    sock = socket.create_connection((address.host, address.port), _left(until))
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock.settimeout(_left(until))
            sock = tls.wrap_socket(sock, server_hostname=address.host)
        _login(sock, user, password, until)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _left(until: float) -> float:
    """Seconds until `until`. Raises Lost if there are none."""
    left = until - time.monotonic()
    if left <= 0:
        raise Lost("it did not finish the handshake in time")
    return left


def _login(sock: socket.socket, user: str, password: str, until: float) -> None:
    """SASL PLAIN. Raises Lost, and Refused for a wrong password."""
    sock.sendall(SASL_HEADER)
    if _exactly(sock, len(SASL_HEADER), until) != SASL_HEADER:
        raise Lost("it does not speak AMQP 1.0")
    offered = _sasl(sock, _MECHANISMS, until)
    names = list(offered) if isinstance(offered, Array) else [offered]
    if "PLAIN" not in names:
        raise Refused(UNAUTHORIZED, f"it accepts no login by PLAIN, only by {', '.join(map(str, names))}")
    response = b"\0%b\0%b" % (user.encode(), password.encode())
    sock.sendall(frame(b"\0\x53%c%b" % (_INIT, write([Symbol("PLAIN"), response]))))
    code = _sasl(sock, _OUTCOME, until)
    if code == TEMPORARY:
        raise Lost("it cannot check passwords now")
    if code != OK:
        raise Refused(UNAUTHORIZED, f"login refused for user {user!r}")


def _sasl(sock: socket.socket, wanted: int, until: float) -> Any:
    """The first field of the next SASL frame."""
    head = _exactly(sock, 8, until)
    data = head + _exactly(sock, int.from_bytes(head[:4], "big") - 8, until)
    try:
        end = whole(data, 0, SASL, LARGEST_FRAME)
        value, _ = read(data, data[4] * 4, end)
    except (Fault, DecodeError) as error:
        raise Lost(f"malformed SASL frame: {error}") from None
    if not isinstance(value, Described) or value.descriptor != wanted or not value.value:
        raise Lost("unexpected SASL frame")
    return value.value[0]


def _exactly(sock: socket.socket, octets: int, until: float) -> bytes:
    if not 0 <= octets <= LARGEST_FRAME:
        raise Lost("malformed SASL frame")
    data = b""
    while len(data) < octets:
        sock.settimeout(_left(until))
        more = sock.recv(octets - len(data))
        if not more:
            raise Lost("it closed the connection during the handshake")
        data += more
    return data
