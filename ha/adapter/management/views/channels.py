"""Channels. An AMQP 1.0 connection, whose links have no channels of their own, is told as one, number 0."""

from __future__ import annotations

from typing import Any

from ha.adapter.management.connection_name import connection_name
from ha.adapter.management.views.connections import clients
from ha.adapter.management.views.consumers import CONSUMERS, Consuming, channel_name
from ha.adapter.management.views.flows import (
    Opened,
    deliveries_of_channel,
    opened,
    publishes_of_channel,
)
from ha.adapter.management.views.rates import channel_stats
from ha.adapter.management.views.view import Column, Row, Table, View


def _unacked(found: Opened) -> int:
    return 0 if found.channel is None else len(found.channel.unacked)


def _consumers(found: Opened) -> int:
    if found.channel is not None:
        return len(found.channel.consumers.by_tag)
    links = getattr(found.connection, "links", None)  # AMQP 1.0 may not be installed
    return 0 if links is None else int(links.consumers)


def unconfirmed(found: Opened) -> int:
    channel = found.channel
    if channel is None or not channel.confirming:
        return 0
    return channel.next_publish_tag - 1 - channel.output.held.confirmed


def uncommitted(found: Opened, *, acks: bool) -> int:
    transaction = None if found.channel is None else found.channel.transaction
    if transaction is None:
        return 0
    if acks:
        return sum([len(run.entries) for _, runs in transaction.settlements for run in runs])
    return sum([len(run.raws) for run in transaction.publishes])


def limits(found: Opened) -> tuple[int, int]:
    return (0, 0) if found.channel is None else found.channel.consumers.limits


def _connection(found: Opened, view: View) -> dict[str, Any]:
    peer = found.connection.peer
    return {"name": connection_name(found.connection), "peer_host": peer.host, "peer_port": peer.port}


def _consumer_details(found: Opened, view: View) -> list[Row]:
    if found.channel is None:
        return []
    consumers = list(found.channel.consumers.by_tag.values())
    return [
        CONSUMERS.row(Consuming(consumer.queue, consumer, found.connection, found.number), view)
        for consumer in consumers
    ]


_COLUMNS: dict[str, Column[Opened]] = {
    "acks_uncommitted": lambda found, view: uncommitted(found, acks=True),
    "confirm": lambda found, view: found.channel is None or found.channel.confirming,
    "connection_details": _connection,
    "consumer_count": lambda found, view: _consumers(found),
    "global_prefetch_count": lambda found, view: limits(found)[1],
    "message_stats": lambda found, view: channel_stats(found.counts, view),
    "messages_unacknowledged": lambda found, view: _unacked(found),
    "messages_uncommitted": lambda found, view: uncommitted(found, acks=False),
    "messages_unconfirmed": lambda found, view: unconfirmed(found),
    "name": lambda found, view: channel_name(found.connection, found.number),
    "node": lambda found, view: view.name,
    "number": lambda found, view: found.number,
    "pending_raft_commands": lambda found, view: 0,
    "prefetch_count": lambda found, view: limits(found)[0],
    "state": lambda found, view: "running",
    "transactional": lambda found, view: found.channel is not None and found.channel.transaction is not None,
    "user": lambda found, view: found.connection.user,
    "user_who_performed_action": lambda found, view: found.connection.user,
    "vhost": lambda found, view: found.connection.vhost.name,
}

CHANNELS: Table[Opened] = Table(
    items=lambda view: [found for connection in clients(view) for found in opened(connection)],
    vhost=lambda found: found.connection.vhost.name,
    owner=lambda found: found.connection.user,
    columns=_COLUMNS,
    details={
        "consumer_details": _consumer_details,
        "deliveries": deliveries_of_channel,
        "publishes": publishes_of_channel,
    },
    plain=tuple(name for name in _COLUMNS if name != "message_stats"),
)
