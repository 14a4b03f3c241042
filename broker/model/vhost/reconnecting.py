"""Whose clients have come back: queues and exchanges used since this node began to serve.

Owner: `VirtualHosts`; told by definitions, routing and channels of each use. After a start of serving,
auto-delete queues and exchanges wait for their clients for a time (`ha.reconnect_grace`). Whoever declares,
binds, gets from or publishes to one by its name within that time has come back: it got an answer that says
that the queue is there, so the queue stays. Afterwards the usual rules hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue
    from broker.model.routing.exchange import Exchange


class Reconnecting:
    """`__contains__`: used since `begin`. Nothing is noted before `begin` and after `end`."""

    __slots__ = ("_back", "waiting")

    def __init__(self) -> None:
        self._back: set[Queue | Exchange] = set()
        self.waiting = False
        """Clients of before may still come back."""

    def begin(self) -> None:
        self.waiting = True

    def end(self) -> None:
        self.waiting = False
        self._back.clear()

    def used(self, thing: Queue | Exchange) -> None:
        """It was declared, bound, got from, or published to by name."""
        if self.waiting:
            self._back.add(thing)

    def __contains__(self, thing: object) -> bool:
        return thing in self._back
