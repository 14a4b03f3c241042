"""What a serving queue holds beyond its ready messages: too much to have each of them at hand.

Owner: `Queue`. Runs, oldest first, whose bytes may be set aside in the overflow, and a tail of the newest,
which are not runs yet. All ids are beyond those of `Queue.ready`, which is filled up from here as it empties.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice

from broker.model.history.records import Entry, MessageId, id_of
from broker.model.queue.message_run import MessageRun, Overflow, SetAside, as_runs, set_aside
from broker.model.queue.priority_ready import PriorityReady

WINDOW = 2000
"""Messages that are ready, and in memory, at the front of a queue with a backlog."""
_ROOM = 16 << 20
"""Bytes of them that are enough, however few they are."""
_TRIM = 1000


def _last_of(run: MessageRun) -> MessageId:
    return run.epoch, run.last


class Backlog:
    """`count`: messages in it. `tail`: to be appended to, and then `count` to be raised, by its owner."""

    __slots__ = ("_at", "_runs", "aside", "count", "tail")

    def __init__(self) -> None:
        self.tail: deque[Entry] = deque()
        self.count = 0
        self.aside = 0
        """How many of these are not in memory."""
        self._runs: list[MessageRun] = []
        self._at = 0
        """Those before it are gone."""

    # -- in and out

    def append(self, run: MessageRun) -> None:
        """A run beyond all others; the tail must be empty."""
        self._runs.append(run)
        self.count += run.left
        if isinstance(run.raws, SetAside):
            self.aside += run.left

    def refill(self, ready: deque[Entry] | PriorityReady, window: int) -> None:
        """Move the oldest to `ready` until it has `window` messages, or bytes enough."""
        room = _ROOM
        while len(ready) < window and room > 0 and self._at < len(self._runs):
            run = self._runs[self._at]
            left, aside = run.left, isinstance(run.raws, SetAside)
            entries = run.take()
            self._at += 1
            self.count -= left
            self.aside -= left * aside
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
            if isinstance(run.raws, SetAside):
                run.raws.ahead()

    def set_aside(self, overflow: Overflow, most: int) -> int:
        """About `most` bytes leave memory, the newest first; how many did."""
        if self.tail:
            self._runs += as_runs(self.tail)
            self.tail.clear()
        if self.aside == self.count:
            return 0
        octets, messages = set_aside(self._newest_first, overflow, most)
        self.aside += messages
        return octets

    def _newest_first(self) -> Iterator[MessageRun]:
        return (self._runs[at] for at in range(len(self._runs) - 1, self._at - 1, -1))

    def clear(self) -> None:
        self.tail.clear()
        self._runs, self._at, self.count, self.aside = [], 0, 0, 0

    def put_back(self, entries: list[Entry]) -> list[Entry]:
        """Take those of these, sorted, whose place is here: what was given back before them may have been set
        aside since. The others."""
        oldest = self._runs[self._at] if self._at < len(self._runs) else None
        if oldest is None or id_of(entries[-1]) < (oldest.epoch, oldest.first):
            return entries
        at = bisect_left(entries, (oldest.epoch, oldest.first), key=id_of)
        self._runs = sorted([*self._runs[self._at :], *as_runs(entries[at:])], key=_last_of)
        self._at = 0
        self.count += len(entries) - at
        return entries[:at]

    # -- looking

    def runs(self) -> list[MessageRun]:
        """All of it; the tail as runs too, made for the call."""
        return [*self._runs[self._at :], *as_runs(self.tail)]

    def entries(self) -> Iterator[Entry]:
        """All of it, read back where it was set aside, and staying so."""
        for run in self._runs[self._at :]:
            yield from run.entries()
        yield from self.tail

    def after(self, after: MessageId, most: int) -> list[Entry]:
        """The oldest beyond that id, `most` or fewer: fewer only if there are no more."""
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
        """Of which messages are in it."""
        found = {run.epoch for run in self._runs[self._at :]}
        if self.tail:  # sorted, and of one epoch as a rule: it may be long
            first, last = self.tail[0][1].epoch, self.tail[-1][1].epoch
            found |= {first} if first == last else {envelope.epoch for _, envelope, _ in self.tail}
        return found
