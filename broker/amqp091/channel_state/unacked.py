"""Outstanding deliveries of one channel, and the parsing of acks. Owner: `Channel`; its deliveries fill it.

A batch of deliveries is one `Run` of consecutive tags, so a message needs no object of its own. An ack, and a
series of acks of consecutive single tags, is one range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from broker.amqp091.codec.frames import ACK, FRAME_END, METHOD
from broker.model.history.records import Entry
from broker.model.values import Need, Scope, need_of

if TYPE_CHECKING:
    from broker.amqp091.channel_state.delivery import ServedConsumer
    from broker.model.queue.queue import Queue

ACK_SIZE = 21
"""Octets of a basic.ack frame. basic.nack and basic.reject have the same length and tag offset."""

_FEW = 64
"""Maximum messages of a run that grows with later deliveries. Taking one message out of a longer run would
cost more."""

_ACKS_MAX = 16
"""Maximum frames that `are_acks` looks at."""

_first = attrgetter("first")


class Run:
    """Messages of one delivery batch: consecutive tags from `first`, of one queue and one consumer (None for
    basic.get)."""

    __slots__ = ("consumer", "entries", "first", "queue")

    def __init__(
        self, first: int, entries: list[Entry], queue: Queue, consumer: ServedConsumer | None
    ) -> None:
        self.first = first
        self.entries = entries
        self.queue = queue
        self.consumer = consumer


class UnknownTag(Exception):
    """A tag that is not outstanding. `settled`: earlier runs of the same range, which still count."""

    def __init__(self, tag: int, settled: list[Run]) -> None:
        super().__init__(tag)
        self.tag = tag
        self.settled = settled


class Unacked:
    """Outstanding tags as runs, ascending. Acks in order cost one slice per run, whatever their number.
    `queues`: the queues of these messages, and perhaps of earlier ones."""

    __slots__ = ("_runs", "queues")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self.queues: dict[Queue, None] = {}

    def __len__(self) -> int:
        return sum(len(run.entries) for run in self._runs)

    @property
    def oldest(self) -> int | None:
        """The oldest outstanding tag."""
        return self._runs[0].first if self._runs else None

    def before(self, tag: int) -> Iterator[tuple[Queue, int]]:
        """The queue of each run that begins before that tag, and its first tag."""
        for run in self._runs:
            if run.first >= tag:
                break
            if not run.queue.deleted:
                yield run.queue, run.first

    def add(self, run: Run) -> None:
        """Add a run with tags above all others. Small runs are joined with the previous small run."""
        runs = self._runs
        if not runs:
            self.queues.clear()
        elif len(run.entries) < _FEW:
            last = runs[-1]
            if (
                last.queue is run.queue
                and last.consumer is run.consumer
                and len(last.entries) < _FEW
                and last.first + len(last.entries) == run.first
            ):
                last.entries += run.entries
                return
        self.queues[run.queue] = None
        runs.append(run)

    def put_back(self, runs: list[Run]) -> None:
        """Make taken tags outstanding again, in their places. Neighbours become one run again."""
        joined: list[Run] = []
        for run in sorted(self._runs + runs, key=_first):
            last = joined[-1] if joined else None
            if (
                last is not None
                and last.first + len(last.entries) == run.first
                and last.queue is run.queue
                and last.consumer is run.consumer
            ):
                last.entries += run.entries
            else:
                joined.append(run)
        self._runs = joined
        self.queues.update({run.queue: None for run in runs})

    def take_all(self) -> list[Run]:
        runs, self._runs = self._runs, []
        return runs

    def take_through(self, tag: int) -> list[Run]:
        """Take all up to `tag`. Raises UnknownTag, with nothing taken, if `tag` itself is not outstanding."""
        runs = self._runs
        at = bisect_right(runs, tag, key=_first) - 1
        if at < 0 or tag >= runs[at].first + len(runs[at].entries):
            raise UnknownTag(tag, [])
        taken = runs[:at]
        del runs[:at]
        taken.append(self._cut(0, runs[0].first, tag))
        return taken

    def take(self, low: int, high: int) -> list[Run]:
        """Take tags `low` to `high`, each outstanding. Raises UnknownTag at the first that is not, with those
        before it."""
        runs = self._runs
        taken: list[Run] = []
        at = bisect_right(runs, low, key=_first) - 1
        while low <= high:
            if not 0 <= at < len(runs):
                raise UnknownTag(low, taken)
            run = runs[at]
            last = run.first + len(run.entries) - 1
            if not run.first <= low <= last:
                raise UnknownTag(low, taken)
            end = last if last < high else high
            whole = low == run.first and end == last
            piece = self._cut(at, low, end)
            taken.append(piece)
            if not whole and low != run.first:
                at += 1
            low = end + 1
        return taken

    def _cut(self, at: int, low: int, high: int) -> Run:
        """Take tags `low` to `high`, all inside run `at`."""
        runs = self._runs
        run = runs[at]
        start, stop, size = low - run.first, high - run.first + 1, len(run.entries)
        if start == 0 and stop == size:
            return runs.pop(at)
        entries = run.entries
        piece = Run(low, entries[start:stop], run.queue, run.consumer)
        if start == 0:
            del entries[:stop]
            run.first = high + 1
        else:
            if stop < size:
                runs.insert(at + 1, Run(high + 1, entries[stop:], run.queue, run.consumer))
            del entries[start:]
        return piece


def need_of_dequeue(queue: Queue) -> Need:
    """What a reply needs before it may report that messages left `queue`."""
    if queue.deleted:
        return Need.NONE
    return need_of(queue.content_scope if queue.stored else queue.content_scope & ~Scope.STORE)


class AckRange(NamedTuple):
    """Tags `low` to `high`, each acknowledged on its own. If `low` is -1: all up to `high` (0: all)."""

    low: int
    high: int


def parse_acks(buf: bytes, pos: int) -> tuple[list[AckRange], int]:
    """Parse the basic.ack frame at `pos`, which is complete, and those of its channel that follow directly.
    Returns the ranges and the position behind them."""
    start = buf[pos : pos + 11]
    size = len(buf)
    ranges: list[AckRange] = []
    low = high = -1
    while True:
        tag = int.from_bytes(buf[pos + 11 : pos + 19], "big")
        multiple = buf[pos + 19] & 1
        if low >= 0 and (multiple or tag != high + 1):
            ranges.append(AckRange(low, high))
            low = -1
        if multiple:
            ranges.append(AckRange(-1, tag))
        else:
            low, high = (tag, tag) if low < 0 else (low, tag)
        pos += ACK_SIZE
        if pos + ACK_SIZE > size or not buf.startswith(start, pos) or buf[pos + 20] != FRAME_END:
            break
    if low >= 0:
        ranges.append(AckRange(low, high))
    return ranges, pos


def are_acks(buf: bytes) -> bool:
    """Whether the input is a few whole basic.ack frames, and nothing else."""
    size = len(buf)
    if size % ACK_SIZE or size > _ACKS_MAX * ACK_SIZE:
        return False
    for pos in range(0, size, ACK_SIZE):
        if buf[pos] != METHOD or buf[pos + 7 : pos + 11] != ACK or buf[pos + 20] != FRAME_END:
            return False
    return True


def parse_alike(buf: bytes, pos: int) -> tuple[list[AckRange], int]:
    """Parse the frame of ACK_SIZE octets at `pos`, which settles one tag, and the frames that follow directly
    and differ only in the tag. Returns the ranges and the position behind them."""
    start, bits, size = buf[pos : pos + 11], buf[pos + 19], len(buf)
    ranges: list[AckRange] = []
    low = high = -1
    while True:
        tag = int.from_bytes(buf[pos + 11 : pos + 19], "big")
        if low >= 0 and tag != high + 1:
            ranges.append(AckRange(low, high))
            low = -1
        low, high = (tag if low < 0 else low), tag
        pos += ACK_SIZE
        if pos + ACK_SIZE > size or not buf.startswith(start, pos) or buf[pos + 20] != FRAME_END:
            break
        if buf[pos + 19] != bits:
            break
    ranges.append(AckRange(low, high))
    return ranges, pos
