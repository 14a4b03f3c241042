"""Ready messages of a delay queue: the one that expires first comes first, then by id. Pure.

Owner: `Queue`, which uses this in place of a deque. Both orders are kept, because snapshots read by id while
messages come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedList

from broker.model.history.records import Entry, id_of
from broker.model.queue.keyed.sorted_ready import SortedReady

_Due = tuple[int, int, int]
"""Wall-clock milliseconds, then epoch and sequence."""


class DueReady(SortedReady):
    """`_due` and `_by_id` hold the same messages."""

    __slots__ = ("_due",)

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        super().__init__()
        self._due = SortedList()
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


def _due_of(entry: Entry) -> _Due:
    seq, envelope, _ = entry
    return envelope.wall_ms + (envelope.expiration or 0), envelope.epoch, seq
