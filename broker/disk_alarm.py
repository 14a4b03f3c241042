"""Is the disk about to be full? Owner: `Broker`, which stops reading from publishers before it is.

A disk that is full ends the node (the store cannot sync); publishers that wait lose nothing.
"""

from __future__ import annotations

from collections.abc import Callable

INTERVAL = 1.0
"""Seconds between two looks."""
_CLEAR = 1.1
"""The alarm ends above this many times the limit, so that it does not flap."""
_SHARE = 8
"""A look is due sooner when this part of what is left above the limit has come in."""


class DiskAlarm:
    """`free`: asks for the octets that are free where the node's data is; None: nobody looks."""

    __slots__ = ("_left", "_next", "free", "last", "limit", "raised")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.free: Callable[[], int] | None = None
        self.raised = False
        self.last = 0
        """Octets free at the last look."""
        self._left = 0
        self._next = 0.0

    def due(self, now: float, received: int) -> bool:
        """Is it time for a look? `received`: octets of input since the last."""
        if self.limit is None or self.free is None:
            return False
        return now >= self._next or received * _SHARE > self._left

    def next_deadline(self) -> float | None:
        """When it must be looked at although nothing comes in."""
        return self._next if self.raised else None

    def sample(self, now: float) -> bool:
        """Look; True when the alarm was raised or cleared. A disk that does not tell changes nothing."""
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
