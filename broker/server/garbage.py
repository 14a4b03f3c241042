"""When to collect garbage. Owner: `Shell.run`.

With a million queued messages an automatic full collection stops the broker for a quarter of a second, to
find nothing: messages hold no cycles. So automatic collection is off while the shell runs; the young
generation is collected once it has grown, which looks at new objects only, and everything only after many
clients have come and gone, since those are what cycles are made of. Strangers, who never logged in, leave
none: else they could have everything collected as often as they like.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 100_000
"""Net new objects after which the young generation is collected."""
CONNECTIONS = 2_000
"""Clients gone after which everything is collected."""
STRANGERS = 50_000
"""The same of strangers: what they left in spite of all is little."""


class GarbageSchedule:
    """`step` is to be called about once a second; the shell tells of each connection that is `closed`."""

    __slots__ = ("_clients", "_strangers")

    def __init__(self) -> None:
        self._clients = self._strangers = 0

    def closed(self, *, client: bool) -> None:
        """A connection is gone. `client`: it had logged in."""
        if client:
            self._clients += 1
        else:
            self._strangers += 1

    def step(self) -> None:
        """Collect what is due."""
        if self._clients >= CONNECTIONS or self._strangers >= STRANGERS:
            self._clients = self._strangers = 0
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
