"""Gathers single numbers, in nearly any order, into inclusive ranges: one ledger record for each range.

For events that arrive one by one, such as a consumer's acks. In order of arrival a run has 1 to 1.3 numbers;
gathered until a flush it has 12 to 146. Used by one thread; `drain` empties it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


def to_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """`numbers` as ascending inclusive ranges. A number given twice is in two ranges, so repetition stays
    visible."""
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
    """Numbers by key. The key holds the other fields of the record, such as (queue, epoch, reason)."""

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
        """Add a whole range. `drain` joins it with adjacent numbers and ranges."""
        self._runs.setdefault(key, []).append((first, last))

    def drain(self) -> Iterator[tuple[Key, int, int]]:
        """Yield (key, first, last) for everything gathered, then start empty. Keys come in the order in which
        they were first added; keys with ranges only come last."""
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
    """Merge adjacent ranges. Overlapping ranges stay apart, so repetition stays visible."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first == joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined
