"""Where the sequences of a queue's messages come from. Owner: Queue."""

from __future__ import annotations

from typing import Protocol


class Ids(Protocol):
    """What `queue.ids` may be; a hook may put its own there."""

    epoch: int
    next: int

    def take(self, count: int) -> int:
        """Reserve `count` sequences; the first of them."""
        ...


class IdSource:
    """Gives sequences of one epoch for one queue, from 1 without gaps."""

    __slots__ = ("epoch", "next")

    def __init__(self, epoch: int, following: int = 1) -> None:
        self.epoch = epoch
        self.next = following

    def take(self, count: int) -> int:
        """Reserve `count` sequences; the first of them."""
        first = self.next
        self.next = first + count
        return first
