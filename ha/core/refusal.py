"""Refusals, one sentence each: why, and what whoever asked may do next."""

from __future__ import annotations

NEXT = "; next: "
"""Between the two."""


def with_next(reason: str, way: str) -> str:
    """`way`: a command or a setting; "" where the reason says it all."""
    return f"{reason}{NEXT}{way}" if way else reason
