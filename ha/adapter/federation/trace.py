"""Where a message would go from here, and which bindings cause it. For people; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.model.queue.link import Path, node_of
from broker.model.queue.queue import Queue
from broker.model.routing.forward import forwarded
from broker.model.vhost.links import behind

if TYPE_CHECKING:
    from broker.model.routing.exchange import Binding, Exchange
    from broker.model.vhost.vhost import VirtualHost

HEADERS = "headers decide"


def trace(vhost: VirtualHost, exchange: Exchange, key: str, by: Path = ()) -> list[dict[str, Any]]:
    """`by`: the nodes that the message came through; it goes to none of them. Returns a line for each step:
    `from` (an exchange), `to` (`queue`, `exchange`, `node` or `upstream`), `name`, `binding` (the key that
    matches) and `path` (the nodes that the interest came through, the nearest last)."""
    lines: list[dict[str, Any]] = []
    seen, to_visit = {exchange.name}, [exchange]
    while to_visit:
        source = to_visit.pop()
        if source.by_headers:
            lines.append(_line(source, "queue", "?", HEADERS))
            continue
        bindings = [binding for _, found in source.matcher.match(key, {}) for binding in found]
        targets: list[Queue | Exchange] = [binding.target for binding in bindings]
        forwards = vhost.forwards.get(source.name, ())
        kept = forwarded(forwards, targets, by) if forwards else targets
        for forward in forwards:
            if forward.queue in kept:
                upstream = forward.queue.name.rpartition("@>")[2]
                lines.append(_line(source, "upstream", upstream, "unmatched" if forward.unmatched else "all"))
        for binding in bindings:
            if binding.target in kept and not _been(binding.target, by):
                lines.append(_of(source, binding))
                if not isinstance(binding.target, Queue) and binding.target.name not in seen:
                    seen.add(binding.target.name)
                    to_visit.append(binding.target)
    return lines


def _been(target: Queue | Exchange, by: Path) -> bool:
    """Is it the link queue of a node that the message came through?"""
    return isinstance(target, Queue) and node_of(target) in by


def _of(source: Exchange, binding: Binding) -> dict[str, Any]:
    target = binding.target
    if not isinstance(target, Queue):
        return _line(source, "exchange", target.name, binding.routing_key)
    node = node_of(target)
    path = " ".join(behind(binding).path)
    return _line(source, "node" if node else "queue", node or target.name, binding.routing_key, path)


def _line(source: Exchange, to: str, name: str, binding: str, path: str = "") -> dict[str, Any]:
    return {"from": source.name, "to": to, "name": name, "binding": binding, "path": path}
