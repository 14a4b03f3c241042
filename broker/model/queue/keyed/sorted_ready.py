"""Ready messages sorted by id, of which any may leave next; and values of messages as keys. Pure.

Base of `LastValueReady`, `GroupedReady` and `DueReady`, which queues use in place of a deque.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice

from sortedcontainers import SortedDict

from broker.model.history.records import Entry, MessageId

Key = tuple[str, object]
_LONGEST = 64
"""Characters or octets of a key that is kept as it is; of a longer one its hash."""


def key_of(value: object) -> Key | None:
    """A value as a key. Values of different types differ. None for tables, arrays and what is not there."""
    if isinstance(value, str) and len(value) > _LONGEST:
        return "text", blake2b(value.encode("utf-8", "surrogateescape")).digest()
    if isinstance(value, bytes) and len(value) > _LONGEST:
        return "octets", blake2b(value).digest()
    if isinstance(value, bool | int | float | str | bytes):
        return type(value).__name__, value
    return None


class SortedReady:
    """The order of delivery is that of the ids, unless a kind has its own."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: SortedDict[MessageId, Entry] = SortedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._by_id.values())

    def __getitem__(self, at: int) -> Entry:
        """By position; -1 is the last."""
        entry: Entry = self._by_id.peekitem(at)[1]
        return entry

    @property
    def levels(self) -> list[deque[Entry]]:
        """All messages, sorted by id, as `PriorityReady` has them."""
        return [deque(self._by_id.values())]

    def append(self, entry: Entry) -> None:
        self.extend((entry,))

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add messages, in any order."""
        for entry in entries:
            self._put(entry)

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Add returned messages, in any order."""
        self.extend(entries)

    def _put(self, entry: Entry) -> None:
        raise NotImplementedError

    def popleft(self) -> Entry:
        """Remove and return the oldest message. Raises IndexError if there is none."""
        raise NotImplementedError

    def clear(self) -> None:
        raise NotImplementedError

    def by_id(self) -> list[Entry]:
        """All messages, oldest first."""
        return list(self._by_id.values())

    def after(self, after: MessageId, most: int) -> list[Entry]:
        """The oldest messages with ids above `after`. Returns fewer than `most` only if there are no more."""
        ids = islice(self._by_id.irange(after, inclusive=(False, True)), most)
        return [self._by_id[at] for at in ids]

    def holds_epoch(self, epoch: int) -> bool:
        """Whether a message of this epoch is ready."""
        return next(self._by_id.irange((epoch, 0), (epoch + 1, 0), (True, False)), None) is not None
