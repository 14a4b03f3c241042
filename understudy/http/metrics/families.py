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

QUEUE_ARRIVALS: dict[str, tuple[Column, ...]] = {
    "channel_queue_exchange_metrics": (
        _counter("queue_messages_published", "counts.publish", "Messages put into the queue"),
    ),
}
"""The labels are those of the queue, without RabbitMQ's channel and exchange."""

QUEUE_DELIVERIES: dict[str, tuple[Column, ...]] = {
    "queue_delivery_metrics": (
        _counter("queue_get_ack", "counts.get", "Messages by basic.get, with an ack"),
        _counter("queue_get", "counts.get_no_ack", "Messages by basic.get, without an ack"),
        _counter("queue_messages_delivered_ack", "counts.deliver", "Messages to consumers that ack"),
        _counter(
            "queue_messages_delivered", "counts.deliver_no_ack", "Messages to consumers that do not ack"
        ),
        _counter("queue_messages_redelivered", "counts.redeliver", "Messages that had been sent before"),
        _counter("queue_messages_acked", "counts.ack", "Acks of the queue's messages"),
        _counter("queue_get_empty", "counts.get_empty", "Answers to basic.get that there is no message"),
    ),
}
"""Counters of queues, as RabbitMQ has them since 4.0."""

EXCHANGE_COUNTS: dict[str, tuple[Column, ...]] = {
    "exchange_metrics": (
        _counter("exchange_messages_published", "counts.publish", "Messages that came to the exchange"),
    ),
}
"""Counters of exchanges, likewise."""

CONSUMERS = _gauge("consumers", "consumers", "Consumers")
CLIENTS = (
    _gauge("global_publishers", "publishers", "Channels that have published"),
    _gauge("global_consumers", "consumers", "Consumers"),
)
"""Over all objects only, by protocol."""

CHANNELS: dict[str, tuple[Column, ...]] = {
    "channel_metrics": (
        _gauge("channel_consumers", "consumers", "Consumers of the channel"),
        _gauge("channel_messages_unacked", "unacked", "Messages that the channel holds without an ack"),
        _gauge("channel_messages_unconfirmed", "unconfirmed", "Messages that wait for their confirm"),
        _gauge("channel_messages_uncommitted", "uncommitted", "Messages that wait for their commit"),
        _gauge("channel_acks_uncommitted", "acks_uncommitted", "Acks that wait for their commit"),
        _gauge("consumer_prefetch", "prefetch", "Limit of unacknowledged messages of each new consumer"),
        _gauge("channel_prefetch", "global_prefetch", "Limit of unacknowledged messages of the channel"),
    ),
}
CHANNEL_COUNTS: dict[str, tuple[Column, ...]] = {
    "channel_exchange_metrics": (
        _counter("channel_messages_published", "counts.publish", "Messages that the channel published"),
        _counter("channel_messages_confirmed", "counts.confirm", "Those that were confirmed"),
        _counter(
            "channel_messages_unroutable_returned",
            "counts.return_unroutable",
            "Mandatory messages that reached no queue and went back",
        ),
        _counter(
            "channel_messages_unroutable_dropped",
            "counts.drop_unroutable",
            "Messages that reached no queue",
        ),
    ),
    "channel_queue_metrics": (
        _counter("channel_get_ack", "counts.get", "Messages by basic.get, with an ack"),
        _counter("channel_get", "counts.get_no_ack", "Messages by basic.get, without an ack"),
        _counter("channel_messages_delivered_ack", "counts.deliver", "Messages to consumers that ack"),
        _counter(
            "channel_messages_delivered", "counts.deliver_no_ack", "Messages to consumers that do not ack"
        ),
        _counter("channel_messages_redelivered", "counts.redeliver", "Messages that had been sent before"),
        _counter("channel_messages_acked", "counts.ack", "Acks"),
        _counter("channel_get_empty", "counts.get_empty", "Answers to basic.get that there is no message"),
    ),
}
"""Counters of channels. Their label is `channel` alone: no channel counts its queues and exchanges apart."""

CONNECTIONS: dict[str, tuple[Column, ...]] = {
    "connection_coarse_metrics": (
        _counter("connection_incoming_bytes", "received_octets", "Octets from the client"),
        _counter("connection_outgoing_bytes", "sent_octets", "Octets to the client"),
    ),
    "connection_metrics": (
        _counter("connection_incoming_packets", "received_count", "Reads from the client"),
        _counter("connection_outgoing_packets", "sent_count", "Writes to the client"),
        _gauge("connection_pending_packets", "unsent", "Octets that wait for the client to read"),
        _gauge("connection_channels", "channels", "Channels of the connection"),
    ),
}

VHOSTS: dict[str, tuple[Column, ...]] = {
    "vhost_status": (_gauge("vhost_status", "works", "1 for each virtual host"),),
}
EXCHANGES: dict[str, tuple[Column, ...]] = {
    "exchange_bindings": (_gauge("exchange_bindings", "bindings", "Bindings of the exchange"),),
    "exchange_names": (_gauge("exchange_name", "works", "1 for each exchange"),),
}
"""Groups that only `/metrics/detailed` has. A backup tells the same as its primary."""
