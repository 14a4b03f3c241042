"""Moves messages out of memory while the overflow reports too much. Owner: `Broker`.

It moves a little at the end of each tick, because publishers and consumers wait meanwhile.
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
"""Seconds between two steps while nothing has to be moved."""
STEP = 8 << 20
"""Approximate bytes moved in one step."""


class Paging:
    """`overflow` None: everything stays in memory. `behind`: the overflow cannot take more now."""

    __slots__ = ("_next", "behind", "overflow")

    def __init__(self, overflow: Overflow | None = None) -> None:
        self.overflow = overflow
        self.behind = False
        self._next = 0.0

    def due(self, now: float) -> bool:
        return self.overflow is not None and (now >= self._next or self.overflow.failed is not None)

    def next_deadline(self) -> float | None:
        """When to call `step` even without input."""
        return self._next if self.behind else None

    def step(self, now: float, vhosts: VirtualHosts) -> bool:
        """Page out some messages if wanted. True if `behind` has changed. Raises StoreUnusable if paged-out
        bytes cannot be read back."""
        if self.overflow is None:
            return False
        if self.overflow.failed is not None:
            raise StoreUnusable(self.overflow.failed)
        wanted = self.overflow.wanted()
        moved = vhosts.page_out(self.overflow, min(wanted, STEP)) if wanted > 0 else 0
        was, self.behind = self.behind, self.overflow.behind
        self._next = now + (INTERVAL if moved or self.behind else IDLE)
        return was is not self.behind

    def relieve(self, vhosts: VirtualHosts) -> None:
        """At startup: page out all that is wanted, and wait until it has left memory."""
        while self.overflow is not None and (wanted := self.overflow.wanted()) > 0:
            if not vhosts.page_out(self.overflow, min(wanted, 8 * STEP)):
                return
            self.overflow.flush()
