"""The earliest of some deadlines. Asked for at the end of each tick by everybody who has some."""

from __future__ import annotations


def earliest(*times: float | None) -> float | None:
    """None stands for no deadline; so it does as the answer."""
    first: float | None = None
    for time in times:
        if time is not None and (first is None or time < first):
            first = time
    return first
