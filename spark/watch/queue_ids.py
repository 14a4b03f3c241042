"""The ids that one epoch gave in one queue: which were confirmed, what became of them, who noted to hold
them.

Only what has no fate yet is kept in detail; fates join into few ranges. Pure, insensitive to order but for
inventories, which say what is held at their place in the records of their writer.
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
        """Without a fate: to be watched."""
        self.fated = RangeSet()
        """Dequeued with a reason, or acked; and what was alarmed."""
        self.held: dict[str, RangeSet] = {}
        """By node: noted as enqueued, as a primary or a backup; without a fate."""
        self.gone = RangeSet()
        """Not in an inventory of a primary that had noted to hold them."""
        self.owners: set[str] = set()
        """Nodes that enqueued here as primaries."""
        self.alarmed = RangeSet()
        self.found = RangeSet()
        """Of the alarmed ones: a fate came after all; to be told."""
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
        """Told once, and never again."""
        for first, last in lost:
            self._close(first, last)
            self.alarmed.add(first, last)

    def missing(self, successors: Iterable[str]) -> RangeSet:
        """Confirmed, without a fate, and either gone from an inventory or never held by one of
        `successors`."""
        lost = self.confirmed.meet(self.gone)
        nothing = RangeSet()
        for node in successors:
            lost.update(self.confirmed.minus(self.held.get(node, nothing)))
        return lost

    def forget(self, floor: int) -> int:
        """Ids up to `floor` are not judged any more; how many of them were confirmed and without a fate."""
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
