"""Ready messages of a queue with `x-last-value-key`: of those with one key only the newest is kept. Pure.

Owner: `Queue`, which uses this in place of a deque. The messages that are replaced are in `replaced` until
the queue has them leave. A message without the key is kept like any other. Unlike in Qpid, the newer message
does not take the older one's place: the order is that of the ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import islice

from sortedcontainers import SortedDict

from broker.model.history.records import Entry, MessageId, id_of

Key = tuple[str, object]
_LONGEST = 64
"""Characters or octets of a key that is kept as it is; of a longer one its hash."""


def key_of(value: object) -> Key | None:
    """A value as a key. Values of different types differ. None for tables, arrays and what is not there."""
    if isinstance(value, str) and len(value) > _LONGEST:
        value = value.encode("utf-8", "surrogateescape")
        return "text", blake2b(value).digest()
    if isinstance(value, bytes) and len(value) > _LONGEST:
        return "hash", blake2b(value).digest()
    if isinstance(value, bool | int | float | str | bytes):
        return type(value).__name__, value
    return None


class LastValueReady:
    """`read`: the value of a message's key."""

    __slots__ = ("_by_id", "_latest", "_read", "replaced")

    def __init__(self, read: Callable[[bytes], object]) -> None:
        self._read = read
        self._by_id: SortedDict[MessageId, tuple[Entry, Key | None]] = SortedDict()
        self._latest: dict[Key, MessageId] = {}
        self.replaced: list[Entry] = []

    def __len__(self) -> int:
        return len(self._by_id)

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __iter__(self) -> Iterator[Entry]:
        for entry, _ in self._by_id.values():
            yield entry

    def __getitem__(self, at: int) -> Entry:
        """By position in the order of delivery; -1 is the last."""
        found: tuple[Entry, Key | None] = self._by_id.peekitem(at)[1]
        return found[0]

    @property
    def levels(self) -> list[deque[Entry]]:
        """All messages, as `PriorityReady` has them."""
        return [deque(self)]

    def append(self, entry: Entry) -> None:
        self._put(entry)

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add messages, in any order."""
        for entry in entries:
            self._put(entry)

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Add returned messages, in any order. A newer one with the same key stays."""
        self.extend(entries)

    def _put(self, entry: Entry) -> None:
        mine, key = id_of(entry), key_of(self._read(entry[2]))
        if key is not None:
            other = self._latest.get(key)
            if other is not None and other > mine:
                self.replaced.append(entry)
                return
            if other is not None:
                self.replaced.append(self._by_id.pop(other)[0])
            self._latest[key] = mine
        self._by_id[mine] = entry, key

    def popleft(self) -> Entry:
        """Remove and return the next message to deliver. Raises IndexError if there is none."""
        if not self._by_id:
            raise IndexError("no message is ready")
        _, found = self._by_id.popitem(0)
        entry: Entry = found[0]
        key: Key | None = found[1]
        if key is not None:
            del self._latest[key]
        return entry

    def clear(self) -> None:
        self._by_id.clear()
        self._latest.clear()

    def by_id(self) -> list[Entry]:
        """All messages, oldest first."""
        return list(self)

    def after(self, after: MessageId, most: int) -> list[Entry]:
        """The oldest messages with ids above `after`. Returns fewer than `most` only if there are no more."""
        ids = islice(self._by_id.irange(after, inclusive=(False, True)), most)
        return [self._by_id[at][0] for at in ids]

    def holds_epoch(self, epoch: int) -> bool:
        """Whether a message of this epoch is ready."""
        return next(self._by_id.irange((epoch, 0), (epoch + 1, 0), (True, False)), None) is not None

    def take_replaced(self) -> list[Entry]:
        """Remove and return the replaced messages."""
        replaced, self.replaced = self.replaced, []
        return replaced
