"""From where to where messages go: exchange, channel and queue, each pair with its counters.

Role: the details of one exchange, channel or queue (`incoming`, `outgoing`, `publishes`, `deliveries`) in
RabbitMQ's form. They look at all channels or queues of the virtual host, so lists do not have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.amqp091.server.connection import ServerConnection
from broker.model.statistics import Counts, Shares, sum_of
from ha.adapter.management.connection_name import connection_name
from ha.adapter.management.views.connections import clients
from ha.adapter.management.views.consumers import channel_name
from ha.adapter.management.views.rates import publish_stats, queue_stats

if TYPE_CHECKING:
    from broker.amqp091.server.channel import Channel
    from broker.connection import Connection
    from broker.model.queue.queue import Queue
    from broker.model.routing.exchange import Exchange
    from ha.adapter.management.views.view import Row, View


_MOST_QUEUES = 20_000
"""Queues that are looked at for one exchange: some 10 ms."""


class Opened(NamedTuple):
    """A channel, or an AMQP 1.0 connection (`channel` is None)."""

    connection: Connection
    channel: Channel | None
    counts: Counts

    @property
    def number(self) -> int:
        return 0 if self.channel is None else self.channel.number


def opened(connection: Connection) -> Iterator[Opened]:
    if isinstance(connection, ServerConnection):
        for channel in list(connection.channels.values()):
            if channel.is_open:
                yield Opened(connection, channel, channel.output.counts)
    else:
        yield Opened(connection, None, connection.counts)


def _went(found: Opened) -> dict[str, Counts]:
    """What clients published there, by exchange."""
    if found.channel is not None:
        return found.channel.output.went.parts(found.counts)
    went: Shares | None = getattr(found.connection, "went", None)  # AMQP 1.0 may not be installed
    return {} if went is None else went.parts(found.counts)


def _delivered(found: Opened) -> dict[Queue, Counts]:
    """What went there, by queue."""
    links = getattr(found.connection, "links", None)
    pairs: list[tuple[Queue, Counts]] = [] if links is None else list(links.delivered)
    if found.channel is not None:
        consumers = found.channel.consumers
        pairs = [(consumer.queue, consumer.counts) for consumer in consumers.by_tag.values()]
        pairs += consumers.got.items()
    by_queue: dict[Queue, list[Counts]] = {}
    for queue, counts in pairs:
        by_queue.setdefault(queue, []).append(counts)
    return {queue: some[0] if len(some) == 1 else sum_of(some) for queue, some in by_queue.items()}


def _came(queue: Queue) -> dict[str, Counts]:
    """What came to the queue, by exchange."""
    return {} if queue.came is None else queue.came.parts(queue.counts)


def _channels(vhost: str, view: View) -> Iterator[Opened]:
    for connection in clients(view):
        if connection.vhost.name == vhost:
            yield from opened(connection)


def _channel(found: Opened) -> Row:
    connection, peer = found.connection, found.connection.peer
    return {
        "connection_name": connection_name(connection), "name": channel_name(connection, found.number),
        "number": found.number, "peer_host": peer.host, "peer_port": peer.port, "user": connection.user,
    }  # fmt: skip


def _named(name: str, vhost: str) -> dict[str, Any]:
    return {"name": name, "vhost": vhost}


# -- of a queue


def incoming_of_queue(queue: Queue, view: View) -> list[Row]:
    return [
        {"exchange": _named(name, queue.vhost), "stats": publish_stats(counts, view)}
        for name, counts in _came(queue).items()
    ]


def deliveries_of_queue(queue: Queue, view: View) -> list[Row]:
    return [
        {"channel_details": _channel(found), "stats": delivery_stats(counts, view)}
        for found in _channels(queue.vhost, view)
        if (counts := _delivered(found).get(queue)) is not None
    ]


# -- of an exchange


def incoming_of_exchange(exchange: Exchange, view: View) -> list[Row]:
    return [
        {"channel_details": _channel(found), "stats": publish_stats(counts, view)}
        for found in _channels(exchange.vhost, view)
        if (counts := _went(found).get(exchange.name)) is not None
    ]


def outgoing_of_exchange(exchange: Exchange, view: View) -> list[Row]:
    return [
        {"queue": _named(queue.name, queue.vhost), "stats": publish_stats(counts, view)}
        for queue in list(islice(view.node.vhosts[exchange.vhost].queues.values(), _MOST_QUEUES))
        if (counts := _came(queue).get(exchange.name)) is not None
    ]


# -- of a channel


def publishes_of_channel(found: Opened, view: View) -> list[Row]:
    vhost = found.connection.vhost.name
    return [
        {"exchange": _named(name, vhost), "stats": publish_stats(counts, view)}
        for name, counts in _went(found).items()
    ]


def deliveries_of_channel(found: Opened, view: View) -> list[Row]:
    return [
        {"queue": _named(queue.name, queue.vhost), "stats": delivery_stats(counts, view)}
        for queue, counts in _delivered(found).items()
    ]


def delivery_stats(counts: Counts, view: View) -> dict[str, Any]:
    found = queue_stats(counts, view)
    return {name: value for name, value in found.items() if not name.startswith("publish")}
