"""Marks: which numbered messages of a producer a queue has had. Pure values.

A producer numbers its messages, and sends those in doubt again with their old numbers. A mark knows exactly
which of the newest `WINDOW` numbers the queue had. Any older number counts as had, so a producer keeps fewer
than `WINDOW` numbers between its oldest message in doubt and its newest.

Marks follow from the records of history. A backup and a recovering node thus know what the primary knew.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WINDOW: Final = 1024
_ALL: Final = (1 << WINDOW) - 1
HIGHEST: Final = 2**62
"""The highest number with which a client may go on."""


class Gaps(NamedTuple):
    """`last`: the highest number that the queue had. Bit k of the others stands for the number `last - k`.
    `holes`: the queue never had it. `unstored`: it was in memory only; a restart forgets it."""

    last: int
    holes: int
    unstored: int


Mark = int | Gaps
"""Most marks are the highest number alone: the queue had all before it, and the store knows them."""

Marks = dict[str, Mark]
"""By the id of the producer."""


def gaps_of(mark: Mark) -> Gaps:
    """The same, in one form for all."""
    return Gaps(mark, 0, 0) if isinstance(mark, int) else mark


def mark_of(last: int, holes: int, unstored: int) -> Mark:
    """In its shortest form: equal marks are equal."""
    if not holes and not unstored:
        return last
    return Gaps(last, _shared(holes), _shared(unstored))


def _shared(bits: int) -> int:
    """One object for all that have every bit."""
    return _ALL if bits == _ALL else bits


def last_of(mark: Mark) -> int:
    """The highest number that the queue had."""
    return mark if isinstance(mark, int) else mark.last


def all_stored(mark: Mark) -> Mark:
    """The mark once the store has all of the queue."""
    return mark if isinstance(mark, int) else mark_of(mark.last, mark.holes, 0)


def after_restart(marks: Marks) -> Marks:
    """What a node knows of them that comes back with its store alone."""
    return {name: _restarted(mark) for name, mark in marks.items()}


def _restarted(mark: Mark) -> Mark:
    return mark if isinstance(mark, int) else mark_of(mark.last, mark.holes | mark.unstored, 0)


def merged(marks: Marks, newer: Marks) -> Marks:
    """What a queue had, by both."""
    found = dict(marks)
    for name, mark in newer.items():
        other = found.get(name)
        found[name] = mark if other is None else _both(gaps_of(other), gaps_of(mark))
    return found


def _both(one: Gaps, other: Gaps) -> Mark:
    low, high = sorted((one, other))
    grown = high.last - low.last
    holes = ((low.holes + 1 << grown) - 1) & _ALL if grown < WINDOW else _ALL
    unstored = (low.unstored << grown) & _ALL if grown < WINDOW else 0
    in_memory = (unstored | holes) & (high.unstored | high.holes)
    return mark_of(high.last, holes & high.holes, in_memory & ~(holes & high.holes))


def noted(mark: Mark | None, first: int, count: int, *, stored: bool) -> Mark:
    """The mark once the queue has had `count` numbers from `first` on."""
    if mark is None:
        mark = mark_of(first - 1, (1 << min(WINDOW, first - 1)) - 1, 0)
    if stored and isinstance(mark, int) and first == mark + 1:
        return mark + count
    last, holes, unstored = gaps_of(mark)
    end = first + count - 1
    if not (holes or stored) and unstored == _ALL and first == last + 1:
        return Gaps(end, 0, unstored)
    if end > last:
        grown = end - last
        if holes or first > last + 1:
            holes = (((holes + 1) << grown) - 1) & _ALL if grown < WINDOW else _ALL
        if unstored:
            unstored = (unstored << grown) & _ALL if grown < WINDOW else 0
        last = end
    if holes or not stored or unstored:
        bits = (((1 << count) - 1) << (last - end)) & _ALL
        holes &= ~bits
        unstored = unstored & ~bits if stored else unstored | bits
    return mark_of(last, holes, unstored)


def new_parts(mark: Mark | None, first: int, count: int) -> list[tuple[int, int]]:
    """Of `count` numbers from `first` on, those that the queue never had: begin and end of each stretch, as
    places from 0 to `count`."""
    if mark is None or first > last_of(mark):
        return [(0, count)]
    last, holes, _ = gaps_of(mark)
    known = min(count, last - first + 1)
    parts: list[tuple[int, int]] = []
    if holes:
        for at in range(max(0, known - WINDOW), known):
            if holes >> (last - first - at) & 1:
                _join(parts, at, at + 1)
    if known < count:
        _join(parts, known, count)
    return parts


def _join(parts: list[tuple[int, int]], begin: int, end: int) -> None:
    if parts and parts[-1][1] == begin:
        parts[-1] = (parts[-1][0], end)
    else:
        parts.append((begin, end))
