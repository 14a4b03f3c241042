"""Limits the connections of an HTTP listener: how many there are, for how long, and which one is closed for a
new one.

Role: stands between the listener and aiohttp. aiohttp limits how long a connection may be idle, but neither
how long the head of a request may take nor the number of connections. Anybody who reaches the port can open
connections and send nothing, or send slowly. Such a connection keeps its place only until a new one needs it,
so that health checks get in. Owner: `HttpServer`, which reports the begin, the login and the end of each
request. Runs on the event loop; no call blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from broker.repeats import EVERY, Repeats
from broker.server.sockets import without_cycle
from understudy import codes
from understudy.shared.codes import Coded

VISITORS = 200
"""Maximum connections of each HTTP listener."""


@dataclass(slots=True, frozen=True)
class Limits:
    """In seconds."""

    head: float = 10.0
    """For the whole head of a request: from the opening of the connection, or from the first octet."""
    body: float = 30.0
    """For the body of a command."""
    upload: float = 120.0
    """For a whole file of definitions."""
    idle: float = 75.0
    """Between two requests, and for a client to read a response."""


LIMITS = Limits()


class Places:
    """Call `take` for each connection, then `begins`, `vouched` and `ends` for each of its requests."""

    def __init__(self, most: int, limits: Limits, log: Callable[[Coded], None]) -> None:
        self.limits = limits
        self._most = most
        self._vouched_most = max(1, most - max(1, most // 10))
        """The rest is reserved for clients that do not log in: health checks, metrics."""
        self._visits: set[_Visit] = set()
        self._by_transport: dict[asyncio.BaseTransport, _Visit] = {}
        self._repeats = Repeats(log)
        self._flush: asyncio.TimerHandle | None = None

    def take(self, inner: Callable[[], asyncio.Protocol]) -> asyncio.BaseProtocol:
        """A protocol for a new connection, around one that `inner` makes. If all places are taken, the
        connection that has been silent for longest makes room. Connections with a request of an administrator
        never do."""
        if len(self._visits) >= self._most:
            others = [visit for visit in self._visits if not visit.is_vouched]
            if not others:
                self.say(codes.HTTP_ALL_VOUCHED.say(places=self._most))
                return _Refused()
            silent = min(others, key=lambda visit: visit.heard_at)
            self.say(codes.HTTP_FULL.say(places=self._most, peer=silent.peer))
            silent.end()
        visit = _Visit(self, inner())
        self._visits.add(visit)
        return visit

    def begins(self, transport: asyncio.BaseTransport | None) -> None:
        """The head of a request has arrived."""
        if (visit := self._at(transport)) is not None:
            visit.begins()

    def vouched(self, transport: asyncio.BaseTransport | None) -> bool:
        """An administrator sent the request: its connection keeps its place until the request ends. False:
        too many connections have this right."""
        visit = self._at(transport)
        if visit is None or visit.is_vouched:
            return True
        if sum(each.is_vouched for each in self._visits) >= self._vouched_most:
            self.say(codes.HTTP_REQUESTS_FULL.say(requests=self._vouched_most))
            return False
        visit.is_vouched = True
        return True

    def ends(self, transport: asyncio.BaseTransport | None) -> None:
        """The response has been made, and is being sent."""
        if (visit := self._at(transport)) is not None:
            visit.ends()

    def close(self) -> None:
        """Stop logging."""
        if self._flush is not None:
            self._flush.cancel()

    def say(self, said: Coded, kind: str = "") -> None:
        """Log an event, at most one of a kind per second. The kind is the code, unless one is given."""
        loop = asyncio.get_running_loop()
        self._repeats.say(kind or said.code, said, loop.time())
        if self._flush is None:
            self._flush = loop.call_later(EVERY, self._say_rest)

    def _say_rest(self) -> None:
        loop = asyncio.get_running_loop()
        self._repeats.flush(loop.time())
        due = self._repeats.due
        self._flush = None if due is None else loop.call_at(due, self._say_rest)

    def _at(self, transport: asyncio.BaseTransport | None) -> _Visit | None:
        """None once the connection is closed."""
        return self._by_transport.get(transport) if transport is not None else None

    def entered(self, visit: _Visit, transport: asyncio.BaseTransport) -> None:
        self._by_transport[transport] = visit

    def left(self, visit: _Visit) -> None:
        self._visits.discard(visit)
        if visit.transport is not None:
            self._by_transport.pop(visit.transport, None)


class _Visit(asyncio.Protocol):
    """One connection. Passes everything on to `inner`."""

    def __init__(self, places: Places, inner: asyncio.Protocol) -> None:
        self._places = places
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._rests = self._has_ended = False
        self._has_begun = False
        """Whether a part of a request has arrived."""
        self.transport: asyncio.Transport | None = None
        self.peer = "somebody"
        self.is_vouched = False
        self.heard_at = self._loop.time()
        """Time of the last event: opened, head of a request complete, response made. No single octets."""

    # -- of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else "a process of this machine"
        if self._has_ended:  # its place was needed before its TLS handshake was done
            transport.abort()
            return
        self._places.entered(self, transport)
        self._inner.connection_made(transport)
        self._ring(self._places.limits.head)

    def data_received(self, data: bytes) -> None:
        self._has_begun = True
        if self._rests:
            self._rests = False
            self._ring(self._places.limits.head)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is not None:
            without_cycle(self.transport)
        self._silence()
        self._places.left(self)
        if self.transport is not None and not self._has_ended:
            self._inner.connection_lost(exc)

    # -- of its requests

    def begins(self) -> None:
        self.heard_at = self._loop.time()
        self._silence()

    def ends(self) -> None:
        self.heard_at = self._loop.time()
        self._rests, self._has_begun, self.is_vouched = True, False, False
        self._ring(self._places.limits.idle)

    def end(self) -> None:
        """Close at once, and free the place."""
        self._silence()
        self._places.left(self)
        if self.transport is not None:
            self.transport.abort()
        else:
            self._has_ended = True

    def _ring(self, seconds: float) -> None:
        self._silence()
        self._alarm = self._loop.call_later(seconds, self._late)

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _late(self) -> None:
        if self._has_begun:
            limit = self._places.limits.head
            self._places.say(codes.HTTP_SLOW.say(peer=self.peer, limit=limit), self.peer)
        self.end()


class _Refused(asyncio.Protocol):
    """A connection above the limit."""

    _transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        without_cycle(self._transport)
