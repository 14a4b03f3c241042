"""The ways from this node to all others, for people. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from broker.model.queue.link import push_name
from broker.model.queue.queue import Queue
from broker.model.routing.node_routes import NODES, best_way
from broker.model.vhost.links import behind

if TYPE_CHECKING:
    from broker.model.routing.exchange import Binding
    from broker.model.vhost.vhost import VirtualHost

Line = dict[str, Any]


def route_lines(vhosts: Iterable[VirtualHost], upstreams: list[Line], fed: Collection[str]) -> list[Line]:
    """A line for each node to which there is a way: `node`, `vhost`, `path` (the nodes of the way, the
    nearest first), `state` and `reason` of its first link, and `waiting` (messages). Then one for each
    upstream by which no way goes, without a node. `upstreams`: the lines of the agents for routes; `fed`: the
    nodes downstream that are connected."""
    by_queue = {(line["vhost"], push_name(NODES, line["upstream"])): line for line in upstreams}
    unused = dict(by_queue)
    lines: list[Line] = []
    for vhost in vhosts:
        for node, first in _ways(vhost):
            place = vhost.name, first.target.name
            unused.pop(place, None)
            lines.append(_line(vhost, node, first, by_queue.get(place), fed))
    return lines + [
        {
            "node": "", "vhost": line["vhost"], "path": line["upstream"], "state": line["state"],
            "reason": line["reason"], "waiting": line["waiting"],
        }
        for line in unused.values() if line["state"] != "running"
    ]  # fmt: skip


def _ways(vhost: VirtualHost) -> Iterator[tuple[str, Binding]]:
    """The node, and the binding by which the best way begins."""
    ways = vhost.exchanges.get(NODES)
    by_node: dict[str, list[Binding]] = {}
    for binding in ways.bindings.values() if ways is not None else ():
        by_node.setdefault(binding.routing_key, []).append(binding)
    for node, bindings in sorted(by_node.items()):
        queue = best_way(bindings, ())
        yield from ((node, binding) for binding in bindings if binding.target is queue)


def _line(
    vhost: VirtualHost, node: str, first: Binding, upstream: Line | None, fed: Collection[str]
) -> Line:  # fmt: skip
    queue, path = first.target, behind(first).path[::-1]
    downstream = "running" if path[0] in fed else "not connected"
    return {
        "node": node, "vhost": vhost.name, "path": " ".join(path),
        "state": downstream if upstream is None else upstream["state"],
        "reason": "" if upstream is None else upstream["reason"],
        "waiting": queue.total_count if isinstance(queue, Queue) else 0,
    }  # fmt: skip
