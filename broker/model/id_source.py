"""Where the sequences of a queue's messages come from. Owner: Queue."""

from __future__ import annotations


class IdSource:
    """Gives sequences of one epoch for one queue, from 1 without gaps.

    A hook may put its own on `queue.ids`: anything with `epoch`, `next` and `take`.
    """

    __slots__ = ("epoch", "next")

    def __init__(self, epoch: int, following: int = 1) -> None:
        self.epoch = epoch
        self.next = following

    def take(self, count: int) -> int:
        """Reserve `count` sequences; the first of them."""
        first = self.next
        self.next = first + count
        return first
