"""Limits on open sockets: places for clients, and a reserve for connections that have not logged in.

Owner: `Shell`. Peers and operators must be able to connect however many clients there are, and a connection
is unknown before its login. So there are more places than clients may have. A client above its limit is
refused after its login (`Broker.clients_max`). When no place is left, the connection that has been longest
without a login is closed. A listener for peers has its own places.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from broker.security.access import Door


class Caller(Protocol):
    """A socket that wants or has a place."""

    @property
    def door(self) -> Door:
        """The kind of connections that its listener accepts."""

    @property
    def let_in(self) -> bool:
        """Whether it has logged in."""


Socket = TypeVar("Socket", bound=Caller)


class Places(Generic[Socket]):
    """`clients` places and `reserve` more; also `reserve` for each listener of peers."""

    def __init__(self, clients: int, reserve: int) -> None:
        self.clients, self.reserve = clients, reserve
        self._taken: dict[Socket, None] = {}
        self._peers: dict[Socket, None] = {}
        self._logging_in: dict[Socket, None] = {}
        """Sockets that had not logged in at the last look, in order of arrival."""

    def __len__(self) -> int:
        return len(self._taken) + len(self._peers)

    def all(self) -> list[Socket]:
        return [*self._taken, *self._peers]

    def enter(self, socket: Socket) -> tuple[bool, Socket | None]:
        """Give a socket a place. Returns whether it got one, and the socket to close for it, if any."""
        places, most = self._taken, self.clients + self.reserve
        if socket.door is Door.PEERS:
            places, most = self._peers, self.reserve
        goes = None
        if len(places) >= most:
            goes = self._longest_logging_in(places)
            if goes is None:
                return False, None
            self.leave(goes)
        places[socket] = None
        self._logging_in[socket] = None
        return True, goes

    def leave(self, socket: Socket) -> None:
        """Free a place. Idempotent."""
        for places in (self._taken, self._peers, self._logging_in):
            places.pop(socket, None)

    def _longest_logging_in(self, places: dict[Socket, None]) -> Socket | None:
        for socket in list(self._logging_in):
            if socket.let_in:
                del self._logging_in[socket]
            elif socket in places:
                return socket
        return None
