"""How much memory messages and definitions take, and whether that is too much. Owner: `Broker`.

Counting every message's bytes in and out would cost more than it is worth on the hot path. Instead each
queue is sampled: some of its messages are looked at, and their mean size stands for all. A sample is taken
once a second, or sooner when enough input has arrived to matter. What connections hold of messages that are
not whole, or not committed, is off the hot path: they count it as it comes and goes.

While an alarm is on, nothing is read from publishers, so nothing unfinished is ever finished. Where the alarm
would end without it, and has not within PATIENCE, connections that hold most of it are closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.model.definition_octets import CONSUMER

if TYPE_CHECKING:
    from broker.connection import Connection
    from broker.model.queue import Queue
    from broker.model.vhosts import VirtualHosts

INTERVAL = 1.0
"""Seconds between samples."""
ENTRY_OVERHEAD = 150
"""Octets that a queued message takes besides its frames: bytes header, tuple, integer, deque slot, index."""
PARTS = ("messages", "unsent", "unfinished", "definitions", "connections")
"""What is counted: queued messages; output that is not written; what connections hold until more comes;
queues, exchanges, bindings and consumers; connections, with channels and links."""
_LOOK_AT = 32
_GUESS = 1024
"""Octets of a message of a queue that never had one ready at a sample."""
_CLEAR = 0.9
"""The alarm ends below this part of the limit, so that it does not flap."""
PATIENCE = 10.0
"""Seconds that unfinished messages may keep the alarm on: consumers may make room for them meanwhile."""


class MemoryAlarm:
    """`received`: octets of input since the last sample, counted by the broker. `unfinished`: octets of
    messages that are not whole or not committed, counted by the connections. `parts`: what `used` is made
    of."""

    __slots__ = (
        "_kept_on", "_means", "_next", "limit", "parts", "raised", "received", "unfinished", "used",
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
        self._means: dict[bytes, int] = {}
        """Mean size by queue at the last sample: stands in while none of a queue is at its front."""

    def due(self, now: float) -> bool:
        """Is it time for a sample?"""
        if self.limit is None:
            return False
        if self._next is None:
            self._next = now + INTERVAL
        return now >= self._next or self.received * 16 >= self.limit

    def next_deadline(self) -> float | None:
        """When a sample is due, if there is reason for one."""
        return self._next if self.raised or self.received else None

    def sample(self, now: float, vhosts: VirtualHosts, connections: Iterable[Connection]) -> bool:
        """Measure; True when the alarm was raised or cleared."""
        self._next = now + INTERVAL
        self.received = 0
        unsent = unserved = clients = 0
        for connection in connections:
            clients += connection.octets
            unsent += connection.unsent
            unserved += connection.unserved
        unfinished = self.unfinished + unserved
        messages, consumers = self._queued(vhosts.queues_by_uuid.values())
        definitions = vhosts.octets + CONSUMER * consumers
        self.parts = dict(zip(PARTS, (messages, unsent, unfinished, definitions, clients), strict=True))
        self.used = sum(self.parts.values())
        if self.limit is None:
            return False
        before = self.raised
        self.raised = self.used > self.limit * (_CLEAR if before else 1)
        if not self.raised or self.used - unfinished > self.limit * _CLEAR:
            self._kept_on = None
        elif self._kept_on is None:
            self._kept_on = now
        return self.raised is not before

    def _queued(self, queues: Iterable[Queue]) -> tuple[int, int]:
        """Octets of messages, and how many consumers there are."""
        means: dict[bytes, int] = {}
        octets = consumers = 0
        for queue in queues:
            consumers += len(queue.consumers)
            if queue.unacked_count:
                octets += queue.unacked_count * (mean_unacked(queue) + ENTRY_OVERHEAD)
            ready = len(queue.ready) + queue.backlog.count - queue.backlog.aside
            if ready:
                mean = mean_size(queue) or self._means.get(queue.uuid, _GUESS)
                means[queue.uuid] = mean
                octets += ready * (mean + ENTRY_OVERHEAD)
        self._means = means
        return octets, consumers

    def overdue(self, now: float, connections: Iterable[Connection]) -> list[Connection]:
        """Those to close, so that the alarm ends: whoever holds most. Once in PATIENCE, for all of it."""
        if self.limit is None or self._kept_on is None or now < self._kept_on + PATIENCE:
            return []
        self._kept_on = now
        excess, closed = self.used - int(self.limit * _CLEAR), []
        for connection in sorted(connections, key=lambda each: -each.unfinished):
            if excess <= 0 or not connection.unfinished:
                break
            excess -= connection.unfinished
            closed.append(connection)
        return closed


def mean_unacked(queue: Queue) -> int:
    """About how many octets a message has that consumers of this queue hold; there must be one."""
    sizes = [len(entry[2]) for entry in queue.some_unacked(_LOOK_AT // 2)]
    return sum(sizes) // len(sizes)


def mean_size(queue: Queue) -> int:
    """About how many octets a message of this queue has; 0 when none is ready (ask what it was before)."""
    ready = queue.ready
    if not ready:
        return 0
    step = max(1, len(ready) // _LOOK_AT)
    sizes = [len(ready[at][2]) for at in range(0, len(ready), step)]
    return sum(sizes) // len(sizes)
