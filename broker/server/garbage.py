"""When to collect garbage. Owner: `Shell.run`.

With a million queued messages an automatic full collection stops the broker for a quarter of a second, to
find nothing: messages hold no cycles. So automatic collection is off while the shell runs; the young
generation is collected once it has grown, which looks at new objects only, and after a few ticks in any case:
while old objects end and new ones come, their number does not tell. Connections leave no cycles: else
whoever opens and closes them could have everything collected as often as they like. For what they leave in
spite of all, everything is collected after very many have come and gone.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 10_000
"""Net new objects after which the young generation is collected: about a millisecond's work."""
TICKS = 8
"""Ticks after which it is collected in any case."""
CONNECTIONS = 50_000
"""Connections gone after which everything is collected."""


class GarbageSchedule:
    """`step` is to be called about once a second, `end_tick` after each tick; `closed` at the end of each
    connection."""

    __slots__ = ("_gone", "_ticks")

    def __init__(self) -> None:
        self._gone = self._ticks = 0

    def closed(self) -> None:
        """A connection is gone."""
        self._gone += 1

    def end_tick(self) -> None:
        """Collect what is young, if it is much, or may be."""
        self._ticks += 1
        if self._ticks >= TICKS or gc.get_count()[0] > YOUNG:
            self._ticks = 0
            gc.collect(0)

    def step(self) -> None:
        """Collect what is due."""
        if self._gone >= CONNECTIONS:
            self._gone = 0
            gc.collect()

    @contextmanager
    def governing(self) -> Iterator[None]:
        """Automatic collection is off inside, and what was alive before is never looked at. (Who has switched
        it off before, to start with millions of messages, has nothing collected.)"""
        was_on = gc.isenabled()
        if was_on:
            gc.collect()
        gc.freeze()
        gc.disable()
        try:
            yield
        finally:
            gc.unfreeze()
            if was_on:
                gc.enable()
