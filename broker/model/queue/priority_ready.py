"""Ready messages of a queue with `x-max-priority`: higher priority first, then by id. Pure.

Owner: `Queue`, which uses this in place of a deque. A priority above the queue's maximum counts as the
maximum, as in RabbitMQ (https://www.rabbitmq.com/docs/priority).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, islice
from operator import itemgetter

from broker.model.history.records import Entry, MessageId, id_of
from broker.model.queue.put_back import put_back

_envelope_of = itemgetter(1)


class PriorityReady:
    """One deque for each priority. Bit n of `_filled` is set while level n has messages."""

    __slots__ = ("_count", "_filled", "_levels", "most")

    def __init__(self, most: int, entries: Iterable[Entry] = ()) -> None:
        self.most = most
        """The highest priority, 1 to 255."""
        self._levels: list[deque[Entry]] = [deque() for _ in range(most + 1)]
        self._filled = 0
        self._count = 0
        self.extend(entries)

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __iter__(self) -> Iterator[Entry]:
        """Iterates in the order of delivery."""
        return chain.from_iterable(self._in_order())

    def __getitem__(self, at: int) -> Entry:
        """By position in the order of delivery; -1 is the last. Walks over the levels."""
        left = at + self._count if at < 0 else at
        for level in self._in_order() if left >= 0 else ():
            if left < len(level):
                return level[left]
            left -= len(level)
        raise IndexError(at)

    @property
    def levels(self) -> list[deque[Entry]]:
        """The levels that have messages, highest first, each sorted by id."""
        return self._in_order()

    def _in_order(self) -> list[deque[Entry]]:
        filled = self._filled
        return [self._levels[n] for n in range(filled.bit_length() - 1, -1, -1) if filled >> n & 1]

    def append(self, entry: Entry) -> None:
        """Append a message that is newer than all others of its priority."""
        self.extend((entry,))

    def extend(self, entries: Iterable[Entry]) -> None:
        """Append messages, sorted by id, that are newer than all others of their priorities."""
        for envelope, run in groupby(entries, _envelope_of):
            number = min(envelope.priority, self.most)
            level = self._levels[number]
            before = len(level)
            level.extend(run)
            self._count += len(level) - before
            self._filled |= 1 << number

    def popleft(self) -> Entry:
        """Remove and return the next message to deliver. Raises IndexError if there is none."""
        number = self._filled.bit_length() - 1
        if number < 0:
            raise IndexError("no message is ready")
        level = self._levels[number]
        entry = level.popleft()
        self._count -= 1
        if not level:
            self._filled ^= 1 << number
        return entry

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Insert returned messages, in any order, at their places by priority and id."""
        levels: dict[int, list[Entry]] = {}
        for entry in entries:
            levels.setdefault(min(entry[1].priority, self.most), []).append(entry)
        for number, back in levels.items():
            level = self._levels[number]
            self._count += len(back)
            self._filled |= 1 << number
            back.sort(key=id_of)
            put_back(level, back)

    def clear(self) -> None:
        for level in self._in_order():
            level.clear()
        self._filled = self._count = 0

    def by_id(self) -> list[Entry]:
        """All messages, oldest first."""
        return sorted(self, key=id_of)

    def after(self, after: MessageId, most: int) -> list[Entry]:
        """The oldest messages with ids above `after`. Returns fewer than `most` only if there are no more."""
        found: list[Entry] = []
        for level in self._in_order():
            start = bisect_right(level, after, key=id_of)
            found += islice(level, start, start + most)
        return sorted(found, key=id_of)[:most]

    def holds_epoch(self, epoch: int) -> bool:
        """Whether a message of this epoch is ready."""
        for level in self._in_order():
            at = bisect_left(level, (epoch, 0), key=id_of)
            if at < len(level) and level[at][1].epoch == epoch:
                return True
        return False
