"""What the metrics tell of connections and channels. Reads their state, changes nothing.

An AMQP 1.0 connection is one row of channels: it counts all of its links together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from broker.amqp091.server.connection import ServerConnection
from broker.model.statistics import AMQP10
from ha.adapter.management.connection_name import connection_name
from understudy.http.metrics.exposition import labels_of

if TYPE_CHECKING:
    from broker.amqp10.connection import Amqp10Connection  # it needs an extra
    from broker.connection import Connection
    from broker.engine import Broker
    from broker.model.statistics import Counts


class ConnectionRow(NamedTuple):
    """The label is called `channel`, as in RabbitMQ."""

    labels: str
    received_octets: int
    sent_octets: int
    received_count: int
    sent_count: int
    unsent: int
    channels: int


class ChannelRow(NamedTuple):
    labels: str
    protocol: str
    counts: Counts
    consumers: int
    unacked: int

    @property
    def publishers(self) -> int:
        """1 if it has published."""
        return int(self.counts.publish > 0)


def connection_rows(broker: Broker) -> Iterator[ConnectionRow | None]:
    """A row for each client; None for another connection, so that the caller can measure its time."""
    for connection in list(broker.connections):
        yield _connection(connection) if _is_client(connection) else None


def channel_rows(broker: Broker) -> Iterator[ChannelRow | None]:
    for connection in list(broker.connections):
        if not _is_client(connection):
            yield None
        elif isinstance(connection, ServerConnection):
            for channel in list(connection.channels.values()):
                labels = labels_of({"channel": f"{connection_name(connection)} ({channel.number})"})
                consumers, unacked = len(channel.consumers.by_tag), len(channel.unacked)
                yield ChannelRow(labels, connection.protocol, channel.output.counts, consumers, unacked)
        elif connection.protocol == AMQP10:
            one = cast("Amqp10Connection", connection)
            labels = labels_of({"channel": connection_name(one)})
            yield ChannelRow(labels, AMQP10, one.counts, one.links.consumers, one.links.unsettled)


def _connection(connection: Connection) -> ConnectionRow:
    return ConnectionRow(
        labels=labels_of({"channel": connection_name(connection)}),
        received_octets=connection.received_octets,
        sent_octets=connection.sent_octets,
        received_count=connection.received_count,
        sent_count=connection.sent_count,
        unsent=connection.unsent,
        channels=_channels(connection),
    )


def _is_client(connection: Connection) -> bool:
    return connection.let_in and not connection.is_management and not connection.gone


def _channels(connection: Connection) -> int:
    return len(connection.channels) if isinstance(connection, ServerConnection) else 0
