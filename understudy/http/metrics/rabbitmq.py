"""The three pages of RabbitMQ's metrics, as generators of small pieces of text.

- `aggregated`: one sample a metric, over all objects.
- `per_object`: a sample for each object.
- `detailed`: only the groups that were asked for, with other prefixes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from understudy.http.metrics import node_rows
from understudy.http.metrics.families import QUEUES, VHOSTS
from understudy.http.metrics.queue_rows import queue_rows
from understudy.http.metrics.text import Row, objects_text, samples_text, totals_text
from understudy.http.metrics.vhost_rows import exchange_rows, vhost_rows

if TYPE_CHECKING:
    from broker.engine import Broker
    from ha.adapter.node import Node

_PREFIX = "rabbitmq_"
_DETAILED = "rabbitmq_detailed_"
_CLUSTER = "rabbitmq_cluster_"
_ALL_QUEUES = (*QUEUES["queue_coarse_metrics"], *QUEUES["queue_metrics"])


def aggregated(node: Node) -> Iterator[str]:
    yield from _of_node(node)
    yield from totals_text(_PREFIX, _ALL_QUEUES, queue_rows(node.vhosts))


def per_object(node: Node) -> Iterator[str]:
    yield from _of_node(node)
    yield from objects_text(_PREFIX, _ALL_QUEUES, queue_rows(node.vhosts))


def detailed(node: Node, groups: Collection[str], vhosts: Collection[str] | None) -> Iterator[str]:
    """`groups` that are not there are ignored, as in RabbitMQ. `vhosts`: names; None for all."""
    wanted = [name for name in QUEUES if name in groups]
    if "queue_metrics" in wanted and "queue_consumer_count" in wanted:
        wanted.remove("queue_consumer_count")  # the other group has it
    if wanted:
        columns = [column for name in wanted for column in QUEUES[name]]
        yield from objects_text(_DETAILED, columns, queue_rows(node.vhosts, vhosts))
    for name, columns_of_group in VHOSTS.items():
        if name in groups:
            yield from objects_text(_CLUSTER, columns_of_group, _rows_of(name, node.broker))
    yield from samples_text(_PREFIX, node_rows.identity(node.broker, node.status()))


def _of_node(node: Node) -> Iterator[str]:
    broker, status = node.broker, node.status()
    yield from samples_text(_PREFIX, node_rows.identity(broker, status))
    yield from samples_text(_PREFIX, node_rows.resources(broker))
    yield from samples_text(_PREFIX, node_rows.alarms(broker))
    yield from samples_text(_PREFIX, node_rows.peers(status))


def _rows_of(group: str, broker: Broker) -> Iterable[Row]:
    return vhost_rows(broker.vhosts) if group == "vhost_status" else exchange_rows(broker.vhosts)
