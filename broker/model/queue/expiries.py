"""Queues that are deleted after a time without use (`x-expires`): no consumer, get or declaration.

Owner: VirtualHost. Only a serving one asks which queues are due. `due` passes the time in once a tick, so a
use counts from the end of its tick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.model.queue.deadlines import Deadlines

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue


class Expiries:
    """The times at which unused queues are to be deleted."""

    __slots__ = ("_ends", "_used")

    def __init__(self) -> None:
        self._used: dict[Queue, None] = {}
        self._ends: Deadlines[Queue] = Deadlines()

    def used(self, queue: Queue) -> None:
        """The queue was used in this tick: declared, consumed from, got from, or left by a consumer."""
        if queue.expires is not None:
            self._used[queue] = None

    def due(self, now: float) -> list[Queue]:
        """The queues to delete now. For a queue used since the last call, its time starts at `now`."""
        for queue in self._used:
            at = None if queue.expires is None or queue.consumers or queue.deleted else now + queue.expires
            self._ends.set(queue, at)
        self._used.clear()
        return self._ends.take(now)

    def wait(self, queue: Queue, now: float) -> None:
        """Keep a due queue that cannot be deleted yet. It is due again in the next tick unless it is used."""
        self._ends.set(queue, now)

    def next(self) -> float | None:
        """When to call `due` again."""
        return self._ends.next()

    def forget(self, queue: Queue) -> None:
        self._used.pop(queue, None)
        self._ends.set(queue, None)

    def clear(self) -> None:
        self._used.clear()
        self._ends.clear()
