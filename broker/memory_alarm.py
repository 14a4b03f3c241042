"""The alarm for memory taken by messages and definitions. Owner: `Broker`.

Counting each message's bytes in and out would cost too much on the hot path. Instead, the alarm samples each
queue: the mean size of some messages stands for all. It samples once a second, or sooner after much input;
very many queues take several ticks. Connections themselves count their incomplete and uncommitted messages,
which is off the hot path.

While an alarm is raised, the broker reads nothing from publishers, so no incomplete message is ever
completed. If only these keep the alarm raised for PATIENCE seconds, the connections that hold most of them
are closed.
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
"""Octets of a queued message besides its frames: bytes header, tuple, integer, deque slot, index."""
ENVELOPE = 176
"""Octets of an envelope. Messages published together share one."""
UNACKED = 56
"""Extra octets of a message that a consumer holds: a place in a dictionary and in a list."""
PARTS = ("messages", "unsent", "unfinished", "definitions", "connections")
"""What is counted: queued messages; unwritten output; incomplete input; queues, exchanges, bindings and
consumers; connections with their channels and links."""
STEPS = 2000
"""Steps of a sample in one tick, some 0.3 us each: a look at a queue, or at one of its messages."""
_CONNECTION = 8
"""Steps for one connection."""
_LOOK_AT = 32
"""Messages sampled in a queue, if there are fewer than `_MANY` queues."""
_MANY = 1000
_GUESS = 1024
"""Assumed octets of a message in a queue that never had a ready one at a sample."""
_CLEAR = 0.9
"""The alarm clears below this part of the limit, so that it does not flap."""
PATIENCE = 10.0
"""Seconds for which incomplete messages alone may keep the alarm raised. Consumers may free memory
meanwhile."""


class Measured(Protocol):
    """A connection and its memory, in octets."""

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
    """The memory alarm of one broker.

    - `received`: octets of input since the last sample; the broker counts them.
    - `unfinished`: octets of incomplete or uncommitted messages; connections count them.
    - `parts`: the parts of `used`.
    """

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
        """Since when incomplete messages alone keep the alarm raised."""
        self._next: float | None = None
        self._walk: _Walk | None = None
        self._means: dict[bytes, int] = {}
        """Mean message size of each queue at the last sample, for a queue with no ready message in memory."""

    def due(self, now: float) -> bool:
        """Whether to start or continue a sample."""
        if self.limit is None:
            return False
        if self._next is None:
            self._next = now + INTERVAL
        return self._walk is not None or now >= self._next or self.received * 16 >= self.limit

    def next_deadline(self) -> float | None:
        """When a sample is due, if there is a reason for one. 0 (at once) in the middle of a sample."""
        if self._walk is not None:
            return 0.0
        return self._next if self.raised or self.received else None

    def sample(self, now: float, vhosts: VirtualHosts, connections: Iterable[Measured]) -> bool:
        """Start or continue a sample; True if the alarm was raised or cleared."""
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
        """The connections to close so that the alarm clears, largest first. At most once in PATIENCE
        seconds."""
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
    """One sample over all queues and connections that exist when it begins, a part in each tick. Much input
    meanwhile makes the next sample due."""

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
            self.consumers += len(queue.consumers) + len(queue.browsers)
            if queue.unacked_count:
                left -= self._look_at
                mean = mean_unacked(queue, self._look_at // 2)
                self.messages += queue.unacked_count * (mean + ENTRY_OVERHEAD)
            ready = len(queue.ready) + queue.backlog.count - queue.backlog.paged_out
            if ready:
                left -= self._look_at
                mean = mean_size(queue, self._look_at) or self._before.get(queue.uuid, _GUESS)
                self.means[queue.uuid] = mean
                self.messages += ready * (mean + ENTRY_OVERHEAD)
        return not self._queues and not self._connections


def mean_unacked(queue: Queue, most: int) -> int:
    """Approximate octets of a message that consumers of this queue hold. There must be one."""
    return UNACKED + _mean(list(pairwise([None, *queue.some_unacked(most)])))


def mean_size(queue: Queue, most: int) -> int:
    """Approximate octets of a message in this queue, without ENTRY_OVERHEAD. 0 if none is ready: use the last
    mean."""
    ready = queue.ready
    if not ready:
        return 0
    if len(ready) == 1:
        return _mean([(None, ready[0])])
    step = max(1, 2 * len(ready) // most)
    return _mean([(ready[at - 1], ready[at]) for at in range(1, len(ready), step)])


def _mean(pairs: list[tuple[Entry | None, Entry | None]]) -> int:
    """Mean octets of the second entry of each pair: its frames, plus its envelope unless the first entry
    shares it."""
    octets = sum([
        len(entry[2]) + (ENVELOPE if before is None or before[1] is not entry[1] else 0)
        for before, entry in pairs if entry is not None
    ])  # fmt: skip
    return octets // len(pairs)
