"""Reads a serving queue in pieces, oldest first, while the queue keeps serving. Snapshots use this.

A piece holds all messages of one range of ids at one instant, ready and unacknowledged. The high-availability
adapter calls `held_after`, which only reads. The cost of a piece is proportional to what it returns, because
publishers and consumers wait meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from broker.model.history.records import Entry, MessageId, Piece, id_of
from broker.model.queue.ready_after import ready_after

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue

LEAST_WIDTH = 4096
"""Minimum number of sequences that one lookup among many unacknowledged messages covers."""


def held_after(queue: Queue, after: MessageId, most: int, last: MessageId | None = None) -> Piece:
    """The oldest messages with ids above `after`, at most `most`; empty if the next range of ids has none.

    `last`: an id above which the caller knows that there are no messages. Then older unacknowledged messages
    cost nothing.
    """
    entries = ready_after(queue.ready, queue.backlog, after, most)
    upto = id_of(entries[-1]) if len(entries) == most else last
    if queue.unacked_count:
        unacked, upto = _unacked_after(queue, after, upto, most)
        if upto is not None:
            del entries[bisect_right(entries, upto, key=id_of) :]
        entries = sorted([*entries, *unacked], key=id_of)
        if len(entries) > most:
            del entries[most:]
            upto = id_of(entries[-1])
    return Piece(entries, upto)


def _unacked_after(
    queue: Queue, after: MessageId, upto: MessageId | None, most: int
) -> tuple[list[Entry], MessageId | None]:
    """Unacknowledged messages with ids above `after`, up to the returned id, which is `upto` or smaller."""
    found: list[Entry] = []
    width = max(4 * most, LEAST_WIDTH)
    for epoch in sorted(queue._unacked):
        if epoch < after[0]:
            continue
        if upto is not None and epoch > upto[0]:
            break
        held = queue._unacked[epoch]
        low = after[1] + 1 if epoch == after[0] else 0
        high = upto[1] if upto is not None and epoch == upto[0] else None
        if len(held) > width and (high is None or high - low >= width):
            some = _within(held, low, low + width - 1)
            if not some:
                # A gap, or no more messages. Only a pass over every unacknowledged message can tell.
                low = min((seq for seq in held if seq >= low), default=-1)
                if low < 0 or (high is not None and low > high):
                    continue
                some = _within(held, low, low + width - 1)
            return found + some, (epoch, low + width - 1)
        found += _within(held, low, high)
    return found, upto


def _within(held: dict[int, Entry], low: int, high: int | None) -> list[Entry]:
    """Messages with sequences from `low` to `high`. Probes each sequence or filters all messages, whichever
    is cheaper."""
    if high is not None and high - low < len(held):
        return [held[seq] for seq in range(low, high + 1) if seq in held]
    return [entry for seq, entry in held.items() if low <= seq and (high is None or seq <= high)]
