"""Messages that have left their queue all at once: their memory is given back some at a time.

Owner: `Removals`, which lets go of a piece in each tick. Giving back millions of messages in one go would
stop everybody else for a good part of a second. Whoever hands them over has made them history already.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.model.history.records import Entry
    from broker.model.history.replication_id_set import Range

PIECE = 16_384
"""Messages that a tick lets go of. So many or fewer are no reason to wait."""
_PARTS = 512
"""Parts in which `stretches` looks for gaps, at most."""


class Freeing:
    """`waits`: what is left to free. Not to be changed by others."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        self.waits: list[deque[Entry] | dict[int, Entry]] = []

    @property
    def waiting(self) -> int:
        """Messages."""
        return sum(map(len, self.waits))

    def add(self, entries: deque[Entry] | dict[int, Entry]) -> None:
        """Nobody else may use these any more."""
        if len(entries) > PIECE:
            self.waits.append(entries)

    def step(self) -> None:
        """Let go of one piece."""
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
    """Ranges of the sequences of these, which ascend, without a look at each; None if they have many gaps."""
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
