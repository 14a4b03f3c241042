"""Makes large numbers of returned messages ready again in pieces.

Owner: `Removals`, which does one piece in each tick. Until then a message stays unacknowledged, and so part
of its queue's contents. A queue with returning messages delivers nothing, because newer messages would
overtake them. The newest come back first, since each one's place is in front of those before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from broker.model.history.records import Entry, id_of

PIECE = 2048
"""Steps in one tick. A message takes two: one to sort it by queue and one to make it ready. The engine may
set another number."""
_SHORT = PIECE // 8
"""A run this short is joined with the next one."""
_QUEUE = 8
"""Approximate steps for a queue besides its messages."""


class Returning:
    """Messages on their way back to one queue. `sources`: the unsorted lists that may hold messages for this
    queue. `afters`: callbacks for the time when all are ready or the queue is deleted."""

    __slots__ = ("_runs", "afters", "sources")

    def __init__(self) -> None:
        self.sources = 0
        self.afters: list[Callable[[], None]] = []
        self._runs: list[tuple[list[Entry], bool]] = []
        """Each run is sorted by id, with its `failed` flag of `Queue.requeue`."""

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, entries: list[Entry], *, failed: bool) -> None:
        """Add messages. Takes over the list."""
        if self._runs:
            last, others = self._runs[-1]
            if others is failed and len(last) < _SHORT:
                self._runs.pop()
                entries += last
        entries.sort(key=id_of)
        self._runs.append((entries, failed))

    def take(self, most: int) -> list[tuple[list[Entry], bool]]:
        """Remove the newest messages, at most `most`, as (entries, failed), each in any order."""
        taken: tuple[list[Entry], list[Entry]] = [], []
        left, runs = most, self._runs
        while runs and left > 0:
            each = left // len(runs)
            if each:  # beyond the bound no run has more, and one has as many, or all of them are taken
                bound = max([id_of(run[-each - 1]) for run, _ in runs if len(run) > each], default=(0, 0))
            else:
                bound = sorted([id_of(run[-1]) for run, _ in runs])[-2]
            alone = [(run, failed) for run, failed in runs if id_of(run[-1]) > bound]
            for run, failed in alone:
                if len(alone) == 1:
                    low = max([id_of(other[-1]) for other, _ in runs if other is not run], default=(0, 0))
                    at = max(bisect_right(run, low, key=id_of), len(run) - left)
                else:
                    at = bisect_right(run, bound, key=id_of)
                taken[failed].extend(run[at:])
                left -= len(run) - at
                del run[at:]
            self._runs = runs = [kept for kept in runs if kept[0]]
        return [(part, failed) for part, failed in zip(taken, (False, True), strict=True) if part]


class Home(Protocol):
    """A queue to which messages come back. Compared by identity."""

    returning: Returning | None

    @property
    def serves(self) -> bool: ...
    def requeue(self, entries: list[Entry], *, failed: bool) -> None: ...
    def resume_delivery(self) -> None: ...
    def __hash__(self) -> int: ...


class Delivered(Protocol):
    """Messages of one queue, in any order."""

    @property
    def queue(self) -> Home: ...
    @property
    def entries(self) -> list[Entry]: ...


class DeliveredBatch:
    """The simplest implementation of `Delivered`."""

    __slots__ = ("entries", "queue")

    def __init__(self, queue: Home, entries: list[Entry]) -> None:
        self.queue = queue
        self.entries = entries


class _Source(NamedTuple):
    """Messages that came back at once, and the `Returning` of each queue at that time."""

    runs: list[Delivered]
    queues: dict[Home, Returning]
    failed: bool


class Requeueing:
    """Work on returned messages; true while some is left.

    - `piece`: steps in one tick.
    - `left`: steps left in this tick.
    - `stirred`: steps were used or messages came in this tick.
    """

    __slots__ = ("_afters", "_queues", "_sources", "left", "piece", "stirred")

    def __init__(self) -> None:
        self.left = self.piece = PIECE
        self.stirred = False
        self._sources: deque[_Source] = deque()
        self._queues: dict[Home, None] = {}
        self._afters: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return bool(self._sources or self._queues or self._afters)

    def give_back(self, runs: list[Delivered], queues: Iterable[Home], *, failed: bool = True) -> None:
        """Make unacknowledged messages ready again, in this tick's `work` and in later ticks. Takes over
        `runs`. `queues`: all queues that have messages in `runs`. `failed`: see `Queue.requeue`."""
        held: dict[Home, Returning] = {}
        for queue in queues:
            if queue.serves:
                if queue.returning is None:
                    queue.returning = Returning()
                queue.returning.sources += 1
                held[queue] = queue.returning
        self._sources.append(_Source(runs, held, failed))
        self.stirred = True

    def step(self) -> None:
        """Do one tick's work."""
        self.left = self.piece
        afters, self._afters = self._afters, []
        for after in afters:
            after()
        self.work()
        self.stirred = self.left < self.piece or bool(self)

    def work(self) -> None:
        """Work while this tick has steps left."""
        while self.left > 0:
            if self._sources:
                self._sort()
            elif self._queues:
                self._make_ready()
            else:
                break

    def _sort(self) -> None:
        """Sort some messages of the oldest source by queue."""
        runs, queues, failed = self._sources[0]
        found: dict[Home, list[Entry]] = {}
        while runs and self.left > 0:
            run = runs[-1]
            queue, entries = run.queue, run.entries
            if len(entries) > self.left:
                entries, rest = entries[-self.left :], entries
                del rest[-self.left :]
            else:
                runs.pop()
            self.left -= 1 + len(entries)
            if queue in queues and queues[queue] is queue.returning:
                found.setdefault(queue, []).extend(entries)
        for queue, mine in found.items():
            queues[queue].add(mine, failed=failed)
        if not runs:
            self._sources.popleft()
            for queue, returning in queues.items():
                returning.sources -= 1
                if queue.returning is returning and not returning.sources:
                    self._queues[queue] = None

    def _make_ready(self) -> None:
        """Make some messages of one queue ready."""
        queue = next(iter(self._queues))
        returning = queue.returning
        assert returning is not None
        self.left -= _QUEUE
        for entries, failed in returning.take(max(1, self.left)):
            self.left -= len(entries)
            queue.requeue(entries, failed=failed)
        if not returning:
            del self._queues[queue]
            queue.resume_delivery()
            self._afters += returning.afters
            if self._afters:
                self._call()

    def _call(self) -> None:
        afters, self._afters = self._afters, []
        for after in afters:
            after()

    def forget(self, queue: Home) -> None:
        """Drop a deleted queue."""
        returning, queue.returning = queue.returning, None
        self._queues.pop(queue, None)
        if returning is not None:
            self._afters += returning.afters
            self.stirred = True

    def clear(self) -> None:
        """Drop everything, as this node no longer serves."""
        self._sources.clear()
        self._queues.clear()
        self._afters.clear()
