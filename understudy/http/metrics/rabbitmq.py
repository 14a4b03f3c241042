"""The three pages of RabbitMQ's metrics, as generators of small pieces of text.

- `aggregated`: one sample a metric, over all objects.
- `per_object`: a sample for each object.
- `detailed`: only the groups that were asked for, with other prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.model.statistics import PROTOCOLS, Counts, sum_of
from understudy.http.metrics import counters, families, node_rows
from understudy.http.metrics.client_rows import channel_rows, connection_rows
from understudy.http.metrics.families import Column
from understudy.http.metrics.queue_rows import arrival_rows, queue_rows
from understudy.http.metrics.text import Row, objects_text, protocols_text, samples_text, totals_text
from understudy.http.metrics.vhost_rows import counted_rows, exchange_rows, vhost_rows

if TYPE_CHECKING:
    from ha.adapter.node import Node

_PREFIX = "rabbitmq_"
_DETAILED = "rabbitmq_detailed_"
_CLUSTER = "rabbitmq_cluster_"


class _All(NamedTuple):
    """All channels, or queues, that there ever were, as one row."""

    counts: Counts
    labels: str = ""


def aggregated(node: Node) -> Iterator[str]:
    """Counters of messages are those of the node: they do not fall when a channel or queue goes."""
    vhosts, broker = node.vhosts, node.broker
    yield from _of_node(node)
    yield from _clients(node)
    yield from totals_text(_PREFIX, _columns(families.QUEUES), queue_rows(vhosts))
    yield from totals_text(_PREFIX, _columns(families.CHANNELS), channel_rows(broker))
    yield from totals_text(_PREFIX, _columns(families.CONNECTIONS), connection_rows(broker))
    all_counts = [vhosts.totals(protocol) for protocol in PROTOCOLS]
    counted = _columns(families.CHANNEL_COUNTS | families.QUEUE_DELIVERIES | families.EXCHANGE_COUNTS)
    yield from totals_text(_PREFIX, counted, [_All(sum_of(all_counts))])
    into_queues = Counts()
    into_queues.publish = sum(counts.routed for counts in all_counts)
    yield from totals_text(_PREFIX, _columns(families.QUEUE_ARRIVALS), [_All(into_queues)])


def per_object(node: Node) -> Iterator[str]:
    yield from _of_node(node)
    yield from _clients(node)
    for kind in _KINDS:
        columns = _columns(kind.groups)
        yield from objects_text(_PREFIX, columns, kind.rows(node, None))


def detailed(node: Node, groups: Collection[str], vhosts: Collection[str] | None) -> Iterator[str]:
    """`groups` that are not there are ignored, as in RabbitMQ. `vhosts`: names; None for all."""
    for kind in (*_KINDS, *_CLUSTER_KINDS):
        wanted = {name: columns for name, columns in kind.groups.items() if name in groups}
        if wanted:
            yield from objects_text(kind.prefix, _columns(wanted), kind.rows(node, vhosts))
    yield from samples_text(_PREFIX, node_rows.identity(node.broker, node.status()))


def _columns(groups: dict[str, tuple[Column, ...]]) -> Sequence[Column]:
    """Each once: one group has a metric of another."""
    return list(dict.fromkeys(column for columns in groups.values() for column in columns))


def _clients(node: Node) -> Iterator[str]:
    """Totals only: no object has these."""
    yield from totals_text(_PREFIX, [families.CONSUMERS], channel_rows(node.broker))
    yield from protocols_text(_PREFIX, families.CLIENTS, channel_rows(node.broker))


def _of_node(node: Node) -> Iterator[str]:
    broker, status = node.broker, node.status()
    yield from samples_text(_PREFIX, node_rows.identity(broker, status))
    yield from samples_text(_PREFIX, node_rows.resources(broker))
    yield from samples_text(_PREFIX, node_rows.alarms(broker))
    yield from samples_text(_PREFIX, node_rows.peers(status))
    yield from samples_text(_PREFIX, node_rows.totals(broker))
    yield from samples_text(_PREFIX, counters.messages(broker))
    yield from samples_text(_PREFIX, counters.churn(broker))
    yield from samples_text(_PREFIX, counters.logins(broker))


class _Kind(NamedTuple):
    """Objects of one kind. `rows`: of the node, and in these virtual hosts where that makes a difference."""

    groups: dict[str, tuple[Column, ...]]
    rows: Callable[[Node, Collection[str] | None], Iterable[Row | None]]
    prefix: str = _DETAILED


_KINDS = (
    _Kind(families.QUEUES | families.QUEUE_DELIVERIES, lambda node, vhosts: queue_rows(node.vhosts, vhosts)),
    _Kind(families.QUEUE_ARRIVALS, lambda node, vhosts: arrival_rows(node.vhosts, vhosts)),
    _Kind(families.EXCHANGE_COUNTS, lambda node, _: counted_rows(node.vhosts)),
    _Kind(families.CHANNELS | families.CHANNEL_COUNTS, lambda node, _: channel_rows(node.broker)),
    _Kind(families.CONNECTIONS, lambda node, _: connection_rows(node.broker)),
)
_CLUSTER_KINDS = (
    _Kind(families.VHOSTS, lambda node, _: vhost_rows(node.vhosts), _CLUSTER),
    _Kind(families.EXCHANGES, lambda node, _: exchange_rows(node.vhosts), _CLUSTER),
)
