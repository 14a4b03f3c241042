"""Assigns the sequences of a queue's messages. Owner: Queue."""

from __future__ import annotations

from typing import Protocol


class Ids(Protocol):
    """The type of `queue.ids`; a hook may set its own."""

    epoch: int
    next: int

    def take(self, count: int) -> int:
        """Reserve `count` sequences. Returns the first."""
        ...


class IdSource:
    """Assigns the sequences of one queue and epoch, from 1 without gaps."""

    __slots__ = ("epoch", "next")

    def __init__(self, epoch: int, following: int = 1) -> None:
        self.epoch = epoch
        self.next = following

    def take(self, count: int) -> int:
        """Reserve `count` sequences. Returns the first."""
        first = self.next
        self.next = first + count
        return first
