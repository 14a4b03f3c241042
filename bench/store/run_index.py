"""Which runs live, kept in memory by every adapter alike, as the broker keeps it anyway.

It turns dequeues, which are ranges of messages, into what an engine can do: remove a run, or note which
part of it is gone. Owner: one engine.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bench.store.pattern import Range, Run, Stored

_PAIR = struct.Struct("<QQ")


class Live:
    """A run that has messages left."""

    __slots__ = ("count", "epoch", "first", "gone", "left", "place", "queue", "size")

    def __init__(self, queue: bytes, epoch: int, first: int, count: int, size: int) -> None:
        self.queue, self.epoch, self.first, self.count, self.size = queue, epoch, first, count, size
        self.left = count
        self.gone: list[tuple[int, int]] = []
        """Sorted, not touching."""
        self.place: tuple[int, int] = (0, 0)
        """Where it is, in the engine's own terms."""

    def take(self, first: int, last: int) -> None:
        """Messages `first` to `last` are gone; some may have been before."""
        first, last = max(first, self.first), min(last, self.first + self.count - 1)
        if not self.gone:
            self.gone = [(first, last)]
            self.left -= last - first + 1
            return
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*self.gone, (first, last)]):
            if merged and begin <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        self.gone = merged
        self.left = self.count - sum(end - begin + 1 for begin, end in merged)

    def stored(self, raw: bytes) -> Stored:
        return Stored(Run(self.queue, self.epoch, self.first, self.count, raw), tuple(self.gone))


class Change(NamedTuple):
    """What a group changes. A run that comes and goes within it is in none of these."""

    added: list[tuple[Live, Run]]
    removed: list[Live]
    partial: list[Live]
    """Live, and what is gone of them is new."""


class RunIndex:
    """All live runs, by queue and epoch."""

    def __init__(self) -> None:
        self._queues: dict[tuple[bytes, int], list[Live]] = {}

    def add(self, queue: bytes, epoch: int, first: int, count: int, size: int) -> Live:
        """Raises ValueError unless it follows the queue's other runs."""
        runs = self._queues.setdefault((queue, epoch), [])
        if runs and first < runs[-1].first + runs[-1].count:
            raise ValueError(f"run {first} does not follow {runs[-1].first}")
        live = Live(queue, epoch, first, count, size)
        runs.append(live)
        return live

    def take(self, gone: Range) -> Iterator[Live]:
        """The runs that the range touches; those with nothing left are forgotten."""
        runs = self._queues.get((gone.queue, gone.epoch), [])
        at = 0
        if runs and runs[0].first + runs[0].count <= gone.first:
            at = max(0, bisect_right(runs, gone.first, key=lambda live: live.first) - 1)
        begin, ended = at, []
        while at < len(runs) and runs[at].first <= gone.last:
            live = runs[at]
            if live.first + live.count > gone.first:
                live.take(gone.first, gone.last)
                yield live
            if live.left:
                ended.append(live)
            at += 1
        runs[begin:at] = ended

    def change(self, runs: Iterable[Run], gone: Iterable[Range]) -> Change:
        """Apply a group: its runs first, then its dequeues."""
        added = [(self.add(*run[:4], len(run.raw)), run) for run in runs]
        touched: dict[int, Live] = {}
        for one in gone:
            for live in self.take(one):
                touched[id(live)] = live
        fresh = {id(live) for live, _run in added} if touched else set()
        return Change(
            [(live, run) for live, run in added if live.left],
            [live for key, live in touched.items() if not live.left and key not in fresh],
            [live for live in touched.values() if live.left],
        )

    def find(self, queue: bytes, epoch: int, first: int) -> Live:
        """The run that begins there. Raises KeyError."""
        runs = self._queues.get((queue, epoch), [])
        at = bisect_right(runs, first, key=lambda live: live.first) - 1
        if at < 0 or runs[at].first != first:
            raise KeyError(first)
        return runs[at]

    def __iter__(self) -> Iterator[Live]:
        for runs in self._queues.values():
            yield from runs


def pack_ranges(ranges: Iterable[tuple[int, int]]) -> bytes:
    return b"".join(_PAIR.pack(*one) for one in ranges)


def unpack_ranges(raw: bytes) -> list[tuple[int, int]]:
    return [(first, last) for first, last in _PAIR.iter_unpack(raw)]
