"""A producer's session: which publish tags were confirmed, and where brokers placed them.

Confirms and placements come in any order; the second of the two joins them. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from spark.watch.aging import Aging, Waiting
from spark.watch.range_set import RangeSet

Placed = tuple[str, int, int, int]
"""Queue, epoch, first and last id."""

UNHEARD = 20_000
"""Most placements kept for a session that has no confirmed tags."""


class Session:
    """The publish tags of one session. Tags in `settled` were placed in a queue, or unrouted. Tags up to the
    floor of `aging` are not judged.
    """

    __slots__ = ("_longest", "_pending", "aging", "confirmed", "settled", "told", "waiting", "warned")

    def __init__(self) -> None:
        self.confirmed = RangeSet()
        self.settled = RangeSet()
        self.told = False
        """Whether a broker's ledger here mentions this session."""
        self.warned = False
        self.aging = Aging()
        self.waiting = Waiting()
        self._pending: list[tuple[int, int, str, int, int]] = []
        """First and last tag, queue, epoch, id of the first tag: placed, but not confirmed."""
        self._longest = 0

    @property
    def rows(self) -> int:
        return 1 + len(self.confirmed) + len(self.settled) + len(self._pending)

    @property
    def unplaced(self) -> RangeSet:
        return self.confirmed.minus(self.settled)

    def confirm(self, first: int, last: int) -> Iterator[Placed]:
        """Note a confirm. Yields the ids that become confirmed by it."""
        first = self.aging.clip(first, last)
        if first > last:
            return
        self.confirmed.add(first, last)
        pending = self._pending
        begin = at = bisect_left(pending, (first - self._longest + 1,))
        kept = []
        while at < len(pending) and pending[at][0] <= last:
            a, b, queue, epoch, number = pending[at]
            at += 1
            if b < first:
                kept.append((a, b, queue, epoch, number))
                continue
            if a < first:
                kept.append((a, first - 1, queue, epoch, number))
            if b > last:
                kept.append((last + 1, b, queue, epoch, number + last + 1 - a))
            low, high = max(a, first), min(b, last)
            yield queue, epoch, number + low - a, number + high - a
        pending[begin:at] = sorted(kept)

    def place(self, first: int, last: int, queue: str, epoch: int, number: int) -> Iterator[Placed]:
        """Note that tags first..last became the ids from `number` on. Yields the ids that become confirmed by
        it.
        """
        self.told = True
        clipped = self.aging.clip(first, last)
        number, first = number + clipped - first, clipped
        if first > last:
            return
        self.settled.add(first, last)
        for a, b in self.confirmed.within(first, last):
            yield queue, epoch, number + a - first, number + b - first
        for a, b in self.confirmed.gaps(first, last):
            self._keep((a, b, queue, epoch, number + a - first))

    def _keep(self, new: tuple[int, int, str, int, int]) -> None:
        pending = self._pending
        at = bisect_left(pending, new)
        if at < len(pending) and pending[at] == new:
            return
        insort(pending, new)
        self._longest = max(self._longest, new[1] - new[0] + 1)
        if len(pending) > UNHEARD and not self.confirmed:
            del pending[: UNHEARD // 2]

    def settle(self, first: int, last: int) -> None:
        """Note that a broker routed these tags to no queue: there is nothing to lose."""
        self.told = True
        first = self.aging.clip(first, last)
        if first <= last:
            self.settled.add(first, last)

    def forget(self, floor: int) -> int:
        """Stop judging tags up to `floor`. Returns how many of them were confirmed and not placed."""
        if floor <= self.aging.floor:
            return 0
        open_ones = sum(b - a + 1 for a, b in self.unplaced if b <= floor)
        self.aging.floor = floor
        self.confirmed.remove(0, floor)
        self.settled.remove(0, floor)
        self.waiting.remove(0, floor)
        self._pending = [p for p in self._pending if p[1] > floor]
        return open_ones

    def state(self) -> dict[str, Any]:
        return {
            "confirmed": self.confirmed.flat(), "settled": self.settled.flat(), "told": self.told,
            "warned": self.warned, "aging": self.aging.state(), "waiting": self.waiting.state(),
            "pending": self._pending,
        }  # fmt: skip

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Session:
        made = cls()
        made.confirmed = RangeSet.of_flat(state["confirmed"])
        made.settled = RangeSet.of_flat(state["settled"])
        made.told, made.warned = state["told"], state["warned"]
        made.aging = Aging.of_state(state["aging"])
        made.waiting = Waiting.of_state(state["waiting"])
        made._pending = [(a, b, queue, epoch, number) for a, b, queue, epoch, number in state["pending"]]
        made._longest = max((p[1] - p[0] + 1 for p in made._pending), default=0)
        return made
