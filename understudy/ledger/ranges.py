"""Gathers single numbers that come in nearly any order into inclusive ranges, for one record per range.

For ledgers of things that arrive one by one, such as a consumer's acks: in arrival order runs have 1 to 1.3
numbers, gathered for a flush 12 to 146. One thread; emptied by `drain`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


def to_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Inclusive ranges, ascending, of `numbers`. A number given twice is in two ranges: nothing is hidden."""
    ranges: list[tuple[int, int]] = []
    first = last = None
    for number in sorted(numbers):
        if last is not None and first is not None:
            if number == last + 1:
                last = number
                continue
            ranges.append((first, last))
        first = last = number
    if first is not None and last is not None:
        ranges.append((first, last))
    return ranges


class RangeGatherer(Generic[Key]):
    """Numbers by key. The key is the rest of the record, such as (queue, epoch, reason)."""

    __slots__ = ("_numbers", "_runs")

    def __init__(self) -> None:
        self._numbers: dict[Key, list[int]] = {}
        self._runs: dict[Key, list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._numbers or self._runs)

    def add(self, key: Key, number: int) -> None:
        numbers = self._numbers.get(key)
        if numbers is None:
            self._numbers[key] = [number]
        else:
            numbers.append(number)

    def add_range(self, key: Key, first: int, last: int) -> None:
        """A range that is at hand already; joined with its neighbours at `drain`."""
        self._runs.setdefault(key, []).append((first, last))

    def drain(self) -> Iterator[tuple[Key, int, int]]:
        """(key, first, last) of all that was gathered, keys in order of their first number; then empty."""
        numbers, self._numbers = self._numbers, {}
        runs, self._runs = self._runs, {}
        for key, own in numbers.items():
            ranges = to_ranges(own)
            if key in runs:
                ranges = _join(ranges + runs.pop(key))
            for first, last in ranges:
                yield key, first, last
        for key, given in runs.items():
            for first, last in _join(given):
                yield key, first, last


def _join(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges that touch; ranges that overlap stay apart, so that what came twice is seen twice."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first == joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined
