"""The messages of a serving queue that are behind its ready messages, kept in compact form.

Owner: `Queue`. A backlog has two parts: message runs, oldest first, whose bytes may be paged out; and a tail
with the newest messages as single entries. All ids in the backlog are above the ids in `Queue.ready`. The
queue refills `ready` from here as it empties.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice

from broker.model.history.records import Entry, MessageId, id_of
from broker.model.queue.keyed.sorted_ready import SortedReady
from broker.model.queue.message_run import MessageRun, Overflow, PagedOut, as_runs, page_out
from broker.model.queue.priority_ready import PriorityReady

WINDOW = 2000
"""Ready messages that a queue with a backlog keeps in memory."""
_ROOM = 16 << 20
"""Bytes after which a refill stops, even if it moved few messages."""
_TRIM = 1000


def _last_of(run: MessageRun) -> MessageId:
    return run.epoch, run.last


class Backlog:
    """`count`: messages in the backlog. The owner appends to `tail` itself and then raises `count`."""

    __slots__ = ("_at", "_runs", "count", "paged_out", "tail")

    def __init__(self) -> None:
        self.tail: deque[Entry] = deque()
        self.count = 0
        self.paged_out = 0
        """Messages of `count` that are paged out."""
        self._runs: list[MessageRun] = []
        self._at = 0
        """Index of the first run that still holds messages. Earlier items of `_runs` are spent."""

    # -- in and out

    def append(self, run: MessageRun) -> None:
        """Append a run above all others. The tail must be empty."""
        self._runs.append(run)
        self.count += run.left
        if isinstance(run.raws, PagedOut):
            self.paged_out += run.left

    def refill(self, ready: deque[Entry] | PriorityReady | SortedReady, window: int) -> None:
        """Move the oldest messages to `ready` until `ready` has `window` messages, or `_ROOM` bytes were
        moved."""
        room = _ROOM
        while len(ready) < window and room > 0 and self._at < len(self._runs):
            run = self._runs[self._at]
            left, paged_out = run.left, isinstance(run.raws, PagedOut)
            entries = run.take()
            self._at += 1
            self.count -= left
            self.paged_out -= left * paged_out
            ready.extend(entries)
            room -= sum(len(raw) for _, _, raw in entries)
        if self._at == len(self._runs):
            self._runs, self._at = [], 0
            if len(ready) < window and self.tail:
                ready.extend(self.tail)
                self.count -= len(self.tail)
                self.tail.clear()
        elif self._at > _TRIM and self._at * 2 > len(self._runs):
            del self._runs[: self._at]
            self._at = 0
        for run in islice(self._runs, self._at, self._at + 4):
            if isinstance(run.raws, PagedOut):
                run.raws.ahead()

    def page_out(self, overflow: Overflow, most: int) -> int:
        """Page out about `most` bytes, newest messages first. Returns the bytes that left memory."""
        if self.tail:
            self._runs += as_runs(self.tail)
            self.tail.clear()
        if self.paged_out == self.count:
            return 0
        octets, messages = page_out(self._newest_first, overflow, most)
        self.paged_out += messages
        return octets

    def _newest_first(self) -> Iterator[MessageRun]:
        return map(self._runs.__getitem__, range(len(self._runs) - 1, self._at - 1, -1))

    def clear(self) -> None:
        self.tail.clear()
        self._runs, self._at, self.count, self.paged_out = [], 0, 0, 0

    def put_back(self, entries: list[Entry]) -> list[Entry]:
        """Insert returned messages that belong into the backlog; returns the others. `entries` are sorted by
        id. A message belongs here if older messages behind it were paged out while a consumer held it."""
        oldest = self._runs[self._at] if self._at < len(self._runs) else None
        if oldest is None or id_of(entries[-1]) < (oldest.epoch, oldest.first):
            return entries
        at = bisect_left(entries, (oldest.epoch, oldest.first), key=id_of)
        self._runs = sorted([*self._runs[self._at :], *as_runs(entries[at:])], key=_last_of)
        self._at = 0
        self.count += len(entries) - at
        return entries[:at]

    # -- reading

    def runs(self) -> list[MessageRun]:
        """All runs. The tail is converted to runs for this call only."""
        return [*self._runs[self._at :], *as_runs(self.tail)]

    def entries(self) -> Iterator[Entry]:
        """All entries. Paged-out bytes are read back but stay paged out."""
        for run in self._runs[self._at :]:
            yield from run.entries()
        yield from self.tail

    def after(self, after: MessageId, most: int) -> list[Entry]:
        """The oldest entries with ids above `after`. Returns fewer than `most` only if there are no more."""
        found: list[Entry] = []
        at = bisect_right(self._runs, after, self._at, key=_last_of)
        while at < len(self._runs) and len(found) < most:
            found += [entry for entry in self._runs[at].entries() if id_of(entry) > after]
            at += 1
        if len(found) < most:
            start = bisect_right(self.tail, after, key=id_of)
            found += islice(self.tail, start, start + most - len(found))
        return found[:most]

    def epochs(self) -> set[int]:
        """Epochs of the messages in the backlog."""
        found = {run.epoch for run in self._runs[self._at :]}
        if self.tail:  # The tail is sorted, may be long, and usually has one epoch.
            first, last = self.tail[0][1].epoch, self.tail[-1][1].epoch
            found |= {first} if first == last else {envelope.epoch for _, envelope, _ in self.tail}
        return found
