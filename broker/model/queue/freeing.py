"""Frees the memory of many messages in pieces, after they left their queue at once.

Owner: `Removals`, which frees one piece in each tick. Freeing millions of messages at once would block the
event loop for a good part of a second. The caller must have recorded the dequeues in history before.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.model.history.records import Entry
    from broker.model.history.replication_id_set import Range

PIECE = 16_384
"""Messages freed in one tick. Containers of this size or less are freed at once."""
_PARTS = 512
"""Maximum number of parts that `stretches` examines."""


class Freeing:
    """`waits`: the containers left to free; others must not change the list."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        self.waits: list[deque[Entry] | dict[int, Entry]] = []

    @property
    def waiting(self) -> int:
        """Messages left to free."""
        return sum(map(len, self.waits))

    def add(self, entries: deque[Entry] | dict[int, Entry]) -> None:
        """Take over a container. Nobody else may use it any more."""
        if len(entries) > PIECE:
            self.waits.append(entries)

    def step(self) -> None:
        """Free one piece."""
        left = PIECE
        while self.waits and left > 0:
            entries = self.waits[-1]
            piece = min(left, len(entries))
            left -= piece
            pop = entries.popitem if isinstance(entries, dict) else entries.pop
            for _ in repeat(None, piece):
                pop()
            if not entries:
                self.waits.pop()


def stretches(entries: deque[Entry]) -> list[Range] | None:
    """The ranges of ascending sequences, without a look at every entry. None if there are too many gaps."""
    found: list[Range] = []
    parts = [(0, len(entries) - 1)] if entries else []
    for _ in repeat(None, _PARTS):
        if not parts:
            return found
        low, high = parts.pop()
        first, last = entries[low][0], entries[high][0]
        if last - first != high - low:
            middle = (low + high) // 2
            parts += [(middle + 1, high), (low, middle)]
        elif found and found[-1][1] + 1 == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return None if parts else found
