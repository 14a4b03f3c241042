"""The alarm for a disk that is almost full. Owner: `Broker`, which then stops reading from publishers.

A full disk ends the node, because the store cannot sync. Publishers that wait lose nothing.
"""

from __future__ import annotations

from collections.abc import Callable

INTERVAL = 1.0
"""Seconds between samples."""
_CLEAR = 1.1
"""The alarm clears above the limit times this factor, so that it does not flap."""
_SHARE = 8
"""Sample sooner when input exceeds this fraction (1/n) of the room above the limit."""


class DiskAlarm:
    """`free`: returns the free octets where the node's data is. None: no sampling."""

    __slots__ = ("_left", "_next", "free", "last", "limit", "raised")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.free: Callable[[], int] | None = None
        self.raised = False
        self.last = 0
        """Free octets at the last sample."""
        self._left = 0
        self._next = 0.0

    def due(self, now: float, received: int) -> bool:
        """Whether to sample now. `received`: octets of input since the last sample."""
        if self.limit is None or self.free is None:
            return False
        return now >= self._next or received * _SHARE > self._left

    def next_deadline(self) -> float | None:
        """When to sample even without input."""
        return self._next if self.raised else None

    def sample(self, now: float) -> bool:
        """Sample; True if the alarm was raised or cleared. If the disk gives no answer, nothing changes."""
        self._next = now + INTERVAL
        if self.limit is None or self.free is None:
            return False
        try:
            self.last = self.free()
        except OSError:
            return False
        self._left = max(self.last - self.limit, 0)
        before = self.raised
        self.raised = self.last < self.limit * (_CLEAR if before else 1)
        return self.raised is not before
