"""What a stored user may do to queues and exchanges, as its permission of the virtual host says.

Owner: a connection, whose `access` is None for a user of the configuration, who may do everything.
`demand` stands before each operation; which permission each needs is RabbitMQ's table
(https://www.rabbitmq.com/docs/access-control#authorisation), and so are the texts. What was allowed is
remembered until the directory changes, so that publishers pay once for a run, and a change counts at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from broker.errors import AccessRefused, NotAllowed
from broker.model.vhost.directory import Directory

if TYPE_CHECKING:
    from broker.model.vhost.vhost import VirtualHost

What = Literal["configure", "write", "read"]
Kind = Literal["exchange", "queue"]

DEFAULT_EXCHANGE = "amq.default"
"""Its name for permissions: it has none of its own."""
_MEMO = 1024


class Client(Protocol):
    """A connection that wants to do something."""

    @property
    def access(self) -> Access | None: ...
    @property
    def vhost(self) -> VirtualHost: ...
    def matched_slowly(self) -> None: ...


class Access:
    """One stored user, in one virtual host."""

    __slots__ = ("_allowed", "_directory", "_generation", "_user", "_vhost")

    def __init__(self, directory: Directory, user: str, vhost: str) -> None:
        self._directory = directory
        self._user = user
        self._vhost = vhost
        self._generation = -1
        self._allowed: set[tuple[What, str]] = set()

    def check_open(self) -> None:
        """At connection.open. Raises 530 for whoever has no permission here at all."""
        if (self._vhost, self._user) not in self._directory.permissions:
            raise NotAllowed(
                f"access to vhost '{self._vhost}' refused for user '{self._user}'", 10, 40
            )  # fmt: skip

    def demand(self, connection: Client, what: What, kind: Kind, name: str) -> None:
        """A slow match is counted in the connection's share. Raises AccessRefused."""
        directory, allowed = self._directory, self._allowed
        if self._generation != directory.generation:
            self._generation = directory.generation
            allowed.clear()
        name = name or DEFAULT_EXCHANGE
        if (what, name) in allowed:
            return
        permission = directory.permissions.get((self._vhost, self._user))
        if permission is None or not permission.allows(what, name, connection.matched_slowly):
            raise AccessRefused(
                f"{what} access to {kind} '{name}' in vhost '{self._vhost}' refused for user '{self._user}'"
            )
        if len(allowed) >= _MEMO:
            allowed.clear()
        allowed.add((what, name))


def demand(connection: Client, what: What, kind: Kind, name: str) -> None:
    """Whoever is at the other end may do that. Raises AccessRefused."""
    if connection.access is not None:
        connection.access.demand(connection, what, kind, name)


def demand_exchange(connection: Client, name: str, arguments: dict[str, object]) -> None:
    """To declare it."""
    if connection.access is not None:
        leads_to = None if name in connection.vhost.exchanges else arguments.get("alternate-exchange")
        _demand_declaring(connection, connection.access, "exchange", name, leads_to)


def demand_queue(connection: Client, name: str, arguments: dict[str, object]) -> None:
    """To declare it."""
    if connection.access is not None:
        leads_to = None if name in connection.vhost.queues else arguments.get("x-dead-letter-exchange")
        _demand_declaring(connection, connection.access, "queue", name, leads_to)


def _demand_declaring(connection: Client, access: Access, kind: Kind, name: str, leads_to: object) -> None:
    """A new one that leads on to an exchange, by itself, reads from the one and writes to the other."""
    access.demand(connection, "configure", kind, name)
    if isinstance(leads_to, str):
        access.demand(connection, "read", kind, name)
        access.demand(connection, "write", "exchange", leads_to)
