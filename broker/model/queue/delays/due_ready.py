"""Ready messages of a delay queue: the one that expires first comes first, then by id. Pure.

Owner: `Queue`, which uses this in place of a deque. Both orders are kept, because snapshots read by id while
messages come and go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from sortedcontainers import SortedDict, SortedList

from broker.model.history.records import Entry, MessageId, id_of

_Due = tuple[int, int, int]
"""Wall-clock milliseconds, then epoch and sequence."""


class DueReady:
    """`_due` and `_by_id` hold the same messages."""

    __slots__ = ("_by_id", "_due")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._due = SortedList()
        self._by_id = SortedDict()
        self.extend(entries)

    def __len__(self) -> int:
        return len(self._due)

    def __bool__(self) -> bool:
        return bool(self._due)

    def __iter__(self) -> Iterator[Entry]:
        return iter([self._by_id[due[1:]] for due in self._due])

    def __getitem__(self, at: int) -> Entry:
        due: _Due = self._due[at]
        found: Entry = self._by_id[due[1:]]
        return found

    @property
    def levels(self) -> list[deque[Entry]]:
        """All messages, as `PriorityReady` has them."""
        return [deque(self._by_id.values())] if self._due else []

    def append(self, entry: Entry) -> None:
        self.extend((entry,))

    def extend(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._by_id[id_of(entry)] = entry
            self._due.add(_due_of(entry))

    def popleft(self) -> Entry:
        due: _Due = self._due.pop(0)
        found: Entry = self._by_id.pop(due[1:])
        return found

    def put_back(self, entries: Iterable[Entry]) -> None:
        self.extend(entries)

    def clear(self) -> None:
        self._due.clear()
        self._by_id.clear()

    def by_id(self) -> list[Entry]:
        return list(self._by_id.values())

    def after(self, after: MessageId, most: int) -> list[Entry]:
        found = islice(self._by_id.irange(after, inclusive=(False, True)), most)
        return [self._by_id[key] for key in found]

    def holds_epoch(self, epoch: int) -> bool:
        first = next(self._by_id.irange((epoch, 0)), None)
        return first is not None and first[0] == epoch


def _due_of(entry: Entry) -> _Due:
    seq, envelope, _ = entry
    return envelope.wall_ms + (envelope.expiration or 0), envelope.epoch, seq
