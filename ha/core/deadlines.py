"""The earliest of several deadlines."""

from __future__ import annotations


def earliest(*times: float | None) -> float | None:
    """None stands for no deadline; so it does as the answer."""
    first: float | None = None
    for time in times:
        if time is not None and (first is None or time < first):
            first = time
    return first
