"""Queues that end when nobody has used them for a while (`x-expires`): no consumer, get or declaration.

Owner: VirtualHost; only one that serves asks what is due. Time comes in with `due`, once a tick, so that a
use counts from the end of its tick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.model.queue.deadlines import Deadlines

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue


class Expiries:
    """When which queue is to end, if it is not used before."""

    __slots__ = ("_ends", "_used")

    def __init__(self) -> None:
        self._used: dict[Queue, None] = {}
        self._ends: Deadlines[Queue] = Deadlines()

    def used(self, queue: Queue) -> None:
        """Declared, consumed from, got from, or left by a consumer, in this tick."""
        if queue.expires is not None:
            self._used[queue] = None

    def due(self, now: float) -> list[Queue]:
        """Those that are to end. Times run from here for what was used since the last call."""
        for queue in self._used:
            at = None if queue.expires is None or queue.consumers or queue.deleted else now + queue.expires
            self._ends.set(queue, at)
        self._used.clear()
        return self._ends.take(now)

    def wait(self, queue: Queue, now: float) -> None:
        """It is due, and cannot end yet: it is so again in the next tick, unless it is used before."""
        self._ends.set(queue, now)

    def next(self) -> float | None:
        """When `due` wants to be asked again."""
        return self._ends.next()

    def forget(self, queue: Queue) -> None:
        """It is gone."""
        self._used.pop(queue, None)
        self._ends.set(queue, None)

    def clear(self) -> None:
        """It serves no more."""
        self._used.clear()
        self._ends.clear()
