"""When messages leave memory: while the overflow says that there is too much. Owner: `Broker`.

A little at a time, at the end of ticks: publishers and consumers wait meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.model.message_run import Overflow
from broker.store.errors import StoreUnusable

if TYPE_CHECKING:
    from broker.model.vhost import VirtualHost

INTERVAL = 0.01
"""Seconds between two steps."""
IDLE = 0.1
"""The same, while nothing need leave."""
STEP = 8 << 20
"""Bytes that leave in a step, about."""


class Paging:
    """`overflow` None: everything stays in memory."""

    __slots__ = ("_next", "overflow")

    def __init__(self) -> None:
        self.overflow: Overflow | None = None
        self._next = 0.0

    def due(self, now: float) -> bool:
        return self.overflow is not None and (now >= self._next or self.overflow.failed is not None)

    def step(self, now: float, vhost: VirtualHost) -> None:
        """Move some out, if it is wanted. StoreUnusable if some of it cannot be had back."""
        if self.overflow is None:
            return
        if self.overflow.failed is not None:
            raise StoreUnusable(self.overflow.failed)
        wanted = self.overflow.wanted()
        moved = vhost.set_aside(self.overflow, min(wanted, STEP)) if wanted > 0 else 0
        self._next = now + (INTERVAL if moved else IDLE)

    def relieve(self, vhost: VirtualHost) -> None:
        """During a start: all that is wanted, and wait until it has left."""
        while self.overflow is not None and (wanted := self.overflow.wanted()) > 0:
            if not vhost.set_aside(self.overflow, min(wanted, 8 * STEP)):
                return
            self.overflow.flush()
