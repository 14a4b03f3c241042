"""When messages leave memory: while the overflow says that there is too much. Owner: `Broker`.

A little at a time, at the end of ticks: publishers and consumers wait meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.model.queue.message_run import Overflow
from broker.store.errors import StoreUnusable

if TYPE_CHECKING:
    from broker.model.vhost.vhosts import VirtualHosts

INTERVAL = 0.01
"""Seconds between two steps."""
IDLE = 0.1
"""The same, while nothing need leave."""
STEP = 8 << 20
"""Bytes that leave in a step, about."""


class Paging:
    """`overflow` None: everything stays in memory. `behind`: it takes no more for now."""

    __slots__ = ("_next", "behind", "overflow")

    def __init__(self) -> None:
        self.overflow: Overflow | None = None
        self.behind = False
        self._next = 0.0

    def due(self, now: float) -> bool:
        return self.overflow is not None and (now >= self._next or self.overflow.failed is not None)

    def next_deadline(self) -> float | None:
        """When it must be looked at although nothing comes in."""
        return self._next if self.behind else None

    def step(self, now: float, vhosts: VirtualHosts) -> bool:
        """Move some out, if it is wanted. True if `behind` has changed. StoreUnusable if some of what left
        cannot be had back."""
        if self.overflow is None:
            return False
        if self.overflow.failed is not None:
            raise StoreUnusable(self.overflow.failed)
        wanted = self.overflow.wanted()
        moved = vhosts.set_aside(self.overflow, min(wanted, STEP)) if wanted > 0 else 0
        was, self.behind = self.behind, self.overflow.behind
        self._next = now + (INTERVAL if moved or self.behind else IDLE)
        return was is not self.behind

    def relieve(self, vhosts: VirtualHosts) -> None:
        """During a start: all that is wanted, and wait until it has left."""
        while self.overflow is not None and (wanted := self.overflow.wanted()) > 0:
            if not vhosts.set_aside(self.overflow, min(wanted, 8 * STEP)):
                return
            self.overflow.flush()
