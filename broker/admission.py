"""Who has logged in, by user and by virtual host, and whether the limits of both have room for more.

Owner: `Broker`. The limits are entries of the directory. As in RabbitMQ, a limit that becomes smaller closes
nothing: it refuses whoever comes next. Peers and operators do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.errors import NotAllowed
from broker.model.vhost.directory import USER_LIMITS, VHOST_LIMITS, Directory

if TYPE_CHECKING:
    from collections.abc import Hashable

CONNECTIONS, CHANNELS = "max-connections", "max-channels"


class Client(Protocol):
    """A connection."""

    @property
    def user(self) -> str: ...
    @property
    def open_channels(self) -> int: ...
    def __hash__(self) -> int: ...


class Admission:
    """`directory`: with the limits."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._of: dict[tuple[str, str], dict[Client, None]] = {}
        """By kind of limits, and name of the virtual host or user."""
        self._vhosts: dict[Hashable, str] = {}

    def check(self, user: str, vhost: str) -> None:
        """Raises NotAllowed if one more connection of the user, or in the virtual host, is too many."""
        if (most := self._full(VHOST_LIMITS, vhost)) is not None:
            raise NotAllowed(
                f"access to vhost '{vhost}' refused for user '{user}': connection limit ({most}) is reached",
                10, 40,
            )  # fmt: skip
        if (most := self._full(USER_LIMITS, user)) is not None:
            raise NotAllowed(
                f"connection refused for user '{user}': user connection limit ({most}) is reached", 10, 40
            )

    def check_channel(self, user: str) -> None:
        """Raises NotAllowed if one more channel of the user is too many."""
        most = self._directory.limit(USER_LIMITS, user, CHANNELS)
        if most is None:
            return
        opened = sum([client.open_channels for client in self._of.get((USER_LIMITS, user), ())])
        if opened >= most:
            raise NotAllowed(
                f"number of channels opened for user '{user}' has reached the maximum allowed user limit "
                f"of ({most})"
            )

    def _full(self, kind: str, of: str) -> int | None:
        """The limit, if it is reached."""
        most = self._directory.limit(kind, of, CONNECTIONS)
        return most if most is not None and len(self._of.get((kind, of), ())) >= most else None

    def enter(self, client: Client, vhost: str) -> None:
        """The connection is open."""
        self._vhosts[client] = vhost
        for key in ((VHOST_LIMITS, vhost), (USER_LIMITS, client.user)):
            self._of.setdefault(key, {})[client] = None

    def leave(self, client: Client) -> None:
        """The connection is closed. Idempotent."""
        vhost = self._vhosts.pop(client, None)
        if vhost is None:
            return
        for key in ((VHOST_LIMITS, vhost), (USER_LIMITS, client.user)):
            there = self._of.get(key, {})
            there.pop(client, None)
            if not there:
                self._of.pop(key, None)
