"""Which sockets may be open: places for clients, and some more for who has not said yet who it is.

Owner: `Shell`. Peers and operators must come in however many clients there are, and nobody knows who comes
before it has logged in. So there are more places than clients may have: a client that comes when those are
taken is refused once it has logged in (`Broker.clients_max`), and where no place is left, whoever has been
longest without logging in makes room. A listener for peers alone has places of its own.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from broker.security.access import Door


class Caller(Protocol):
    """Who wants a place, or has one."""

    @property
    def door(self) -> Door:
        """Whom the listener that it came by is for."""

    @property
    def let_in(self) -> bool:
        """Has it logged in?"""


Socket = TypeVar("Socket", bound=Caller)


class Places(Generic[Socket]):
    """`clients` places and `reserve` more; and `reserve` for each listener of peers."""

    def __init__(self, clients: int, reserve: int) -> None:
        self.clients, self.reserve = clients, reserve
        self._taken: dict[Socket, None] = {}
        self._peers: dict[Socket, None] = {}
        self._strangers: dict[Socket, None] = {}
        """Who had not logged in when this was last looked at, in order of arrival."""

    def __len__(self) -> int:
        return len(self._taken) + len(self._peers)

    def all(self) -> list[Socket]:
        return [*self._taken, *self._peers]

    def enter(self, socket: Socket) -> tuple[bool, Socket | None]:
        """Is there a place for it; and who has to go for that."""
        places, most = self._taken, self.clients + self.reserve
        if socket.door is Door.PEERS:
            places, most = self._peers, self.reserve
        goes = None
        if len(places) >= most:
            goes = self._longest_stranger(places)
            if goes is None:
                return False, None
            self.leave(goes)
        places[socket] = None
        self._strangers[socket] = None
        return True, goes

    def leave(self, socket: Socket) -> None:
        """Its place is free. Idempotent."""
        for places in (self._taken, self._peers, self._strangers):
            places.pop(socket, None)

    def _longest_stranger(self, places: dict[Socket, None]) -> Socket | None:
        for socket in list(self._strangers):
            if socket.let_in:
                del self._strangers[socket]
            elif socket in places:
                return socket
        return None
