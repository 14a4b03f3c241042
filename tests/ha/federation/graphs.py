"""Random nets: the nodes, and which way messages go."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

SHAPES = ("star", "chain", "tree", "ring", "both ways")
"""There is one way at most from any node to any other."""
CYCLES = ("ring with tails", "mesh")
"""There may be several, and nodes beside them."""
MOST = 12


class Edge(NamedTuple):
    """Messages go from `source` to `target`; the agent is at the target (it takes), or at the source (it
    gives)."""

    source: str
    target: str
    gives: bool


class Graph(NamedTuple):
    shape: str
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]

    def reach(self, source: str) -> frozenset[str]:
        """The nodes to which messages of `source` come, and itself."""
        found, fresh = {source}, [source]
        while fresh:
            at = fresh.pop()
            ahead = {edge.target for edge in self.edges if edge.source == at} - found
            found |= ahead
            fresh += sorted(ahead)
        return frozenset(found)


def draw_graph(rng: Random, most: int = MOST, shapes: tuple[str, ...] = SHAPES) -> Graph:
    shape = rng.choice(shapes)
    count = 2 if shape == "both ways" else rng.randint(3, most)
    nodes = tuple(f"n{number}" for number in range(count))
    ring = {"ring": count, "ring with tails": max(3, count // 2)}.get(shape, 0)
    pairs = [(nodes[at], nodes[(at + 1) % ring]) for at in range(ring)]
    for at in range(max(1, ring), count):
        pairs += _directions(rng, shape, nodes[_parent(rng, shape, at)], nodes[at])
    if shape == "mesh":
        more = [tuple(rng.sample(nodes, 2)) for _ in range(rng.randint(1, count))]
        pairs += [(one, other) for one, other in dict.fromkeys(more) if (one, other) not in pairs]
    return Graph(shape, nodes, _asking([Edge(*pair, rng.random() < 0.4) for pair in pairs]))


def _asking(edges: list[Edge]) -> tuple[Edge, ...]:
    """An agent that gives does not say what is wanted where it gives to. So a node that gives takes from
    nobody else: others give to it, too."""
    for _ in edges:
        takers = {(edge.source, edge.target) for edge in edges if not edge.gives}
        edges = [edge._replace(gives=edge.gives and not _others(takers, edge)) for edge in edges]
    return tuple(edges)


def _others(takers: set[tuple[str, str]], edge: Edge) -> bool:
    """Does the node that gives by that edge take from another node than it gives to?"""
    return any(target == edge.source and source != edge.target for source, target in takers)


def _parent(rng: Random, shape: str, at: int) -> int:
    return {"star": 0, "chain": at - 1}.get(shape, rng.randrange(at))


def _directions(rng: Random, shape: str, one: str, other: str) -> list[tuple[str, str]]:
    """Between two nodes that nothing else joins: either direction, or both."""
    there, back = (one, other), (other, one)
    if shape == "both ways":
        return [there, back]
    return rng.choice(([there], [back], [there, back], [there, back]))
