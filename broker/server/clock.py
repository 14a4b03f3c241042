"""The two clocks of a driver: a monotonic one that includes suspended time, and the wall clock."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""CLOCK_BOOTTIME on Linux: a suspended machine must notice the elapsed time, or its lease would look younger
than it is."""


def now() -> float:
    """Monotonic seconds."""
    return time.clock_gettime(_CLOCK)


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
