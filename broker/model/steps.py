"""Work in pieces: a generator that yields the number of steps after each piece.

A step is some 0.3 us. A caller with other work to do asks for one piece at a time. `finish` runs all pieces
at once.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[int, None, T]


def finish(work: Steps[T]) -> T:
    """Run all pieces; returns the result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
