"""The ids of one queue and epoch: which are confirmed, what became of them, and which nodes recorded them.

Only ids without a fate are kept in detail; the others join into few ranges. Pure. The order of records does
not matter, except that an inventory applies at its place in its writer's records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spark.watch.aging import Aging, Waiting
from spark.watch.range_set import RangeSet


class QueueIds:
    __slots__ = ("aging", "alarmed", "confirmed", "fated", "found", "gone", "held", "owners", "waiting")

    def __init__(self) -> None:
        self.aging = Aging()
        self.confirmed = RangeSet()
        """Confirmed ids without a fate, which are watched."""
        self.fated = RangeSet()
        """Ids that were dequeued with a reason or acked, and ids already alarmed."""
        self.held: dict[str, RangeSet] = {}
        """Per node, the ids without a fate that it recorded as enqueued, as primary or backup."""
        self.gone = RangeSet()
        """Ids that a primary had recorded, and that its later inventory does not list."""
        self.owners: set[str] = set()
        """Nodes that enqueued here as primary of this epoch."""
        self.alarmed = RangeSet()
        self.found = RangeSet()
        """Alarmed ids that have a fate after all, to be reported."""
        self.waiting = Waiting()

    @property
    def rows(self) -> int:
        sets = (self.confirmed, self.fated, self.gone, self.alarmed, *self.held.values())
        return 1 + sum(len(each) for each in sets)

    def confirm(self, first: int, last: int) -> None:
        first = self.aging.clip(first, last)
        for a, b in self.fated.gaps(first, last):
            self.confirmed.add(a, b)

    def hold(self, node: str, first: int, last: int) -> None:
        held = self.held.get(node)
        if held is None:
            held = self.held[node] = RangeSet()
        first = self.aging.clip(first, last)
        for a, b in self.fated.gaps(first, last):
            held.add(a, b)

    def fate(self, first: int, last: int) -> None:
        first = self.aging.clip(first, last)
        if first > last:
            return
        if self.alarmed:
            for a, b in list(self.alarmed.within(first, last)):
                self.found.add(a, b)
                self.alarmed.remove(a, b)
        self._close(first, last)

    def _close(self, first: int, last: int) -> None:
        self.fated.add(first, last)
        self.confirmed.remove(first, last)
        self.gone.remove(first, last)
        for held in self.held.values():
            held.remove(first, last)

    def alarm(self, lost: RangeSet) -> None:
        """Mark ids as alarmed, so that they are never alarmed again."""
        for first, last in lost:
            self._close(first, last)
            self.alarmed.add(first, last)

    def missing(self, successors: Iterable[str]) -> RangeSet:
        """Suspect ids: confirmed, without a fate, and either gone from an inventory or never held by one of
        `successors`.
        """
        lost = self.confirmed.meet(self.gone)
        nothing = RangeSet()
        for node in successors:
            lost.update(self.confirmed.minus(self.held.get(node, nothing)))
        return lost

    def forget(self, floor: int) -> int:
        """Stop judging ids up to `floor`. Returns how many of them were confirmed and without a fate."""
        if floor <= self.aging.floor:
            return 0
        open_ones = sum(b - a + 1 for a, b in self.confirmed.within(0, floor))
        self.aging.floor = floor
        for each in (self.confirmed, self.fated, self.gone, self.alarmed, *self.held.values()):
            each.remove(0, floor)
        self.waiting.remove(0, floor)
        return open_ones

    def state(self) -> dict[str, Any]:
        return {
            "aging": self.aging.state(), "confirmed": self.confirmed.flat(), "fated": self.fated.flat(),
            "held": {node: held.flat() for node, held in self.held.items()}, "gone": self.gone.flat(),
            "owners": sorted(self.owners), "alarmed": self.alarmed.flat(), "waiting": self.waiting.state(),
        }  # fmt: skip

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> QueueIds:
        made = cls()
        made.aging = Aging.of_state(state["aging"])
        made.confirmed, made.fated = RangeSet.of_flat(state["confirmed"]), RangeSet.of_flat(state["fated"])
        made.held = {node: RangeSet.of_flat(flat) for node, flat in state["held"].items()}
        made.gone, made.alarmed = RangeSet.of_flat(state["gone"]), RangeSet.of_flat(state["alarmed"])
        made.owners = set(state["owners"])
        made.waiting = Waiting.of_state(state["waiting"])
        return made
