"""Queues that end when nobody has used them for a while (`x-expires`): no consumer, get or declaration.

Owner: VirtualHost; only one that serves asks what is due. Time comes in with `due`, once a tick, so that a
use counts from the end of its tick.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

from broker.model.queue_arguments import rules_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.model.queue import Queue


def expires_of(arguments: Mapping[str, object]) -> float | None:
    """Seconds, or None; whatever is not a positive number of milliseconds counts as not given."""
    milliseconds = rules_of(arguments).expires
    return None if milliseconds is None else milliseconds / 1000


class Expiries:
    """When which queue is to end, if it is not used before."""

    __slots__ = ("_due", "_heap", "_order", "_used")

    def __init__(self) -> None:
        self._used: dict[Queue, None] = {}
        self._due: dict[Queue, float] = {}
        self._heap: list[tuple[float, int, Queue]] = []
        self._order = count()

    def used(self, queue: Queue) -> None:
        """Declared, consumed from, got from, or left by a consumer, in this tick."""
        if queue.expires is not None:
            self._used[queue] = None

    def due(self, now: float) -> list[Queue]:
        """Those that are to end. Times run from here for what was used since the last call."""
        for queue in self._used:
            self._due.pop(queue, None)
            if queue.expires is not None and not queue.consumers and not queue.deleted:
                at = self._due[queue] = now + queue.expires
                heapq.heappush(self._heap, (at, next(self._order), queue))
        self._used.clear()
        over = []
        while self._heap and self._heap[0][0] <= now:
            at, _, queue = heapq.heappop(self._heap)
            if self._due.get(queue) == at:
                del self._due[queue]
                if not queue.deleted:
                    over.append(queue)
        return over

    def next(self) -> float | None:
        """When `due` wants to be asked again."""
        heap = self._heap
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def clear(self) -> None:
        """It serves no more."""
        self._used.clear()
        self._due.clear()
        self._heap.clear()
