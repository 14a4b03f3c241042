"""The sooner of two deadlines. For what runs in each tick: no argument list is made."""

from __future__ import annotations


def sooner(one: float | None, other: float | None) -> float | None:
    """None stands for no deadline; so it does as the answer."""
    if one is None or (other is not None and other < one):
        return other
    return one
