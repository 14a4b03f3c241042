"""Timeouts for acks: a client that keeps a message unacknowledged for longer loses its channel or link.

`Broker` looks through the connections now and then. `DeliveryTimes` then notes up to which tag a channel has
delivered. So a delivery costs nothing, and a message may be kept for up to two intervals longer. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

_LONGEST, _SHORTEST = 30.0, 0.05
"""Seconds between two looks, at most and at least."""
_PART = 8
"""A look after each such part of the shortest timeout."""
_MARKS = 64
_AT_ONCE = 500
"""Connections that are looked at in one tick."""


class DeliveryTimes:
    """Since when the tags of one channel or link are outstanding, at the latest."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        """Times with the tag that came next then. Of many, each second one is dropped."""

    def note(self, now: float, oldest: int, following: int) -> None:
        """`oldest`: the oldest outstanding tag; `following`: that of the next delivery."""
        marks = self._marks
        while marks and marks[0][1] <= oldest:
            marks.popleft()
        if not marks or marks[-1][1] != following:
            marks.append((now, following))
        if len(marks) > _MARKS:
            self._marks = deque([mark for at, mark in enumerate(marks) if at % 2 == 0 or mark is marks[-1]])

    def clear(self) -> None:
        """Nothing is outstanding."""
        if self._marks:
            self._marks.clear()

    def upto(self, time: float) -> int:
        """Tags below this were delivered at that time, or before."""
        found = 0
        for when, tag in self._marks:
            if when > time:
                break
            found = tag
        return found


class Watched(Protocol):
    """A connection."""

    gone: bool

    def check_acks(self, now: float) -> None:
        """Close what has kept a message for too long."""


class AckTimeouts:
    """When to look at which connections. `default`: milliseconds for queues without an own timeout, 0 for
    none."""

    __slots__ = ("_last", "_left", "default")

    def __init__(self, default: int) -> None:
        self.default = default
        self._last = 0.0
        self._left: Iterator[Watched] | None = None

    def next(self, own: int) -> float | None:
        """When to `look` again. `own`: the shortest timeout of a queue in milliseconds, 0 for none."""
        if not own and not self.default:
            return None
        if self._left is not None:
            return self._last
        shortest = min(self.default or own, own or self.default) / 1000
        return self._last + max(_SHORTEST, min(_LONGEST, shortest / _PART))

    def look(self, now: float, connections: Iterable[Watched]) -> None:
        """Look at some of the connections. The next ticks look at the others."""
        if self._left is None:
            self._last, self._left = now, iter(list(connections))
        for count, connection in enumerate(self._left, 1):
            if not connection.gone:
                connection.check_acks(now)
            if count == _AT_ONCE:
                return
        self._left = None


def timed_out(channel: int, timeout: int) -> str:
    """RabbitMQ's text."""
    return (
        f"delivery acknowledgement on channel {channel} timed out. Timeout value used: {timeout} ms. This "
        "timeout value can be configured, see consumers doc guide to learn more"
    )
