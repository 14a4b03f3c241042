"""Axes of the pictures: round steps, decades, times, and numbers as short text. Pure numbers."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime

from spark.insight.words import length

SECOND = 1_000_000
TIME_STEPS = tuple(
    step * SECOND
    for step in (
        60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
        *(86400 * days for days in (1, 2, 4, 7, 14, 28, 56)),
    )
)  # fmt: skip
MARKS = (
    1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 60e6, 600e6, 3600e6, 36000e6, 86400e6, 864000e6, 8640000e6,
)  # fmt: skip
"""Microseconds: decades up to 10 s, then 1 and 10 minutes, hours and days."""
RELATIVE_UP_TO = 600 * SECOND
"""Spans up to this long count seconds from their beginning."""


def nice(limit: float, steps: int = 5) -> float:
    """A round step (1, 2 or 5 times a power of ten) so that about `steps` of them reach `limit`."""
    raw = max(limit / steps, 1e-9)
    power = math.pow(10, int(f"{raw:e}".split("e")[1]))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= raw * (1 - 1e-9))


def short(number: float) -> str:
    """12345 -> 12.3k, 0.5 -> 0.5."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g}{letter}"
    return f"{number:.3g}"


def when(us: int) -> str:
    """Microseconds since 1970 as UTC text."""
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def log_marks(values: Iterable[float]) -> list[float]:
    """Round durations in microseconds, about a decade apart, at least two. They enclose the positive
    `values`."""
    positive = [value for value in values if value > 0] or [1.0]
    low = bisect_right(MARKS, min(positive)) - 1
    high = bisect_left(MARKS, max(positive))
    last = min(max(high, low + 1), len(MARKS) - 1)
    return list(MARKS[max(min(low, last - 1), 0) : last + 1])


def time_ticks(begin_us: int, end_us: int, most: int) -> list[tuple[int, str]]:
    """About `most` moments and their text: seconds since the beginning, times of the day, or dates."""
    span = max(end_us - begin_us, 1)
    if span <= RELATIVE_UP_TO:
        step = nice(span / SECOND, most)
        count = int(span / SECOND / step + 1e-9)
        return [(begin_us + round(k * step * SECOND), f"{k * step:g} s") for k in range(count + 1)]
    step = next((step for step in TIME_STEPS if span <= step * most), TIME_STEPS[-1])
    first = -(-begin_us // step) * step
    form = "%d %b" if step >= 86400 * SECOND else "%H:%M" if span <= 86400 * SECOND else "%d %b %H:%M"
    moments = range(first, end_us + 1, step)
    return [(at, datetime.fromtimestamp(at / 1e6, UTC).strftime(form)) for at in moments]


def spell(us: float) -> str:
    """A duration, as text for a page."""
    return length(us).replace(" us", " µs")
