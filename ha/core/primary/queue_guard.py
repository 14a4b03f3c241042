"""QueueGuard: from which position on a queue's messages are held for one backup, and up to where they are
released.

Owner: RemoteBackup, one each: the link is one ordered stream, so that one guard position stands for all
queues, and holding is a watermark instead of a counter per message. Called by RemoteBackup; calls nobody.
"""

from __future__ import annotations

from broker.model.values import Position
from ha.core.errors import LinkError


class QueueGuard:
    """Holds everything after `free`; what the backup acknowledges moves on from there."""

    __slots__ = ("applied", "durable", "free")

    def __init__(self, free: Position) -> None:
        self.free = free
        """Nothing at or before this position is held: it may have been confirmed before the guard was set."""
        self.applied = free
        self.durable = free

    @classmethod
    def of_expected(cls, epoch: int) -> QueueGuard:
        """For a member of the record that has not come back yet: holds the whole epoch, and what this
        node had when it was promoted, position 0: the member may lack the end of that.
        """
        return cls(before_all_of(epoch))

    def release(self, applied: Position, durable: Position, sent: Position) -> None:
        """The backup has acknowledged this much. LinkError if it was never sent."""
        if applied > sent or durable > applied:
            raise LinkError(f"acknowledged {applied} and {durable}, but {sent} is the last sent")
        self.applied = max(self.applied, applied)
        self.durable = max(self.durable, durable)


def before_all_of(epoch: int) -> Position:
    """Holds even what asks for nothing new, and so goes by the position that the epoch began with: an answer
    to a declare of what is there already, for one.
    """
    return Position(epoch, -1)
