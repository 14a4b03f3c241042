"""When to collect garbage. Owner: `Shell.run`.

With a million queued messages an automatic full collection stops the broker for a quarter of a second, to
find nothing: messages hold no cycles. So automatic collection is off while the shell runs; the young
generation is collected once it has grown, which looks at new objects only, and everything only after many
connections have come and gone, since those are what cycles are made of.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 100_000
"""Net new objects after which the young generation is collected."""
CONNECTIONS = 2_000
"""Connections closed after which everything is collected."""


class GarbageSchedule:
    """`step` is to be called about once a second; `connections_closed` is counted by the shell."""

    __slots__ = ("connections_closed",)

    def __init__(self) -> None:
        self.connections_closed = 0

    def step(self) -> None:
        """Collect what is due."""
        if self.connections_closed >= CONNECTIONS:
            self.connections_closed = 0
            gc.collect()
        elif gc.get_count()[0] > YOUNG:
            gc.collect(0)

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
