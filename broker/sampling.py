"""Takes samples of the counters, for rates and charts. Pure: the driver says when, and what time it is.

Owner: the node's management. A pass goes over everything in steps, so that no step holds anybody up. Objects
that come or go during a pass are in the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.amqp091.server.connection import ServerConnection
from broker.model.queue.contents import Mode
from broker.model.statistics import PROTOCOLS, Counts, sum_of

if TYPE_CHECKING:
    from broker.amqp091.server.channel import Channel
    from broker.connection import Connection
    from broker.model.queue.queue import Queue
    from broker.model.vhost.vhosts import VirtualHosts

EVERY = 5.0
"""Seconds between passes."""
STEP = 200
"""Objects in one step: some 0.5 ms."""
LONG = 721
"""Samples kept of virtual hosts and of the node: those of an hour."""


class Sampled(Protocol):
    """A broker."""

    vhosts: VirtualHosts
    connections: dict[Connection, None]


class Lengths(NamedTuple):
    """Messages in queues."""

    messages: int = 0
    ready: int = 0
    unacked: int = 0

    def plus(self, other: Lengths) -> Lengths:
        return Lengths(self[0] + other[0], self[1] + other[1], self[2] + other[2])


NOTHING = Lengths()


def lengths_of(queue: Queue) -> Lengths:
    """Of a copy on a backup: all of its messages are ready."""
    if queue.mode is Mode.REPLICA:
        return Lengths(queue.replica.count, queue.replica.count, 0)
    ready, unacked = queue.message_count, queue.unacked_count
    return Lengths(ready + unacked, ready, unacked)


def _sample_channel(channel: Channel, now: float) -> None:
    output, consumers = channel.output, channel.consumers
    output.counts.sample(now)
    output.went.sample(output.counts, now)
    for consumer in consumers.by_tag.values():
        consumer.counts.sample(now, kept=2)
    for counts in consumers.got.values():
        counts.sample(now, kept=2)


class Sampler:
    """`lengths`: messages in the queues of each virtual host at the last pass; `consumers`: of these queues.
    `vhosts`: the counters of each virtual host, of all protocols, and `node`: those of all together, with
    their samples."""

    def __init__(self, broker: Sampled) -> None:
        self._broker = broker
        self.began: float | None = None
        """When the node started, on its clock."""
        self.lengths: dict[str, Lengths] = {}
        self.consumers: dict[str, int] = {}
        self.vhosts: dict[str, Counts] = {}
        self.node = Counts()

    def passes(self, now: float) -> Iterator[None]:
        """One pass; each item is the end of a step."""
        broker, vhosts = self._broker, self._broker.vhosts
        lengths: dict[str, Lengths] = {}
        consumers: dict[str, int] = {}
        left = STEP
        for queue in list(vhosts.queues_by_uuid.values()):
            found = lengths_of(queue)
            queue.counts.sample(now, found)
            if queue.came is not None:
                queue.came.sample(queue.counts, now)
            lengths[queue.vhost] = lengths.get(queue.vhost, NOTHING).plus(found)
            if queue.consumers:
                consumers[queue.vhost] = consumers.get(queue.vhost, 0) + len(queue.consumers)
            if not (left := left - 1):
                left = STEP
                yield
        for vhost in list(vhosts):
            for exchange in list(vhost.exchanges.values()):
                if exchange.counts.publish or exchange.counts.routed:
                    exchange.counts.sample(now)
                if not (left := left - 1):
                    left = STEP
                    yield
        for connection in list(broker.connections):
            connection.counts.sample(now, (connection.received_octets, connection.sent_octets))
            left -= 1
            if isinstance(connection, ServerConnection):
                for channel in list(connection.channels.values()):
                    _sample_channel(channel, now)
                    left -= 1 + len(channel.consumers.by_tag)
            if left <= 0:
                left = STEP
                yield
        self.consumers = consumers
        self._totals(now, lengths)

    def _totals(self, now: float, lengths: dict[str, Lengths]) -> None:
        self.lengths = lengths
        known, self.vhosts = self.vhosts, {}
        for vhost in self._broker.vhosts:
            counts = sum_of([tally.total() for tally in vhost.counts.values()])
            counts.samples = known[vhost.name].samples if vhost.name in known else None
            counts.sample(now, lengths.get(vhost.name, NOTHING), LONG)
            self.vhosts[vhost.name] = counts
        node = sum_of([self._broker.vhosts.totals(protocol) for protocol in PROTOCOLS])
        node.samples = self.node.samples
        total = NOTHING
        for found in lengths.values():
            total = total.plus(found)
        node.sample(now, (*total, *self._broker.vhosts.churn.values()), LONG)
        self.node = node
