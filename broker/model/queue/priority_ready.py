"""Ready messages of a queue with `x-max-priority`: the higher priority first, and by id within one. Pure.

Owner: `Queue`, which has this in place of the deque of a queue without priorities. A priority above the
queue's highest counts as the highest, as in RabbitMQ (https://www.rabbitmq.com/docs/priority).
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
    """A deque for each priority; `_filled` has bit n set while level n has messages."""

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
        """In the order of delivery."""
        return chain.from_iterable(self._in_order())

    def __getitem__(self, at: int) -> Entry:
        """By place in the order of delivery; -1 is the last. Costs a walk over the levels."""
        left = at + self._count if at < 0 else at
        for level in self._in_order() if left >= 0 else ():
            if left < len(level):
                return level[left]
            left -= len(level)
        raise IndexError(at)

    @property
    def levels(self) -> list[deque[Entry]]:
        """Those that have messages: of each, in the order of ids."""
        return self._in_order()

    def _in_order(self) -> list[deque[Entry]]:
        filled = self._filled
        return [self._levels[n] for n in range(filled.bit_length() - 1, -1, -1) if filled >> n & 1]

    def append(self, entry: Entry) -> None:
        """One that is newer than all of its priority."""
        self.extend((entry,))

    def extend(self, entries: Iterable[Entry]) -> None:
        """Some that are newer than all of their priorities, sorted by id."""
        for envelope, run in groupby(entries, _envelope_of):
            number = min(envelope.priority, self.most)
            level = self._levels[number]
            before = len(level)
            level.extend(run)
            self._count += len(level) - before
            self._filled |= 1 << number

    def popleft(self) -> Entry:
        """The next to be delivered. Raises IndexError if there is none."""
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
        """Some that were taken, in any order: each to its place by priority and id."""
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
        """All of them, the oldest first."""
        return sorted(self, key=id_of)

    def after(self, after: MessageId, most: int) -> list[Entry]:
        """The oldest beyond that id, `most` or fewer: fewer only if there are no more."""
        found: list[Entry] = []
        for level in self._in_order():
            start = bisect_right(level, after, key=id_of)
            found += islice(level, start, start + most)
        return sorted(found, key=id_of)[:most]

    def holds_epoch(self, epoch: int) -> bool:
        """Is any of them of this epoch?"""
        for level in self._in_order():
            at = bisect_left(level, (epoch, 0), key=id_of)
            if at < len(level) and level[at][1].epoch == epoch:
                return True
        return False
