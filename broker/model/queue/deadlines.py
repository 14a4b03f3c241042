"""A heap of deadlines with one time for each queue. Pure.

Owners: `Expiries`, `Removals`. Changing a time leaves the old heap item behind. Many old items are removed
together, because a time may lie years ahead.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Generic, TypeVar

Queue = TypeVar("Queue")

_SWEPT_AT = 64
"""Old heap items that are always tolerated before a sweep."""


class Deadlines(Generic[Queue]):
    """Times are on the owner's clock. Equal times come out in the order in which they were set."""

    __slots__ = ("_at", "_heap", "_order")

    def __init__(self) -> None:
        self._at: dict[Queue, float] = {}
        self._heap: list[tuple[float, int, Queue]] = []
        self._order = count()

    def __len__(self) -> int:
        """Heap items, old ones included."""
        return len(self._heap)

    def set(self, queue: Queue, at: float | None) -> None:
        """Replace the queue's deadline by `at`. None removes the deadline."""
        if at is None:
            self._at.pop(queue, None)
        elif self._at.get(queue) != at:
            self._at[queue] = at
            heapq.heappush(self._heap, (at, next(self._order), queue))
        if len(self._heap) > _SWEPT_AT + 2 * len(self._at):
            self._heap = [(due, next(self._order), each) for each, due in self._at.items()]
            heapq.heapify(self._heap)

    def take(self, now: float) -> list[Queue]:
        """Remove and return the queues that are due by `now`, earliest first."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, _, queue = heapq.heappop(self._heap)
            if self._at.get(queue) == at:
                del self._at[queue]
                found.append(queue)
        return found

    def next(self) -> float | None:
        """The earliest deadline, or None."""
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def clear(self) -> None:
        self._at.clear()
        self._heap.clear()
