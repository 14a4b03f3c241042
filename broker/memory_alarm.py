"""How much memory messages take, by sample, and whether that is too much. Owner: `Broker`.

Counting every message's bytes in and out would cost more than it is worth on the hot path. Instead each
queue is sampled: some of its messages are looked at, and their mean size stands for all. A sample is taken
once a second, or sooner when enough input has arrived to matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.model.queue import Queue

INTERVAL = 1.0
"""Seconds between samples."""
ENTRY_OVERHEAD = 150
"""Octets that a queued message takes besides its frames: bytes header, tuple, integer, deque slot, index."""
_LOOK_AT = 32
_GUESS = 1024
"""Octets of a message of a queue that never had one ready at a sample."""
_CLEAR = 0.9
"""The alarm ends below this part of the limit, so that it does not flap."""


class MemoryAlarm:
    """`received`: octets of input since the last sample, counted by the broker."""

    __slots__ = ("_means", "_next", "limit", "raised", "received", "used")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.raised = False
        self.received = 0
        self.used = 0
        self._next: float | None = None
        self._means: dict[bytes, int] = {}
        """Mean size by queue at the last sample: stands in while all of a queue is unacknowledged."""

    def due(self, now: float) -> bool:
        """Is it time for a sample?"""
        if self.limit is None:
            return False
        if self._next is None:
            self._next = now + INTERVAL
        return now >= self._next or self.received * 16 >= self.limit

    def next_deadline(self) -> float | None:
        """When a sample is due, if there is reason for one."""
        return self._next if self.raised or self.received else None

    def sample(self, now: float, queues: Iterable[Queue], unsent: int) -> bool:
        """Measure; True when the alarm was raised or cleared."""
        self._next = now + INTERVAL
        self.received = 0
        means: dict[bytes, int] = {}
        self.used = unsent
        for queue in queues:
            total = len(queue.ready) + queue.backlog.count - queue.backlog.aside + queue.unacked_count
            if total:
                mean = mean_size(queue) or self._means.get(queue.uuid, _GUESS)
                means[queue.uuid] = mean
                self.used += total * (mean + ENTRY_OVERHEAD)
        self._means = means
        if self.limit is None:
            return False
        before = self.raised
        self.raised = self.used > self.limit * (_CLEAR if before else 1)
        return self.raised is not before


def mean_size(queue: Queue) -> int:
    """About how many octets a message of this queue has; 0 when none is ready (ask what it was before)."""
    ready = queue.ready
    if not ready:
        return 0
    step = max(1, len(ready) // _LOOK_AT)
    sizes = [len(ready[at][2]) for at in range(0, len(ready), step)]
    return sum(sizes) // len(sizes)
