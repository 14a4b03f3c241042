"""Virtual hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.model.statistics import Counts, sum_of
from broker.model.vhost.directory import VHOST
from broker.sampling import NOTHING, Lengths, lengths_of
from ha.adapter.management.views.connections import clients
from ha.adapter.management.views.rates import LENGTHS, channel_stats, gauge
from ha.adapter.management.views.view import Column, Table, View

if TYPE_CHECKING:
    from broker.model.vhost.vhost import VirtualHost

LIVE = 5_000
"""Queues that are counted when somebody asks; of more, the numbers are those of the last sample."""


def lengths_in(vhost: VirtualHost, view: View) -> Lengths:
    """Messages in its queues."""
    if (known := view.known.get(vhost.name)) is not None:
        return known
    if len(vhost.queues) > LIVE:
        return view.node.broker.sampler.lengths.get(vhost.name, NOTHING)
    ready = unacked = 0
    for queue in vhost.queues.values():
        one = lengths_of(queue)
        ready += one.ready
        unacked += one.unacked
    view.known[vhost.name] = found = Lengths(ready + unacked, ready, unacked)
    return found


def counts_in(vhost: VirtualHost, view: View) -> Counts:
    """Its counters, with the samples of the last passes."""
    found = sum_of([tally.total() for tally in vhost.counts.values()])
    sampled = view.node.broker.sampler.vhosts.get(vhost.name)
    found.samples = None if sampled is None else sampled.samples
    return found


def _metadata(vhost: VirtualHost, view: View) -> dict[str, Any]:
    value = view.node.vhosts.directory.value((VHOST, "", vhost.name)) or {}
    tags = value.get("tags")
    return {
        "description": str(value.get("description", "")), "tags": tags if isinstance(tags, list) else [],
    }  # fmt: skip


def _length(at: int) -> Column[VirtualHost]:
    return lambda vhost, view: lengths_in(vhost, view)[at]


def _details(name: str) -> Column[VirtualHost]:
    return lambda vhost, view: gauge(counts_in(vhost, view), LENGTHS, name, view, view.lengths)


def _octets(vhost: VirtualHost, view: View, *, received: bool) -> int:
    """Of the connections that are open."""
    return sum([
        connection.received_octets if received else connection.sent_octets
        for connection in clients(view) if connection.vhost is vhost
    ])  # fmt: skip


_COLUMNS: dict[str, Column[VirtualHost]] = {
    "cluster_state": lambda vhost, view: {view.name: "running"},
    "default_queue_type": lambda vhost, view: "classic",
    "description": lambda vhost, view: _metadata(vhost, view)["description"],
    "message_stats": lambda vhost, view: channel_stats(counts_in(vhost, view), view),
    "messages": _length(0),
    "messages_details": _details("messages"),
    "messages_ready": _length(1),
    "messages_ready_details": _details("messages_ready"),
    "messages_unacknowledged": _length(2),
    "messages_unacknowledged_details": _details("messages_unacknowledged"),
    "metadata": _metadata,
    "name": lambda vhost, view: vhost.name,
    "recv_oct": lambda vhost, view: _octets(vhost, view, received=True),
    "send_oct": lambda vhost, view: _octets(vhost, view, received=False),
    "tags": lambda vhost, view: _metadata(vhost, view)["tags"],
    "tracing": lambda vhost, view: False,
}

VHOSTS: Table[VirtualHost] = Table(
    items=lambda view: list(view.node.vhosts),
    vhost=lambda vhost: vhost.name,
    owner=None,
    columns=_COLUMNS,
    details={},
    plain=("cluster_state", "default_queue_type", "description", "metadata", "name", "tags", "tracing"),
)
