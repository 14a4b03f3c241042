"""IdSetter: gives each message of one queue its replication id, before it is enqueued.

Owner: the queue it is set on, by the primary's adapter; called by the queue for each run. Ids are (epoch,
sequence): a new primary opens a new epoch, so that an id is never issued twice, not even for messages that
a lagging backup never saw. Qpid's bare counters do that and lose messages.
"""

from __future__ import annotations

from ha.core.errors import Broken


class IdSetter:
    """Counts from `next` on, without gaps, in one epoch."""

    __slots__ = ("epoch", "next")

    def __init__(self, epoch: int, first: int = 1) -> None:
        if epoch <= 0 or first <= 0:
            raise Broken(f"ids cannot begin at ({epoch}, {first})")
        self.epoch = epoch
        self.next = first

    def take(self, count: int) -> int:
        """Reserve `count` ids; gives the first."""
        first = self.next
        self.next = first + count
        return first
