"""Holes: ranges of ids of a link queue below the cursor that are not taken: they were only offered. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from broker.model.history.records import MessageId

MOST_HOLES = 4096
"""Of one link. A link queue offers far less at a time."""


class Hole(NamedTuple):
    """Ids from `first` to `last` of `epoch`."""

    epoch: int
    first: int
    last: int

    @property
    def before(self) -> MessageId:
        """The id before it."""
        return self.epoch, self.first - 1


class Holes:
    """By ascending id; none overlaps another."""

    def __init__(self, holes: tuple[Hole, ...] = ()) -> None:
        self._all = list(holes)

    def __len__(self) -> int:
        return len(self._all)

    def up_to(self, id_: MessageId) -> tuple[Hole, ...]:
        """Those that begin at this id or before."""
        return tuple(self._all[: bisect_right(self._all, Hole(*id_, 1 << 64))])

    def add(self, hole: Hole) -> None:
        """What overlaps it is gone."""
        self.cut(hole)
        self._all.insert(bisect_left(self._all, hole), hole)

    def cut(self, hole: Hole) -> list[Hole]:
        """These ids are in no hole any more. Returns those that were."""
        begin, end = self._span(hole)
        if begin == end:
            return []
        cut: list[Hole] = []
        rest: list[Hole] = []
        for epoch, first, last in self._all[begin:end]:
            cut.append(Hole(epoch, max(first, hole.first), min(last, hole.last)))
            if first < hole.first:
                rest.append(Hole(epoch, first, hole.first - 1))
            if last > hole.last:
                rest.append(Hole(epoch, hole.last + 1, last))
        self._all[begin:end] = rest
        return cut

    def cut_between(self, after: MessageId, before: MessageId) -> None:
        """Ids between these two are in no hole any more."""
        for epoch, first, last in self.up_to(before):
            low = max(first, after[1] + 1) if epoch == after[0] else first
            high = min(last, before[1] - 1) if epoch == before[0] else last
            if epoch >= after[0] and low <= high:
                self.cut(Hole(epoch, low, high))

    def _span(self, hole: Hole) -> tuple[int, int]:
        """The places of those that overlap it."""
        begin = bisect_left(self._all, hole)
        if begin and self._all[begin - 1].epoch == hole.epoch and self._all[begin - 1].last >= hole.first:
            begin -= 1
        end = bisect_right(self._all, Hole(hole.epoch, hole.last, 1 << 64))
        return begin, max(begin, end)
