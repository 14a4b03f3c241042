"""Ready messages of a queue with `x-last-value-key`: of those with one key only the newest is kept. Pure.

Owner: `Queue`, which uses this in place of a deque. The messages that are replaced are in `replaced` until
the queue has them leave. A message without the key is kept like any other. Unlike in Qpid, the newer message
does not take the older one's place: the order is that of the ids.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.model.history.records import Entry, MessageId, id_of
from broker.model.queue.keyed.sorted_ready import Key, SortedReady, key_of


class LastValueReady(SortedReady):
    """`read`: the value of a message's key."""

    __slots__ = ("_keys", "_latest", "_read", "replaced")

    def __init__(self, read: Callable[[bytes], object]) -> None:
        super().__init__()
        self._read = read
        self._keys: dict[MessageId, Key] = {}
        self._latest: dict[Key, MessageId] = {}
        self.replaced: list[Entry] = []

    def _put(self, entry: Entry) -> None:
        """A newer one with the same key stays."""
        mine, key = id_of(entry), key_of(self._read(entry[2]))
        if key is not None:
            other = self._latest.get(key)
            if other is not None and other > mine:
                self.replaced.append(entry)
                return
            if other is not None:
                del self._keys[other]
                self.replaced.append(self._by_id.pop(other))
            self._latest[key], self._keys[mine] = mine, key
        self._by_id[mine] = entry

    def popleft(self) -> Entry:
        if not self._by_id:
            raise IndexError("no message is ready")
        found = self._by_id.popitem(0)
        entry: Entry = found[1]
        key = self._keys.pop(found[0], None)
        if key is not None:
            del self._latest[key]
        return entry

    def clear(self) -> None:
        self._by_id.clear()
        self._keys.clear()
        self._latest.clear()

    def take_replaced(self) -> list[Entry]:
        """Remove and return the replaced messages."""
        replaced, self.replaced = self.replaced, []
        return replaced
