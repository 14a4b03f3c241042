"""Names that hold in a whole net of federated brokers: `QUEUE@NODE` is the queue of that name at that node.

The exchange `amq.nodes` of a virtual host has a binding for each other node that can be reached: its routing
key is the node, its target is the link queue by which the way begins, and its path are the nodes of the way,
the nearest one last. Brokers tell each other these as they tell interest. A message that a client publishes
to the default exchange goes by one of them, and keeps its routing key. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.model.queue.link import is_link, path_of
from broker.model.queue.queue import Queue

if TYPE_CHECKING:
    from broker.model.queue.link import Path
    from broker.model.routing.exchange import Binding

NODES = "amq.nodes"
"""The exchange. It exists where a broker is, or has been, joined to another one. Clients cannot use it."""


def parts_of(key: str) -> tuple[str, str]:
    """Queue and node; no node in a name that only holds here."""
    name, _, node = key.rpartition("@")
    return (name, node) if name and node and not is_link(name) else (key, "")


def best_way(bindings: Iterable[Binding], path: Path) -> Queue | None:
    """The link queue of the shortest way that passes none of the nodes that the message has been at."""
    ways = [
        (len(way), way, binding.target) for binding in bindings
        if isinstance(binding.target, Queue) and (way := path_of(binding.arguments))
        and not any(node in path for node in way)
    ]  # fmt: skip
    return min(ways, key=lambda way: way[:2])[2] if ways else None
