"""How much memory messages and definitions take, and whether that is too much. Owner: `Broker`.

Counting every message's bytes in and out would cost more than it is worth on the hot path. Instead each
queue is sampled: some of its messages are looked at, and their mean size stands for all. A sample is taken
once a second, or sooner when enough input has arrived to matter; of very many queues it takes some ticks.
What connections hold of messages that are not whole, or not committed, is off the hot path: they count it as
it comes and goes.

While an alarm is on, nothing is read from publishers, so nothing unfinished is ever finished. Where the alarm
would end without it, and has not within PATIENCE, connections that hold most of it are closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeVar

from broker.model.definition_octets import CONSUMER

if TYPE_CHECKING:
    from broker.model.history.records import Entry
    from broker.model.queue.queue import Queue
    from broker.model.vhost.vhosts import VirtualHosts

INTERVAL = 1.0
"""Seconds between samples."""
ENTRY_OVERHEAD = 150
"""Octets that a queued message takes besides its frames: bytes header, tuple, integer, deque slot, index."""
ENVELOPE = 176
"""Octets of what messages have in common that were published together; a message on its own has its own."""
UNACKED = 56
"""Octets that a message takes more while a consumer holds it: a place in a dictionary and a list."""
PARTS = ("messages", "unsent", "unfinished", "definitions", "connections")
"""What is counted: queued messages; output that is not written; what connections hold until more comes;
queues, exchanges, bindings and consumers; connections, with channels and links."""
STEPS = 2000
"""Of a sample in one tick, some 0.3 us each: a look at a queue, or at one of its messages."""
_CONNECTION = 8
"""Steps that a look at a connection takes."""
_LOOK_AT = 32
"""Messages of a queue that stand for all, where there are not MANY queues."""
_MANY = 1000
_GUESS = 1024
"""Octets of a message of a queue that never had one ready at a sample."""
_CLEAR = 0.9
"""The alarm ends below this part of the limit, so that it does not flap."""
PATIENCE = 10.0
"""Seconds that unfinished messages may keep the alarm on: consumers may make room for them meanwhile."""


class Measured(Protocol):
    """A connection, by what it takes. In octets."""

    @property
    def gone(self) -> bool: ...
    @property
    def octets(self) -> int: ...
    @property
    def unsent(self) -> int: ...
    @property
    def unserved(self) -> int: ...
    @property
    def unfinished(self) -> int:
        """What it holds until its client sends more."""


Some = TypeVar("Some", bound=Measured)


class MemoryAlarm:
    """`received`: octets of input since the last sample, counted by the broker. `unfinished`: octets of
    messages that are not whole or not committed, counted by the connections. `parts`: what `used` is made
    of."""

    __slots__ = (
        "_kept_on", "_means", "_next", "_walk", "limit", "parts", "raised", "received", "unfinished", "used",
    )  # fmt: skip

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.raised = False
        self.received = 0
        self.unfinished = 0
        self.used = 0
        self.parts: dict[str, int] = dict.fromkeys(PARTS, 0)
        self._kept_on: float | None = None
        """Since when the alarm is on for nothing but what is unfinished."""
        self._next: float | None = None
        self._walk: _Walk | None = None
        self._means: dict[bytes, int] = {}
        """Mean size by queue at the last sample: stands in while none of a queue is at its front."""

    def due(self, now: float) -> bool:
        """Is it time for a sample, or for more of one?"""
        if self.limit is None:
            return False
        if self._next is None:
            self._next = now + INTERVAL
        return self._walk is not None or now >= self._next or self.received * 16 >= self.limit

    def next_deadline(self) -> float | None:
        """When a sample is due, if there is reason for one; 0, that is at once, in the middle of one."""
        if self._walk is not None:
            return 0.0
        return self._next if self.raised or self.received else None

    def sample(self, now: float, vhosts: VirtualHosts, connections: Iterable[Measured]) -> bool:
        """Measure, or go on with that; True when the alarm was raised or cleared."""
        if self._walk is None:
            self._next = now + INTERVAL
            self.received = 0
            self._walk = _Walk(list(vhosts.queues_by_uuid.values()), list(connections), self._means)
        walk = self._walk
        if not walk.step():
            return False
        self._walk, self._means = None, walk.means
        unfinished = self.unfinished + walk.unserved
        definitions = vhosts.octets + CONSUMER * walk.consumers
        parts = (walk.messages, walk.unsent, unfinished, definitions, walk.clients)
        self.parts = dict(zip(PARTS, parts, strict=True))
        self.used = sum(parts)
        if self.limit is None:
            return False
        before = self.raised
        self.raised = self.used > self.limit * (_CLEAR if before else 1)
        if not self.raised or self.used - unfinished > self.limit * _CLEAR:
            self._kept_on = None
        elif self._kept_on is None:
            self._kept_on = now
        return self.raised is not before

    def overdue(self, now: float, connections: Iterable[Some]) -> list[Some]:
        """Those to close, so that the alarm ends: whoever holds most. Once in PATIENCE, for all of it."""
        if self.limit is None or self._kept_on is None or now < self._kept_on + PATIENCE:
            return []
        self._kept_on = now
        excess = self.used - int(self.limit * _CLEAR)
        closed: list[Some] = []
        for connection in sorted(connections, key=lambda each: -each.unfinished):
            if excess <= 0 or not connection.unfinished:
                break
            excess -= connection.unfinished
            closed.append(connection)
        return closed


class _Walk:
    """One sample: all queues and connections of the moment in which it began, some in each tick. What has
    come in since then makes the next sample due, if it is much."""

    __slots__ = (
        "_before", "_connections", "_look_at", "_queues", "clients", "consumers", "means", "messages",
        "unsent", "unserved",
    )  # fmt: skip

    def __init__(self, queues: list[Queue], connections: list[Measured], before: dict[bytes, int]) -> None:
        self._look_at = _LOOK_AT if len(queues) < _MANY else _LOOK_AT // 8
        self._queues = queues
        self._connections = connections
        self._before = before
        self.means: dict[bytes, int] = {}
        self.messages = self.consumers = self.unsent = self.unserved = self.clients = 0

    def step(self) -> bool:
        """Look at some of them; True when all are done."""
        left = STEPS
        while self._connections and left > 0:
            connection = self._connections.pop()
            left -= _CONNECTION
            if not connection.gone:
                self.clients += connection.octets
                self.unsent += connection.unsent
                self.unserved += connection.unserved
        while self._queues and left > 0:
            queue = self._queues.pop()
            left -= 1
            self.consumers += len(queue.consumers)
            if queue.unacked_count:
                left -= self._look_at
                mean = mean_unacked(queue, self._look_at // 2)
                self.messages += queue.unacked_count * (mean + ENTRY_OVERHEAD)
            ready = len(queue.ready) + queue.backlog.count - queue.backlog.aside
            if ready:
                left -= self._look_at
                mean = mean_size(queue, self._look_at) or self._before.get(queue.uuid, _GUESS)
                self.means[queue.uuid] = mean
                self.messages += ready * (mean + ENTRY_OVERHEAD)
        return not self._queues and not self._connections


def mean_unacked(queue: Queue, most: int) -> int:
    """About how many octets a message takes that consumers of this queue hold; there must be one."""
    return UNACKED + _mean(list(pairwise([None, *queue.some_unacked(most)])))


def mean_size(queue: Queue, most: int) -> int:
    """About how many octets a message of this queue takes, without ENTRY_OVERHEAD; 0 when none is ready (ask
    what it was before)."""
    ready = queue.ready
    if not ready:
        return 0
    if len(ready) == 1:
        return _mean([(None, ready[0])])
    step = max(1, 2 * len(ready) // most)
    return _mean([(ready[at - 1], ready[at]) for at in range(1, len(ready), step)])


def _mean(pairs: list[tuple[Entry | None, Entry | None]]) -> int:
    """Of the second of each pair: its frames, and its envelope unless it shares that with the first."""
    octets = sum([
        len(entry[2]) + (ENVELOPE if before is None or before[1] is not entry[1] else 0)
        for before, entry in pairs if entry is not None
    ])  # fmt: skip
    return octets // len(pairs)
