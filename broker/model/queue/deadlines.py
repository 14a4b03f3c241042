"""When which queue is due: one time for each, the earliest known at once. Pure.

Owners: `Expiries`, `Removals`. A time that is changed leaves its old place in the heap behind; those are
swept out when they are many, for a time may lie years ahead.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Generic, TypeVar

Queue = TypeVar("Queue")

_SWEPT_AT = 64
"""Old places kept before they are swept out, if they are also half of the heap."""


class Deadlines(Generic[Queue]):
    """Times are on whatever clock the owner uses; of equal ones, the one set first comes first."""

    __slots__ = ("_at", "_heap", "_order")

    def __init__(self) -> None:
        self._at: dict[Queue, float] = {}
        self._heap: list[tuple[float, int, Queue]] = []
        self._order = count()

    def __len__(self) -> int:
        """Places in the heap, old ones included."""
        return len(self._heap)

    def set(self, queue: Queue, at: float | None) -> None:
        """It is due at `at`, and not when it was before; None: never."""
        if at is None:
            self._at.pop(queue, None)
        elif self._at.get(queue) != at:
            self._at[queue] = at
            heapq.heappush(self._heap, (at, next(self._order), queue))
        if len(self._heap) > _SWEPT_AT + 2 * len(self._at):
            self._heap = [(due, next(self._order), each) for each, due in self._at.items()]
            heapq.heapify(self._heap)

    def take(self, now: float) -> list[Queue]:
        """Those that are due by `now`, the earliest first; they are not due any more."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, _, queue = heapq.heappop(self._heap)
            if self._at.get(queue) == at:
                del self._at[queue]
                found.append(queue)
        return found

    def next(self) -> float | None:
        """The earliest."""
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def clear(self) -> None:
        self._at.clear()
        self._heap.clear()
