"""What the metrics tell of connections and channels. Reads their state, changes nothing.

An AMQP 1.0 connection is one row of channels: it counts all of its links together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from broker.amqp091.server.connection import ServerConnection
from ha.adapter.management.connection_name import connection_name
from ha.adapter.management.views.channels import limits, uncommitted, unconfirmed
from ha.adapter.management.views.consumers import channel_name
from ha.adapter.management.views.flows import Opened, opened
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
    unconfirmed: int
    uncommitted: int
    acks_uncommitted: int
    prefetch: int
    global_prefetch: int

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
            continue
        for found in opened(connection):
            yield _channel(found)


def _channel(found: Opened) -> ChannelRow:
    connection, channel = found.connection, found.channel
    prefetch, global_prefetch = limits(found)
    if channel is not None:
        consumers, unacked = len(channel.consumers.by_tag), len(channel.unacked)
    else:
        links = cast("Amqp10Connection", connection).links
        consumers, unacked = links.consumers, links.unsettled
    return ChannelRow(
        labels=labels_of({"channel": channel_name(connection, found.number)}),
        protocol=connection.protocol,
        counts=found.counts,
        consumers=consumers,
        unacked=unacked,
        unconfirmed=unconfirmed(found),
        uncommitted=uncommitted(found, acks=False),
        acks_uncommitted=uncommitted(found, acks=True),
        prefetch=prefetch,
        global_prefetch=global_prefetch,
    )


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
