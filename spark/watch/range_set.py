"""A set of integers as sorted inclusive ranges. The live state consists of these, so it grows only with
holes.

Pure. Each set has one owner and one thread. Adding at the end, the usual case, costs one comparison.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]


class RangeSet:
    """A set of inclusive ranges. Touching ranges are merged: 1..2 and 3..4 become 1..4."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        """Number of ranges, not of integers: the cost of keeping the set."""
        return len(self._starts)

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and (self._starts, self._ends) == (other._starts, other._ends)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._ends, number)
        return at < len(self._ends) and self._starts[at] <= number

    @property
    def count(self) -> int:
        """Number of integers."""
        return sum(self._ends) - sum(self._starts) + len(self._starts)

    @property
    def first(self) -> int:
        return self._starts[0]

    @property
    def last(self) -> int:
        return self._ends[-1]

    def copy(self) -> RangeSet:
        made = RangeSet()
        made._starts, made._ends = self._starts[:], self._ends[:]
        return made

    def flat(self) -> list[int]:
        """first, last, first, last, ...; `of_flat` reads it back."""
        return [number for pair in zip(self._starts, self._ends, strict=True) for number in pair]

    @classmethod
    def of_flat(cls, numbers: list[int]) -> RangeSet:
        made = cls()
        made._starts, made._ends = numbers[::2], numbers[1::2]
        return made

    def add(self, first: int, last: int) -> None:
        starts, ends = self._starts, self._ends
        if not ends or first > ends[-1] + 1:
            starts.append(first)
            ends.append(last)
            return
        if first == ends[-1] + 1:
            ends[-1] = last
            return
        begin, end = bisect_left(ends, first - 1), bisect_right(starts, last + 1)
        if begin < end:
            first, last = min(first, starts[begin]), max(last, ends[end - 1])
        starts[begin:end] = [first]
        ends[begin:end] = [last]

    def remove(self, first: int, last: int) -> None:
        starts, ends = self._starts, self._ends
        begin, end = bisect_left(ends, first), bisect_right(starts, last)
        if begin >= end:
            return
        kept_starts, kept_ends = [], []
        if starts[begin] < first:
            kept_starts.append(starts[begin])
            kept_ends.append(first - 1)
        if ends[end - 1] > last:
            kept_starts.append(last + 1)
            kept_ends.append(ends[end - 1])
        starts[begin:end] = kept_starts
        ends[begin:end] = kept_ends

    def within(self, first: int, last: int) -> Iterator[Range]:
        """The parts of first..last that are in the set."""
        starts, ends = self._starts, self._ends
        for at in range(bisect_left(ends, first), bisect_right(starts, last)):
            yield max(first, starts[at]), min(last, ends[at])

    def gaps(self, first: int, last: int) -> Iterator[Range]:
        """The parts of first..last that are not in the set."""
        for a, b in self.within(first, last):
            if first < a:
                yield first, a - 1
            first = b + 1
        if first <= last:
            yield first, last

    def update(self, other: RangeSet) -> None:
        for first, last in other:
            self.add(first, last)

    def meet(self, other: RangeSet) -> RangeSet:
        """The intersection."""
        few, many = (self, other) if len(self) <= len(other) else (other, self)
        return RangeSet(part for first, last in few for part in many.within(first, last))

    def minus(self, other: RangeSet) -> RangeSet:
        return RangeSet(part for first, last in self for part in other.gaps(first, last))
