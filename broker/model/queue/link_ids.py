"""Ids of link queues: a message has the same one in all link queues of a broker that it goes to.

So it can be told where it comes by several ways: its id at the node at which it was published is that in any
link queue there (`Envelope.origin`). In one queue these ids have gaps, as if messages had left already.
"""

from __future__ import annotations


class LinkNumbers:
    """The sequences of all link queues of a broker, in one epoch. Owner: Shared."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._next = 1
        self._run = 0

    def reserve(self, count: int) -> int:
        """Sequences for a run of messages. Returns the first, which is at least 1."""
        first = self._next
        self._next += count
        return first

    def begin(self, first: int) -> None:
        """Until `end`, each link queue takes the run that begins there."""
        self._run = first

    def end(self) -> None:
        self._run = 0

    def take(self, count: int) -> int:
        return self._run or self.reserve(count)


class LinkIds:
    """Implements `broker.model.history.id_source.Ids` for one link queue."""

    __slots__ = ("_numbers", "epoch", "next")

    def __init__(self, numbers: LinkNumbers) -> None:
        self._numbers = numbers
        self.epoch = numbers.epoch
        self.next = 1

    def take(self, count: int) -> int:
        first = self._numbers.take(count)
        self.next = first + count
        return first
