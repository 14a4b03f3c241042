"""The name by which operators know a client's connection: both of its addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.connection import Connection


def connection_name(connection: Connection) -> str:
    """As RabbitMQ's: unique among the connections of a node, as long as the connection lasts. The name of the
    node stands for its address if that is not known."""
    return f"{connection.peer.address} -> {connection.peer.local_address or connection.settings.name}"
