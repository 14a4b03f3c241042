"""RabbitMQ's metrics that this broker has, by RabbitMQ's groups: names, types, and what they mean here.

Data only. The names of the groups are what `family=` of `/metrics/detailed` takes. Names are without their
prefix, such as `rabbitmq_`. `field` of a column is an attribute of the group's rows (`queue_rows`,
`vhost_rows`). docs/reference/metrics.md lists the metrics of RabbitMQ that are absent, and why.
"""

from __future__ import annotations

from typing import NamedTuple

from understudy.http.metrics.exposition import Family


class Column(NamedTuple):
    """One metric of the objects in a group."""

    family: Family
    field: str


def _gauge(name: str, field: str, text: str) -> Column:
    return Column(Family(name, "gauge", text), field)


def _counter(name: str, field: str, text: str) -> Column:
    return Column(Family(f"{name}_total", "counter", text), field)


QUEUE_CONSUMERS = _gauge("queue_consumers", "consumers", "Consumers of the queue")

QUEUES: dict[str, tuple[Column, ...]] = {
    "queue_coarse_metrics": (
        _gauge("queue_messages_ready", "ready", "Messages that wait for a consumer"),
        _gauge("queue_messages_unacked", "unacked", "Messages that consumers hold without an ack"),
        _gauge("queue_messages", "messages", "All messages of the queue: ready and unacknowledged"),
    ),
    "queue_consumer_count": (QUEUE_CONSUMERS,),
    "queue_metrics": (
        QUEUE_CONSUMERS,
        _gauge("queue_process_memory_bytes", "memory", "Approximate memory of the queue and its messages"),
        _gauge("queue_messages_ram", "in_memory", "Messages in memory"),
        _gauge("queue_messages_ram_bytes", "in_memory_bytes", "Approximate size of messages in memory"),
        _gauge("queue_messages_ready_ram", "ready_in_memory", "Ready messages in memory"),
        _gauge("queue_messages_unacked_ram", "unacked", "Unacknowledged messages, all in memory"),
        _gauge("queue_messages_bytes", "bytes", "Approximate size of all messages"),
        _gauge("queue_messages_ready_bytes", "ready_bytes", "Approximate size of ready messages"),
        _gauge(
            "queue_messages_unacked_bytes", "unacked_bytes", "Approximate size of unacknowledged messages"
        ),
        _gauge("queue_messages_paged_out", "paged_out", "Messages on disk and not in memory"),
        _gauge(
            "queue_messages_paged_out_bytes", "paged_out_bytes", "Approximate size of messages on disk only"
        ),
    ),
}
"""Groups of queues. Only these obey `vhost=`, as in RabbitMQ."""

VHOSTS: dict[str, tuple[Column, ...]] = {
    "vhost_status": (_gauge("vhost_status", "works", "1 for each virtual host"),),
    "exchange_bindings": (_gauge("exchange_bindings", "bindings", "Bindings of the exchange"),),
    "exchange_names": (_gauge("exchange_name", "works", "1 for each exchange"),),
}
"""Groups that only `/metrics/detailed` has. A backup tells the same as its primary."""
