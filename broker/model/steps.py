"""Work that can be done in pieces: a generator that yields, after each piece, the steps that it took.

A step is some 0.3 us. Whoever has other work to do between two pieces asks for one after the other; `finish`
does all of it at once.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[int, None, T]


def finish(work: Steps[T]) -> T:
    """Do all of it; the result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
