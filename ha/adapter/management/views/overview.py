"""The overview, and the nodes of the pair."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from broker.model.statistics import CHURN, NAMES, PROTOCOLS, Counts, sum_of
from broker.model.values import ExchangeType
from broker.sampling import NOTHING
from ha.adapter.management.views.connections import clients
from ha.adapter.management.views.directory import cluster_name
from ha.adapter.management.views.flows import opened
from ha.adapter.management.views.queues import listed
from ha.adapter.management.views.rates import LENGTHS, channel_stats, details, gauge
from ha.adapter.management.views.vhosts import LIVE, counts_in, lengths_in
from ha.adapter.management.views.view import Row, View

if TYPE_CHECKING:
    from broker.model.vhost.vhost import VirtualHost

_TYPES = [
    {"name": kind.value, "description": f"AMQP {kind.value} exchange", "enabled": True}
    for kind in ExchangeType
]
_MECHANISMS = [
    {"name": name, "description": f"SASL {name}", "enabled": True} for name in ("PLAIN", "AMQPLAIN")
]
_RETENTION = {"global": [60, 600, 3600], "basic": [60, 600, 3600], "detailed": [60]}


def overview(view: View, seen: Collection[str], listeners: list[Row], *, nodes: bool) -> Row:
    """`seen`: the virtual hosts that the asking user may see. `nodes`: whether it may see nodes too."""
    broker = view.node.broker
    vhosts = [vhost for vhost in view.node.vhosts if vhost.name in seen]
    found: Row = {
        "management_version": broker.settings.product_version,
        "rates_mode": "basic",
        "sample_retention_policies": _RETENTION,
        "exchange_types": _TYPES,
        "product_version": broker.settings.version,
        "product_name": "Understudy",
        "rabbitmq_version": broker.settings.product_version,
        "cluster_name": cluster_name(view),
        "erlang_version": "",
        "erlang_full_version": f"Python {sys.version.split()[0]}",
        "disable_stats": False,
        "enable_queue_totals": False,
        "message_stats": channel_stats(_counts(vhosts, view), view),
        "churn_rates": churn(view),
        "queue_totals": _totals(vhosts, view),
        "object_totals": _objects(vhosts, view),
        "statistics_db_event_queue": 0,
        "node": view.name,
    }
    if nodes:
        found["listeners"] = listeners
        found["contexts"] = [
            {"node": view.name, "description": "Understudy", "path": "/", "port": str(one["port"])}
            for one in listeners
            if one["protocol"].startswith("http")
        ]
    return found


def _counts(vhosts: list[VirtualHost], view: View) -> Counts:
    """Of all virtual hosts, with the samples of the node; of some, with none."""
    if len(vhosts) < len(view.node.vhosts):
        return sum_of([counts_in(vhost, view) for vhost in vhosts])
    found = sum_of([view.node.vhosts.totals(protocol) for protocol in PROTOCOLS])
    found.samples = view.node.broker.sampler.node.samples
    return found


def churn(view: View) -> Row:
    samples = list(view.node.broker.sampler.node.samples or ())
    found: Row = {}
    for at, (name, value) in enumerate(zip(CHURN, view.node.vhosts.churn.values(), strict=True)):
        found[name] = value
        found[f"{name}_details"] = details(samples, [len(NAMES) + len(LENGTHS) + at], view, view.messages)
    return found


def _totals(vhosts: list[VirtualHost], view: View) -> Row:
    total = NOTHING
    for vhost in vhosts:
        total = total.plus(lengths_in(vhost, view))
    whole = len(vhosts) == len(view.node.vhosts)
    sampled = view.node.broker.sampler.node if whole else Counts()
    found: Row = {}
    for name, value in zip(LENGTHS, total, strict=True):
        found[name] = value
        found[f"{name}_details"] = gauge(sampled, LENGTHS, name, view, view.lengths)
    return found


def _objects(vhosts: list[VirtualHost], view: View) -> Row:
    of_clients = [found for found in clients(view) if found.vhost in vhosts]
    return {
        "channels": sum([1 for connection in of_clients for _ in opened(connection)]),
        "connections": len(of_clients),
        "consumers": sum([_consumers(vhost, view) for vhost in vhosts]),
        "exchanges": sum([len(vhost.exchanges) for vhost in vhosts]),
        "queues": sum([_queues(vhost) for vhost in vhosts]),
    }


def _consumers(vhost: VirtualHost, view: View) -> int:
    if len(vhost.queues) > LIVE:
        return view.node.broker.sampler.consumers.get(vhost.name, 0)
    return sum([len(queue.consumers) for queue in vhost.queues.values()])


def _queues(vhost: VirtualHost) -> int:
    """Of very many, those that are not told do not matter."""
    if len(vhost.queues) > LIVE:
        return len(vhost.queues)
    return sum([listed(queue) for queue in vhost.queues.values()])


def nodes(view: View) -> list[Row]:
    """This node first, then the others of the pair, of which it knows less."""
    found = [_this_node(view)]
    for member in view.node.status()["members"]:
        if not member.get("self"):
            found.append({
                "name": member["name"], "type": "disc", "running": bool(member["connected"]),
                "partitions": [], "rates_mode": "basic", "status": member["status"],
                "in_sync": bool(member["in_sync"]),
            })  # fmt: skip
    return found


def _this_node(view: View) -> Row:
    broker = view.node.broker
    memory, disk = broker.memory, broker.disk
    files, most = _open_files()
    status = view.node.status()
    return {
        "name": view.name,
        "type": "disc",
        "running": True,
        "being_drained": False,
        "status": status["status"],
        "partitions": [],
        "os_pid": str(os.getpid()),
        "fd_used": files,
        "fd_used_details": {"rate": 0.0},
        "fd_total": most,
        "sockets_used": broker.clients,
        "sockets_used_details": {"rate": 0.0},
        "sockets_total": broker.clients_max or 0,
        "mem_used": memory.used,
        "mem_used_details": {"rate": 0.0},
        "mem_limit": memory.limit or 0,
        "mem_alarm": memory.raised,
        "mem_calculation_strategy": "allocated",
        "disk_free": _disk_free(view),
        "disk_free_details": {"rate": 0.0},
        "disk_free_limit": disk.limit or 0,
        "disk_free_alarm": disk.raised,
        "proc_total": 0,
        "proc_used": 0,
        "proc_used_details": {"rate": 0.0},
        "run_queue": 0,
        "processors": os.cpu_count() or 1,
        "uptime": round((view.now - (broker.sampler.began or view.now)) * 1000),
        "rates_mode": "basic",
        "exchange_types": _TYPES,
        "auth_mechanisms": _MECHANISMS,
        "applications": [
            {"name": "understudy", "description": "Understudy", "version": broker.settings.version}
        ],
        "contexts": [],
        "log_files": [],
        "db_dir": "",
        "config_files": [],
        "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus"],
        "cluster_links": [],
        **churn(view),
    }


def _disk_free(view: View) -> int:
    free = view.node.broker.disk.free
    try:
        return 0 if free is None else free()
    except OSError:
        return 0


def _open_files() -> tuple[int, int]:
    import resource

    try:
        files = len(os.listdir("/proc/self/fd"))
    except OSError:
        files = 0
    return files, resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def memory(view: View) -> dict[str, Any]:
    """What counts for the limit, by part."""
    parts = dict(view.node.broker.memory.parts)
    used = view.node.broker.memory.used
    return {**parts, "strategy": "allocated", "total": {"erlang": used, "rss": used, "allocated": used}}
