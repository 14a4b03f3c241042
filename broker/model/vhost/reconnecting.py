"""Queues and exchanges whose clients have come back since this node began to serve.

Owner: `VirtualHosts`. Definitions, routing and channels report each use. After a node begins to serve,
auto-delete queues and exchanges wait for their clients for a time (`ha.reconnect_grace`). A client that
declares, binds, gets from or publishes to one by its name in that time has come back: the reply said that the
queue exists, so the queue stays. Afterwards the usual rules apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue
    from broker.model.routing.exchange import Exchange


class Reconnecting:
    """`in`: used since `begin`. Nothing is noted before `begin` and after `end`."""

    __slots__ = ("_back", "waiting")

    def __init__(self) -> None:
        self._back: set[Queue | Exchange] = set()
        self.waiting = False
        """Clients from before may still come back."""

    def begin(self) -> None:
        self.waiting = True

    def end(self) -> None:
        self.waiting = False
        self._back.clear()

    def used(self, thing: Queue | Exchange) -> None:
        """A client declared it, bound it, got from it, or published to it by name."""
        if self.waiting:
            self._back.add(thing)

    def __contains__(self, thing: object) -> bool:
        return thing in self._back
