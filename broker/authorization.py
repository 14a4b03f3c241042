"""What the permission of a stored user in a virtual host allows it to do with queues and exchanges.

Owner: a connection. Its `access` is None for a user from the configuration, who may do everything. Each
operation calls `demand` first. The required permissions and the texts are RabbitMQ's
(https://www.rabbitmq.com/docs/access-control#authorisation). Grants are cached until the directory changes:
so a publisher pays once for a run, and a change takes effect at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.errors import AccessRefused, NotAllowed
from broker.model.routing.exchange import PEERS, copy_keys
from broker.model.values import ExchangeType
from broker.model.vhost.directory import Directory
from broker.security.identity import ADMINISTRATOR, Kind, What

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.model.vhost.vhost import VirtualHost
    from broker.security.topic_permissions import Topical

DEFAULT_EXCHANGE = "amq.default"
"""The name of the default exchange in permissions."""
_MEMO = 1024


class Client(Protocol):
    """The connection that wants to do something."""

    user: str
    tags: frozenset[str]

    @property
    def access(self) -> Access | None: ...
    @property
    def vhost(self) -> VirtualHost: ...
    def matched_slowly(self) -> None: ...


class Access:
    """The rights of one stored user in one virtual host."""

    __slots__ = ("_allowed", "_directory", "_generation", "_topics", "_user", "_vhost")

    def __init__(self, directory: Directory, user: str, vhost: str) -> None:
        self._directory = directory
        self._user = user
        self._vhost = vhost
        self._generation = -1
        self._allowed: set[tuple[What, str]] = set()
        self._topics: set[tuple[Topical, str, str]] = set()

    def check_open(self) -> None:
        """Check connection.open. Raises NotAllowed (530) if the user has no permission in this virtual
        host."""
        if (self._vhost, self._user) not in self._directory.permissions:
            raise NotAllowed(
                f"access to vhost '{self._vhost}' refused for user '{self._user}'", 10, 40
            )  # fmt: skip

    def demand(self, connection: Client, what: What, kind: Kind, name: str) -> None:
        """Raises AccessRefused without the permission. A slow pattern match counts toward the connection's
        share."""
        directory, allowed = self._directory, self._allowed
        if self._generation != directory.generation:
            self._generation = directory.generation
            allowed.clear()
            self._topics.clear()
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

    def demand_topic(self, connection: Client, what: Topical, exchange: str, key: str) -> None:
        """Call it after `demand` for the exchange. Raises AccessRefused if the user has a topic permission
        for it, and this routing key does not match."""
        patterns = self._directory.topic_permissions.get((self._vhost, self._user))
        permission = patterns.get(exchange) if patterns else None
        if permission is None or (what, exchange, key) in self._topics:
            return
        found = connection.vhost.exchanges.get(exchange)
        if found is None or found.routes_as is not ExchangeType.TOPIC:
            return
        if not permission.allows(what, key, self._user, self._vhost, connection.matched_slowly):
            raise AccessRefused(
                f"{what} access to topic '{key}' in exchange '{exchange}' in vhost '{self._vhost}' "
                f"refused for user '{self._user}'"
            )
        if len(self._topics) >= _MEMO:
            self._topics.clear()
        self._topics.add((what, exchange, key))


def demand(connection: Client, what: What, kind: Kind, name: str) -> None:
    """Raises AccessRefused if the connection's user may not do this."""
    if name == PEERS and kind == "exchange":
        _demand_peers(connection, what)
    if connection.access is not None:
        connection.access.demand(connection, what, kind, name)


def demand_topic(connection: Client, what: Topical, exchange: str, key: str) -> None:
    """Raises AccessRefused if the connection's user may not use this routing key at a topic exchange."""
    if connection.access is not None:
        connection.access.demand_topic(connection, what, exchange, key)


def demand_copies(connection: Client, exchange: str, headers: Mapping[str, object]) -> None:
    """The same for a message's further routing keys (`CC`, `BCC`)."""
    if connection.access is not None:
        for key in copy_keys(headers):
            connection.access.demand_topic(connection, "write", exchange, key)


def _demand_peers(connection: Client, what: What) -> None:
    """An administrator may watch what the nodes of a pair say to each other."""
    if what != "read" or ADMINISTRATOR not in connection.tags:
        raise AccessRefused(
            f"{what} access to exchange '{PEERS}' refused for user '{connection.user}': it is for the nodes "
            "of the pair; an administrator may bind exclusive queues"
        )


def _demand_no_peers(leads_to: object) -> None:
    """Nothing is forwarded to the nodes of a pair."""
    if leads_to == PEERS:
        raise AccessRefused(f"write access to exchange '{PEERS}' refused: it is for the nodes of the pair")


def demand_exchange(connection: Client, name: str, arguments: dict[str, object]) -> None:
    """Check exchange.declare. Raises AccessRefused."""
    if name == PEERS:
        _demand_peers(connection, "configure")
    _demand_no_peers(arguments.get("alternate-exchange"))
    if connection.access is not None:
        leads_to = None if name in connection.vhost.exchanges else arguments.get("alternate-exchange")
        _demand_declaring(connection, connection.access, "exchange", name, leads_to)


def demand_queue(connection: Client, name: str, arguments: dict[str, object]) -> None:
    """Check queue.declare. Raises AccessRefused."""
    _demand_no_peers(arguments.get("x-dead-letter-exchange"))
    if connection.access is not None:
        leads_to = None if name in connection.vhost.queues else arguments.get("x-dead-letter-exchange")
        _demand_declaring(connection, connection.access, "queue", name, leads_to)


def _demand_declaring(connection: Client, access: Access, kind: Kind, name: str, leads_to: object) -> None:
    """Check a declaration. A new object that forwards messages to an exchange needs `read` on itself and
    `write` on that exchange."""
    access.demand(connection, "configure", kind, name)
    if isinstance(leads_to, str):
        access.demand(connection, "read", kind, name)
        access.demand(connection, "write", "exchange", leads_to)
