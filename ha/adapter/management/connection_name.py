"""The name by which operators know a client's connection: its address, and the node that it leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.connection import Connection


def connection_name(connection: Connection) -> str:
    """Unique among the connections of a node, as long as the connection lasts."""
    return f"{connection.peer.address} -> {connection.settings.name}"
