"""What sessions and queues have in common: a floor below which numbers are too old, and suspects that wait.

Tags and ids only rise, so one number is enough for the floor. A suspect waits until all writers that may
explain it have been heard. Pure; times are microseconds since 1970.
"""

from __future__ import annotations

from typing import Any

from spark.watch.range_set import RangeSet

STEPS = 16
"""Granularity of the retention: it is exact to a sixteenth."""


class Aging:
    """Numbers up to `floor` are too old to be judged. Records about them are ignored."""

    __slots__ = ("_marks", "floor", "highest", "touched")

    def __init__(self, floor: int = -1) -> None:
        self.floor = floor
        self.highest = floor
        self.touched = 0
        self._marks: list[list[int]] = []
        """[time, the highest number at that time]"""

    def clip(self, first: int, last: int) -> int:
        """The first number of first..last that is judged; greater than `last` if there is none."""
        if last > self.highest:
            self.highest = last
        return first if first > self.floor else self.floor + 1

    def touch(self, now: int, step: int) -> None:
        """Note that a record about these numbers came at `now`."""
        self.touched = now
        if not self._marks or now - self._marks[-1][0] >= step:
            self._marks.append([now, self.highest])

    def outdated(self, limit: int) -> int:
        """The highest number that was already known at `limit`: numbers up to it are too old."""
        floor = self.floor
        while self._marks and self._marks[0][0] <= limit:
            floor = max(floor, self._marks.pop(0)[1])
        return floor

    def state(self) -> list[Any]:
        return [self.floor, self.highest, self.touched, self._marks]

    @classmethod
    def of_state(cls, state: list[Any]) -> Aging:
        made = cls()
        made.floor, made.highest, made.touched, made._marks = state
        return made


class Waiting:
    """Suspect numbers, each with the time since which it has been suspect."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: list[tuple[int, RangeSet]] = []

    def __bool__(self) -> bool:
        return bool(self._since)

    def ripe(self, suspects: RangeSet, now: int, heard: int) -> RangeSet:
        """The suspects that have been suspect without a break since before `heard`. The others wait."""
        fresh = suspects
        ripe, kept = RangeSet(), []
        for since, known in self._since:
            still = known.meet(suspects)
            fresh = fresh.minus(known)
            if since < heard:
                ripe.update(still)
            elif still:
                kept.append((since, still))
        if fresh:
            kept.append((now, fresh))
        self._since = kept
        return ripe

    def remove(self, first: int, last: int) -> None:
        for _, known in self._since:
            known.remove(first, last)
        self._since = [(since, known) for since, known in self._since if known]

    def clear(self) -> None:
        self._since = []

    def state(self) -> list[Any]:
        return [[since, known.flat()] for since, known in self._since]

    @classmethod
    def of_state(cls, state: list[Any]) -> Waiting:
        made = cls()
        made._since = [(since, RangeSet.of_flat(flat)) for since, flat in state]
        return made
