"""Waits counted by their length, and the long ones one by one. Times in milliseconds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

EDGES = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""The last bin has what is longer than the last edge."""
LONG = 10.0
"""Waits from here on are kept one by one."""
CELL = 0.05
"""Width of the cells that quantiles come from."""


@dataclass(slots=True, frozen=True)
class Wait:
    """One wait for an answer of the event loop. `lacked`: for so long the loop was ready to run and had no
    core. `ran`: CPU time of the loop's thread, up to 4 ms old. `others_ran`, `others_lacked`: the same of the
    broker's other threads, one of which may have had Python's lock. `late`: for so long the probe had no
    core, with the answer perhaps there."""

    at: float
    """Seconds since the start."""
    ms: float
    lacked: float
    ran: float
    others_ran: float = 0.0
    others_lacked: float = 0.0
    late: float = 0.0

    @property
    def own(self) -> float:
        """The broker's part: all but the lack of cores, and at least what its loop ran."""
        seen = max(0.0, self.ms - self.late)
        return max(min(self.ran, seen), seen - self.lacked - self.others_lacked)


@dataclass(slots=True)
class Histogram:
    """`own`: by the broker's part of each wait."""

    waits: list[int] = field(default_factory=lambda: [0] * (len(EDGES) + 1))
    own: list[int] = field(default_factory=lambda: [0] * (len(EDGES) + 1))
    cells: dict[int, int] = field(default_factory=dict)
    long: list[Wait] = field(default_factory=list)
    longest: float = 0.0
    longest_own: float = 0.0

    def add(self, waits: Iterable[Wait]) -> None:
        for wait in waits:
            own = wait.own
            self.waits[bisect_left(EDGES, wait.ms)] += 1
            self.own[bisect_left(EDGES, own)] += 1
            cell = int(own / CELL)
            self.cells[cell] = self.cells.get(cell, 0) + 1
            self.longest = max(self.longest, wait.ms)
            self.longest_own = max(self.longest_own, own)
            if wait.ms > LONG:
                self.long.append(wait)

    @property
    def count(self) -> int:
        return sum(self.waits)

    def quantile(self, share: float) -> float:
        """Of the broker's parts, rounded up to a cell; 0 without any."""
        passed, wanted = 0, share * self.count
        for cell in sorted(self.cells):
            passed += self.cells[cell]
            if passed >= wanted:
                return (cell + 1) * CELL
        return 0.0


def names() -> list[str]:
    """Of the bins."""
    return [f"to {edge:g}" for edge in EDGES] + [f"over {EDGES[-1]:g}"]
