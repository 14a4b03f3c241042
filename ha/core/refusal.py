"""Refusals: a code, one sentence that says why, and what the operator may do next."""

from __future__ import annotations

from typing import TypeVar

from understudy.shared.codes import Coded

NEXT = "; next: "
"""Between the two."""
S = TypeVar("S", str, Coded)


def with_next(reason: S, way: str) -> S:
    """`way`: a command or a setting; "" where the reason says it all."""
    return reason + NEXT + way if way else reason
