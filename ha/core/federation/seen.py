"""Seen: which messages of other nodes have come to an exchange, by whichever way. Owner: Federation.

A message that comes by several ways is known by its id at the node at which it was published. Of each such
node the ids are kept as bits, in segments. While messages of a node come by one way only, a few segments are
kept in memory: a second way may begin with what is on its way. Else they are many, and history: the caller
puts `changes` into the batch of the messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SEGMENT = 8192
"""Ids of one segment."""
MOST = 1024
"""Segments of one node of which messages come by several ways. A way that is further behind than these brings
messages twice."""
MOST_ALONE = 8
"""Of any other node."""
MOST_NODES = 10_000
"""Nodes. Of more, those that were heard of first and come by one way are forgotten."""


class SegmentKey(NamedTuple):
    """`number`: the id of its first message is `number * SEGMENT`, in `epoch`."""

    node: str
    epoch: int
    number: int


class _Node:
    """`ways`: by which messages of it came. `segments`: bits by epoch and number, the oldest first."""

    def __init__(self) -> None:
        self.ways: set[str] = set()
        self.segments: dict[tuple[int, int], int] = {}
        self.changed: set[tuple[int, int]] = set()
        self.stored: set[tuple[int, int]] = set()

    @property
    def most(self) -> int:
        return MOST if self.stored or len(self.ways) > 1 else MOST_ALONE


class Seen:
    """`doubled`: messages that came again by another way; `arrivals`: grows as messages come."""

    def __init__(self, stored: Iterable[tuple[SegmentKey, int]] = ()) -> None:
        self._nodes: dict[str, _Node] = {}
        self._changed: dict[str, _Node] = {}
        """Those of which messages have come since `changes` was asked."""
        for key, bits in sorted(stored):
            there = self._nodes.setdefault(key.node, _Node())
            there.segments[key.epoch, key.number] = bits
            there.stored.add((key.epoch, key.number))
        self.doubled = self.arrivals = 0

    def take(self, node: str, way: str, epoch: int, first: int, count: int) -> list[tuple[int, int]]:
        """Messages `first` and so on of `node` come by `way`. Returns those that are new, as ranges of places
        in the run: begin, end."""
        there = self._changed[node] = self._node(node)
        self._by(there, way)
        fresh = self._fresh(there, epoch, first, count, come=True)
        self.doubled += count - sum(end - begin for begin, end in fresh)
        self.arrivals += 1
        return fresh

    def _by(self, there: _Node, way: str) -> None:
        if way not in there.ways:
            there.ways.add(way)
            there.changed.update(there.segments)

    def _fresh(
        self, there: _Node, epoch: int, first: int, count: int, *, come: bool
    ) -> list[tuple[int, int]]:  # fmt: skip
        fresh: list[tuple[int, int]] = []
        at = 0
        while at < count:
            number, begin = divmod(first + at, SEGMENT)
            part = min(count - at, SEGMENT - begin)
            bits = there.segments.get((epoch, number), 0)
            mask = ((1 << part) - 1) << begin
            had = (bits & mask) >> begin
            if had == 0:
                _join(fresh, at, at + part)
            else:
                for place in range(part):
                    if not had >> place & 1:
                        _join(fresh, at + place, at + place + 1)
            if come and bits | mask != bits:
                there.segments[epoch, number] = bits | mask
                there.changed.add((epoch, number))
            at += part
        return fresh

    def missing(self, node: str, way: str, epoch: int, first: int, count: int) -> list[tuple[int, int]]:
        """The same of messages that are only offered: they have not come by this."""
        there = self._changed[node] = self._node(node)
        self._by(there, way)
        return self._fresh(there, epoch, first, count, come=False)

    def _node(self, name: str) -> _Node:
        there = self._nodes.get(name)
        if there is None:
            if len(self._nodes) >= MOST_NODES:
                for known, other in self._nodes.items():
                    if other.most == MOST_ALONE:
                        del self._nodes[known]
                        break
            there = self._nodes[name] = _Node()
        return there

    def changes(self) -> list[tuple[SegmentKey, int]]:
        """The segments that history lacks, with their bits; 0: it is to be forgotten."""
        found: list[tuple[SegmentKey, int]] = []
        for name, there in self._changed.items():
            for gone in list(there.segments)[: max(0, len(there.segments) - there.most)]:
                del there.segments[gone]
                there.changed.discard(gone)
                if gone in there.stored:
                    there.stored.discard(gone)
                    found.append((SegmentKey(name, *gone), 0))
            if there.most == MOST:
                changed = [key for key in there.segments if key in there.changed]
                found += [(SegmentKey(name, *key), there.segments[key]) for key in changed]
                there.stored.update(changed)
            there.changed.clear()
        self._changed = {}
        return found


def _join(ranges: list[tuple[int, int]], begin: int, end: int) -> None:
    """Add a range, behind or next to the last one."""
    if ranges and ranges[-1][1] == begin:
        ranges[-1] = (ranges[-1][0], end)
    else:
        ranges.append((begin, end))
