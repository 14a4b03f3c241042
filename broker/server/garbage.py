"""Schedules garbage collection. Owner: `Shell.run`.

With a million queued messages, a full collection stops the broker for a quarter of a second and finds
nothing, because messages have no cycles. So automatic collection is off while the shell runs. The young
generation is collected when it has grown, which looks only at new objects, and after a few ticks in any case,
because the count misleads while old objects are freed and new ones are made. Connections must leave no
cycles; otherwise a client that opens and closes them could force full collections. As a precaution, a full
collection runs after very many connections have closed.
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
"""Closed connections after which a full collection runs."""


class GarbageSchedule:
    """Call `step` about once a second, `end_tick` after each tick, and `closed` when a connection closes."""

    __slots__ = ("_gone", "_ticks")

    def __init__(self) -> None:
        self._gone = self._ticks = 0

    def closed(self) -> None:
        """Count a closed connection."""
        self._gone += 1

    def end_tick(self) -> None:
        """Collect the young generation if it may be large."""
        self._ticks += 1
        if self._ticks >= TICKS or gc.get_count()[0] > YOUNG:
            self._ticks = 0
            gc.collect(0)

    def step(self) -> None:
        """Run a full collection if one is due."""
        if self._gone >= CONNECTIONS:
            self._gone = 0
            gc.collect()

    @contextmanager
    def governing(self) -> Iterator[None]:
        """Turn automatic collection off inside, and exempt the objects that exist before. If it was off
        already (a start with millions of messages does this), nothing is collected. If the process has
        exempted objects itself, no others are."""
        was_on, has_exempted = gc.isenabled(), gc.get_freeze_count() > 0
        if was_on:
            gc.collect()
        if not has_exempted:
            gc.freeze()
        gc.disable()
        try:
            yield
        finally:
            if not has_exempted:
                gc.unfreeze()
            if was_on:
                gc.enable()
