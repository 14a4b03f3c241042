"""Sets of message sequences as inclusive ranges. A queue's contents are one such set per epoch.

The model, the link protocol and the ledger use it; it depends on nothing else of the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedDict

Range = tuple[int, int]
"""First and last, both included; first <= last."""


def to_ranges(seqs: list[int]) -> list[Range]:
    """Distinct sequences in any order as ascending ranges. May sort `seqs` in place.

    The usual case, one stretch without gaps, costs no Python step per sequence.
    """
    if not seqs:
        return []
    low, high = min(seqs), max(seqs)
    if high - low + 1 == len(seqs):
        return [(low, high)]
    seqs.sort()
    ranges = []
    first = last = seqs[0]
    for seq in seqs:
        if seq > last + 1:
            ranges.append((first, last))
            first = seq
        last = seq
    ranges.append((first, last))
    return ranges


class ReplicationIdSet:
    """A set of non-negative integers as disjoint, non-adjacent ranges: first -> last, sorted by first."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._ranges: SortedDict[int, int] = SortedDict()
        for first, last in ranges:
            self.add_range(first, last)

    @classmethod
    def of(cls, seqs: Iterable[int]) -> ReplicationIdSet:
        """A set of sequences in any order, repeated or not."""
        made = cls()
        made._ranges.update(to_ranges(list(set(seqs))))
        return made

    @classmethod
    def from_ranges(cls, ranges: list[Range]) -> ReplicationIdSet:
        """A set of ascending, disjoint ranges (adjacent ones are joined). Raises ValueError if they are
        not."""
        joined: list[Range] = []
        for first, last in ranges:
            if last < first or (joined and first <= joined[-1][1]):
                raise ValueError(f"range {first}..{last} is empty or out of order")
            if joined and first == joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], last)
            else:
                joined.append((first, last))
        made = cls()
        made._ranges.update(joined)
        return made

    def add(self, seq: int) -> None:
        self.add_range(seq, seq)

    def add_range(self, first: int, last: int) -> None:
        """Add first..last. Raises ValueError if last < first."""
        if last < first:
            raise ValueError(f"empty range {first}..{last}")
        ranges = self._ranges
        if ranges:
            tail, end = ranges.peekitem(-1)
            if first >= tail:  # the usual growth at the end
                if first > end + 1:
                    ranges[first] = last
                elif last > end:
                    ranges[tail] = last
                return
            at = ranges.bisect_right(first) - 1
            if at >= 0:
                before, end = ranges.peekitem(at)
                if end >= first - 1:
                    first, last = before, max(last, end)
            for key in list(ranges.irange(first, last + 1)):
                last = max(last, ranges.pop(key))
        ranges[first] = last

    def discard(self, seq: int) -> None:
        self.discard_range(seq, seq)

    def discard_range(self, first: int, last: int) -> None:
        """Remove first..last, present or not. Raises ValueError if last < first."""
        if last < first:
            raise ValueError(f"empty range {first}..{last}")
        ranges = self._ranges
        at = ranges.bisect_left(first) - 1
        if at >= 0:
            before, end = ranges.peekitem(at)
            if end >= first:
                ranges[before] = first - 1
                if end > last:
                    ranges[last + 1] = end
                    return
        for key in list(ranges.irange(first, last)):
            end = ranges.pop(key)
            if end > last:
                ranges[last + 1] = end

    def clear(self) -> None:
        self._ranges.clear()

    def copy(self) -> ReplicationIdSet:
        made = ReplicationIdSet()
        made._ranges.update(self._ranges)
        return made

    def ranges(self) -> list[Range]:
        """All ranges, ascending, disjoint, not adjacent."""
        return list(self._ranges.items())

    def ranges_within(self, first: int, last: int) -> list[Range]:
        """The parts of first..last that are in the set, ascending."""
        ranges, found = self._ranges, []
        for at in range(max(ranges.bisect_right(first) - 1, 0), len(ranges)):
            low, high = ranges.peekitem(at)
            if low > last:
                break
            if high >= first:
                found.append((max(low, first), min(high, last)))
        return found

    @property
    def lowest(self) -> int:
        """Raises IndexError on an empty set."""
        first: int = self._ranges.peekitem(0)[0]
        return first

    @property
    def highest(self) -> int:
        """Raises IndexError on an empty set."""
        last: int = self._ranges.peekitem(-1)[1]
        return last

    def union(self, other: ReplicationIdSet) -> ReplicationIdSet:
        made = self.copy()
        for first, last in other._ranges.items():
            made.add_range(first, last)
        return made

    def difference(self, other: ReplicationIdSet) -> ReplicationIdSet:
        made = self.copy()
        if made:
            for first, last in other.ranges_within(made.lowest, made.highest):
                made.discard_range(first, last)
        return made

    def intersection(self, other: ReplicationIdSet) -> ReplicationIdSet:
        few, many = sorted((self, other), key=lambda s: len(s._ranges))
        made = ReplicationIdSet()
        for first, last in few._ranges.items():
            made._ranges.update(many.ranges_within(first, last))
        return made

    def __or__(self, other: ReplicationIdSet) -> ReplicationIdSet:
        return self.union(other)

    def __sub__(self, other: ReplicationIdSet) -> ReplicationIdSet:
        return self.difference(other)

    def __and__(self, other: ReplicationIdSet) -> ReplicationIdSet:
        return self.intersection(other)

    def __contains__(self, seq: int) -> bool:
        at = self._ranges.bisect_right(seq) - 1
        return at >= 0 and bool(self._ranges.peekitem(at)[1] >= seq)

    def __iter__(self) -> Iterator[int]:
        for first, last in self._ranges.items():
            yield from range(first, last + 1)

    def __len__(self) -> int:
        """The number of ids, not of ranges."""
        return sum(last - first + 1 for first, last in self._ranges.items())

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReplicationIdSet):
            return NotImplemented
        return self.ranges() == other.ranges()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ReplicationIdSet({self.ranges()})"
