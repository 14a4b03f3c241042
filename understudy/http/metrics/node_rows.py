"""RabbitMQ's metrics of the node as a whole: who it is, what it has of each resource, alarms, totals.

A backup has them too, with no queues and no clients of its own.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from understudy import __version__
from understudy.http.metrics.exposition import Family, labels_of

if TYPE_CHECKING:
    from broker.engine import Broker

_PREFIX = "rabbitmq_"
_FILES = "/proc/self/fd"
_BEGAN = monotonic()


class Sample(NamedTuple):
    """`labels`: from `labels_of`."""

    family: Family
    labels: str
    value: float


def identity(broker: Broker, status: dict[str, Any]) -> Iterator[Sample]:
    """Dashboards join every metric with these. Both nodes of a pair are of one cluster."""
    cluster = broker.settings.cluster_name or status["cluster_id"] or status["name"]
    who = {
        "rabbitmq_node": status["name"],
        "rabbitmq_cluster": cluster,
        "rabbitmq_cluster_permanent_id": status["cluster_id"] or "",
    }
    yield Sample(Family("identity_info", "untyped", "Names of this node and of its pair"), labels_of(who), 1)
    build = {
        "rabbitmq_version": broker.settings.product_version,
        "product_name": "Understudy",
        "product_version": __version__,
        "python_version": platform.python_version(),
    }
    yield Sample(Family("build_info", "untyped", "Versions of this broker"), labels_of(build), 1)


def resources(broker: Broker) -> Iterator[Sample]:
    """What the node uses, and the limits at which it refuses clients or pauses publishers."""
    yield _gauge("process_open_fds", "Open files and sockets", open_files())
    yield _gauge("process_max_fds", "Limit of open files and sockets", _most_files())
    yield _gauge("process_open_tcp_sockets", "Connections of clients", broker.clients)
    if broker.clients_max is not None:
        yield _gauge("process_max_tcp_sockets", "Limit of connections of clients", broker.clients_max)
    yield _gauge(
        "process_resident_memory_bytes", "Memory that counts for broker.memory_limit", broker.memory.used
    )
    if broker.memory.limit is not None:
        text = "broker.memory_limit: above it publishers are paused"
        yield _gauge("resident_memory_limit_bytes", text, broker.memory.limit)
    yield from _disk(broker)
    yield _gauge("erlang_uptime_seconds", "Time since the start of this process", monotonic() - _BEGAN)


def _disk(broker: Broker) -> Iterator[Sample]:
    disk = broker.disk
    try:
        left = None if disk.free is None else disk.free()
    except OSError:
        left = None
    if left is not None:
        yield _gauge("disk_space_available_bytes", "Free space where the data of the node is", left)
    if disk.limit is not None:
        text = "broker.disk_free_limit: below it publishers are paused"
        yield _gauge("disk_space_available_limit_bytes", text, disk.limit)


def alarms(broker: Broker) -> Iterator[Sample]:
    for name, raised, text in (
        ("memory_used_watermark", broker.memory.raised, "1 while memory pauses publishers"),
        ("free_disk_space_watermark", broker.disk.raised, "1 while the disk pauses publishers"),
        ("file_descriptor_limit", False, "Always 0: connections are refused before files run out"),
    ):
        yield Sample(Family(f"alarms_{name}", "untyped", text), "", int(raised))


def peers(status: dict[str, Any]) -> Iterator[Sample]:
    """The other nodes of the pair, and federation."""
    members = [member for member in status.get("members") or () if not member.get("self")]
    lost = sum(not member.get("connected") for member in members)
    yield _gauge("unreachable_cluster_peers_count", "Nodes of the pair that this node cannot reach", lost)
    agents = [agent["state"] for agent in (status.get("federation") or {}).get("agents") or ()]
    links = Family("federation_links", "gauge", "Federation agents, by RabbitMQ's word for their state")
    for state in ("running", "starting"):
        count = sum((agent == "running") == (state == "running") for agent in agents)
        yield Sample(links, labels_of({"status": state}), count)


def totals(broker: Broker) -> Iterator[Sample]:
    """How many there are of each. A backup has no clients, and counts no queues."""
    churn, queues = broker.vhosts.churn, broker.vhosts.queues_by_uuid
    yield _gauge("connections", "Connections of clients", broker.clients)
    yield _gauge("channels", "Channels of AMQP 0-9-1", churn.channel_created - churn.channel_closed)
    yield _gauge("queues", "Queues", len(queues) if broker.vhosts.serving else 0)


def open_files() -> int:
    """Linux 6.2 and later count them without a listing."""
    return os.stat(_FILES).st_size or len(os.listdir(_FILES))


def _most_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _gauge(name: str, text: str, value: float) -> Sample:
    return Sample(Family(name, "gauge", text), "", value)
