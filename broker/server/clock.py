"""The two clocks of a driver: one that never goes back and counts sleep, and the wall."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A suspended machine must notice that time went by (a lease would otherwise look young): CLOCK_BOOTTIME on
Linux."""


def now() -> float:
    """Seconds that never go back."""
    return time.clock_gettime(_CLOCK)


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
