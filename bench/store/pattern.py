"""What the broker asks of a disk, as data: runs of messages, ranges of dequeues, groups that commit together.

Seeded: two engines that are given the same seed are given the same bytes in the same order. Bodies are
random bytes, so no engine gains by compression, and are cut from a pool made beforehand, so that making a
group costs next to nothing beside storing it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

EPOCH = 7
QUEUES = 4
VARIANTS = 64
KEPT_EVERY = 50
"""In the steady flow one run in so many goes to a queue that nobody consumes."""


class Run(NamedTuple):
    """`messages` messages of one queue and epoch, from `first` on, that arrived in one tick."""

    queue: bytes
    """The queue's UUID, 16 bytes."""
    epoch: int
    first: int
    messages: int
    raw: bytes
    """As the broker has encoded them; no engine looks inside."""


class Range(NamedTuple):
    """Messages `first` to `last` have left their queue."""

    queue: bytes
    epoch: int
    first: int
    last: int


class Group(NamedTuple):
    """What one commit makes durable."""

    runs: list[Run]
    gone: list[Range]


class Stored(NamedTuple):
    """A run as it is read back, and which of its messages are gone (sorted, not touching)."""

    run: Run
    gone: tuple[tuple[int, int], ...]


class Load:
    """One load: bodies of `size` bytes in runs of 1 to `most` messages, `runs` of them in a group."""

    def __init__(self, seed: int, size: int, most: int, runs: int) -> None:
        self._random = random.Random(seed)
        self._runs = runs
        self._pool: list[tuple[int, bytes]] = []
        for _ in range(VARIANTS):
            count = self._random.randint(1, most)
            self._pool.append((count, self._random.randbytes(count * size)))
        self.queues = [self._random.randbytes(16) for _ in range(QUEUES)]
        self.kept = self._random.randbytes(16)
        self._last: dict[bytes, int] = defaultdict(int)
        self._acked: dict[bytes, int] = defaultdict(int)

    def run(self, queue: bytes) -> Run:
        """The next run of the queue."""
        count, raw = self._random.choice(self._pool)
        first = self._last[queue] + 1
        self._last[queue] += count
        return Run(queue, EPOCH, first, count, raw)

    def fill(self, messages: int) -> Iterator[Group]:
        """Enqueue only, until there are so many messages, or a few more."""
        while messages > 0:
            runs = [self.run(self._random.choice(self.queues)) for _ in range(self._runs)]
            messages -= sum(run.messages for run in runs)
            yield Group(runs, [])

    def steady(self, groups: int) -> Iterator[Group]:
        """As much comes as goes: a group dequeues nearly all that the groups before it brought."""
        made = 0
        for _ in range(groups):
            gone = []
            for queue in self.queues:
                upto = self._last[queue] - self._random.randrange(20)
                if upto > self._acked[queue]:
                    gone.append(Range(queue, EPOCH, self._acked[queue] + 1, upto))
                    self._acked[queue] = upto
            runs = []
            for _ in range(self._runs):
                made += 1
                runs.append(
                    self.run(self.kept if made % KEPT_EVERY == 0 else self._random.choice(self.queues))
                )
            yield Group(runs, gone)


class Step(NamedTuple):
    """Of a drain: runs to read and deliver, then ranges to commit as dequeued."""

    reads: list[tuple[bytes, int, int]]
    """Queue, epoch and first of each run."""
    gone: list[Range]


def drain(runs: Iterable[Run], runs_per_step: int) -> Iterator[Step]:
    """Everything, in order. Consumers are a few messages behind with their acks, so that ranges and runs
    do not end at the same places."""
    acked: dict[tuple[bytes, int], int] = {}
    ends: dict[tuple[bytes, int], int] = {}
    reads: list[tuple[bytes, int, int]] = []
    for run in runs:
        queue = run.queue, run.epoch
        acked.setdefault(queue, run.first - 1)
        ends[queue] = run.first + run.messages - 1
        reads.append((run.queue, run.epoch, run.first))
        if len(reads) == runs_per_step:
            yield Step(reads, list(_acks(acked, ends, 20)))
            reads = []
    yield Step(reads, list(_acks(acked, ends, 0)))


def _acks(
    acked: dict[tuple[bytes, int], int], ends: dict[tuple[bytes, int], int], behind: int
) -> Iterator[Range]:
    for queue, end in ends.items():
        if end - behind > acked[queue]:
            yield Range(*queue, acked[queue] + 1, end - behind)
            acked[queue] = end - behind
