"""Ready messages of a delay queue: the one that expires first comes first, then by id. Pure.

Owner: `Queue`, which uses this in place of a deque. Both orders are kept, because snapshots read by id while
messages come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from sortedcontainers import SortedList

from broker.model.history.records import Entry, id_of
from broker.model.queue.keyed.sorted_ready import SortedReady

RETRY = 200
"""Milliseconds between looks whether a full queue has room again."""
_Due = tuple[int, int, int]
"""Wall-clock milliseconds, then epoch and sequence."""
_LATER = 1 << 62
"""The time of messages that wait for room in a full queue."""


class Target(Protocol):
    """A queue that may be full."""

    @property
    def refuses(self) -> bool: ...
    def room(self, raws: list[bytes]) -> int: ...
    def __hash__(self) -> int: ...


class DueReady(SortedReady):
    """`_due` and `_by_id` hold the same messages. `_waiting`: times of due messages that wait for room, by
    the full queue. They are last in `_due`."""

    __slots__ = ("_due", "_waiting")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        super().__init__()
        self._due = SortedList()
        self._waiting: dict[Target, SortedList] = {}
        self.extend(entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter([self._by_id[due[1:]] for due in self._due])

    def __getitem__(self, at: int) -> Entry:
        due: _Due = self._due[at]
        found: Entry = self._by_id[due[1:]]
        return found

    def _put(self, entry: Entry) -> None:
        self._by_id[id_of(entry)] = entry
        self._due.add(_due_of(entry))

    def popleft(self) -> Entry:
        due: _Due = self._due.pop(0)
        found: Entry = self._by_id.pop(due[1:])
        return found

    def clear(self) -> None:
        self._due.clear()
        self._by_id.clear()
        self._waiting.clear()

    # -- full queues

    @property
    def waits(self) -> bool:
        """Whether a due message waits for room."""
        return bool(self._waiting)

    def next_due(self) -> int | None:
        """When the first message is due that does not wait for room; None if there is none."""
        if not self._due or self._due[0][0] == _LATER:
            return None
        due: _Due = self._due[0]
        return due[0]

    def is_behind(self, entry: Entry, target: Target) -> bool:
        """Whether an earlier message waits for room in `target`."""
        waiting = self._waiting.get(target)
        return waiting is not None and bool(waiting[0] < _due_of(entry))

    def postpone(self, entry: Entry, target: Target) -> None:
        """The first message waits for room in `target`."""
        due = _due_of(entry)
        self._due.remove(due)
        self._due.add((_LATER, due[1], due[2]))
        self._waiting.setdefault(target, SortedList()).add(due)

    def look_again(self, most: int) -> None:
        """Messages for which there is room now are due again, at most `most` of each queue."""
        for target, waiting in list(self._waiting.items()):
            first: list[_Due] = [due for due in waiting[:most] if due[1:] in self._by_id]
            some = [self._by_id[due[1:]][2] for due in first]
            room = target.room(some) if target.refuses else len(some)
            for due in first[:room]:
                self._due.remove((_LATER, due[1], due[2]))
                self._due.add(due)
            del waiting[: waiting.index(first[room]) if room < len(first) else most]
            if not waiting:
                del self._waiting[target]


def _due_of(entry: Entry) -> _Due:
    seq, envelope, _ = entry
    return envelope.wall_ms + (envelope.expiration or 0), envelope.epoch, seq
