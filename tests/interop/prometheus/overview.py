"""The panels of RabbitMQ's dashboard *RabbitMQ-Overview* for Grafana, by the metrics that each of them shows.

The dashboard joins every metric with the names of its node and cluster, and shows counters as rates.
"""

from __future__ import annotations

PANELS: dict[str, tuple[str, ...]] = {
    "Ready messages": ("queue_messages_ready",),
    "Incoming messages / s": ("global_messages_received_total",),
    "Publishers": ("global_publishers",),
    "Connections": ("connections",),
    "Queues": ("queues",),
    "Unacknowledged messages": ("queue_messages_unacked",),
    "Outgoing messages / s": (
        "global_messages_redelivered_total", "global_messages_delivered_consume_auto_ack_total",
        "global_messages_delivered_consume_manual_ack_total", "global_messages_delivered_get_auto_ack_total",
        "global_messages_delivered_get_manual_ack_total",
    ),
    "Consumers": ("consumers",),
    "Channels": ("channels",),
    "Nodes": ("build_info",),
    "Memory available before publishers blocked": (
        "resident_memory_limit_bytes", "process_resident_memory_bytes",
    ),
    "Disk space available before publishers blocked": ("disk_space_available_bytes",),
    "File descriptors available": ("process_max_fds", "process_open_fds"),
    "TCP sockets available": ("process_max_tcp_sockets", "process_open_tcp_sockets"),
    "Messages ready to be delivered to consumers": ("queue_messages_ready",),
    "Messages pending consumer acknowledgement": ("queue_messages_unacked",),
    "Messages published / s": ("global_messages_received_total",),
    "Messages confirmed to publishers / s": ("global_messages_confirmed_total",),
    "Messages routed to queues / s": ("global_messages_routed_total",),
    "Messages unconfirmed to publishers / s": (
        "global_messages_received_confirm_total", "global_messages_confirmed_total",
    ),
    "Unroutable messages dropped / s": ("global_messages_unroutable_dropped_total",),
    "Unroutable messages returned to publishers / s": ("global_messages_unroutable_returned_total",),
    "Messages delivered / s": (
        "global_messages_delivered_consume_auto_ack_total",
        "global_messages_delivered_consume_manual_ack_total",
    ),
    "Messages redelivered / s": ("global_messages_redelivered_total",),
    "Messages delivered with manual ack / s": ("global_messages_delivered_consume_manual_ack_total",),
    "Messages delivered auto ack / s": ("global_messages_delivered_consume_auto_ack_total",),
    "Messages acknowledged / s": ("global_messages_acknowledged_total",),
    "Polling operations with auto ack / s": ("global_messages_delivered_get_auto_ack_total",),
    "Polling operations that yield no result / s": ("global_messages_get_empty_total",),
    "Polling operations with manual ack / s": ("global_messages_delivered_get_manual_ack_total",),
    "Total queues": ("queues",),
    "Queues declared / s": ("queues_declared_total",),
    "Queues created / s": ("queues_created_total",),
    "Queues deleted / s": ("queues_deleted_total",),
    "Total channels": ("channels",),
    "Channels opened / s": ("channels_opened_total",),
    "Channels closed / s": ("channels_closed_total",),
    "Total connections": ("connections",),
    "Connections opened / s": ("connections_opened_total",),
    "Connections closed / s": ("connections_closed_total",),
}  # fmt: skip
EMPTY: dict[str, str] = {}
"""Panels that stay empty, and why."""

MOVING = frozenset({
    "Messages published / s", "Messages confirmed to publishers / s", "Messages routed to queues / s",
    "Unroutable messages dropped / s", "Unroutable messages returned to publishers / s",
    "Messages delivered / s", "Messages redelivered / s", "Messages delivered with manual ack / s",
    "Messages delivered auto ack / s", "Messages acknowledged / s", "Polling operations with auto ack / s",
    "Polling operations that yield no result / s", "Polling operations with manual ack / s",
    "Queues declared / s", "Queues created / s", "Channels opened / s", "Connections opened / s",
    "Ready messages", "Unacknowledged messages", "Publishers", "Consumers",
})  # fmt: skip
"""Panels that show more than 0 while clients do a little of everything."""


def query(metric: str, cluster: str, span: str) -> str:
    """As the dashboard asks for a metric, by node."""
    name = f"rabbitmq_{metric}"
    shown = f"rate({name}[{span}])" if metric.endswith("_total") else name
    who = f'rabbitmq_identity_info{{rabbitmq_cluster="{cluster}", namespace=""}}'
    joined = f"{shown} * on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node) {who}"
    return f"sum({joined}) by(rabbitmq_node)"
