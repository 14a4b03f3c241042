"""Counters of messages and of changes, and samples of them for rates.

Role: the counters of queues, exchanges, channels and virtual hosts. They only grow, by whole runs of messages
and never message by message. Their owners count; the management reads, and samples them now and then: time is
passed in. Names are those of RabbitMQ's management.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

AMQP091, AMQP10 = "amqp091", "amqp10"
PROTOCOLS = (AMQP091, AMQP10)
KEPT = 13
"""Samples of one object: with one each 5 s, those of the last minute."""

MOST_SHARES = 100
"""Names by which one counter is divided. Messages with others are in no part."""

Sample = tuple[float, tuple[int, ...]]
"""When it was taken, on the node's clock; and the values."""


class Counts:
    """Messages that one object has seen.

    - `publish`: came from clients; at a queue: were put into it; at an exchange: came to it.
    - `publish_confirm`: of these, on channels in confirm mode.
    - `confirm`: were confirmed.
    - `routed`: entries made in queues.
    - `return_unroutable`, `drop_unroutable`: reached no queue.
    - `deliver`, `deliver_no_ack`, `get`, `get_no_ack`: were sent to clients.
    - `get_empty`: answers that there is none.
    - `ack`: were acknowledged.
    - `redeliver`: of those sent, had been sent before.
    """

    __slots__ = (
        "_confirmable", "_confirms_from", "ack", "confirm", "deliver", "deliver_no_ack", "drop_unroutable",
        "get", "get_empty", "get_no_ack", "idle_since", "publish", "redeliver", "return_unroutable", "routed",
        "samples",
    )  # fmt: skip

    def __init__(self) -> None:
        self.publish = self.confirm = self.routed = 0
        self._confirmable, self._confirms_from = 0, -1
        self.return_unroutable = self.drop_unroutable = 0
        self.deliver = self.deliver_no_ack = self.get = self.get_no_ack = self.get_empty = 0
        self.ack = self.redeliver = 0
        self.idle_since = 0.0
        """Time of the first sample with the values of the last one."""
        self.samples: deque[Sample] | None = None
        """What `sample` has kept; None before the first."""

    @property
    def publish_confirm(self) -> int:
        own = self.publish - self._confirms_from if self._confirms_from >= 0 else 0
        return self._confirmable + own

    def begin_confirms(self) -> None:
        """The channel is in confirm mode from now on."""
        if self._confirms_from < 0:
            self._confirms_from = self.publish

    def add(self, other: Counts) -> None:
        self.publish += other.publish
        self._confirmable += other.publish_confirm
        self.confirm += other.confirm
        self.routed += other.routed
        self.return_unroutable += other.return_unroutable
        self.drop_unroutable += other.drop_unroutable
        self.deliver += other.deliver
        self.deliver_no_ack += other.deliver_no_ack
        self.get += other.get
        self.get_no_ack += other.get_no_ack
        self.get_empty += other.get_empty
        self.ack += other.ack
        self.redeliver += other.redeliver

    def got(self, no_ack: bool, redelivered: bool) -> None:
        """One message was sent for basic.get."""
        if no_ack:
            self.get_no_ack += 1
        else:
            self.get += 1
        if redelivered:
            self.redeliver += 1

    def values(self) -> tuple[int, ...]:
        """All counters, in the order of `NAMES`."""
        return (
            self.publish, self.confirm, self.routed, self.return_unroutable, self.drop_unroutable,
            self.deliver, self.deliver_no_ack, self.get, self.get_no_ack, self.get_empty, self.ack,
            self.redeliver,
        )  # fmt: skip

    def sample(self, now: float, gauges: tuple[int, ...] = (), kept: int = KEPT) -> None:
        """Keep the counters, and other numbers of the object. An idle object keeps one tuple for all of its
        samples."""
        samples = self.samples
        if samples is None:
            samples = self.samples = deque(maxlen=kept)
        values = self.values() + gauges
        if samples and samples[-1][1] == values:
            values = samples[-1][1]
        else:
            self.idle_since = now
        samples.append((now, values))


NAMES = (
    "publish", "confirm", "routed", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack",
    "get", "get_no_ack", "get_empty", "ack", "redeliver",
)  # fmt: skip
"""Of the numbers in a sample, before the gauges."""


class Shares:
    """How many messages of a counter went with which name: those of a queue by the exchange that they came
    from, those of a channel by the exchange that they went to. It costs a comparison for each run, and more
    only when the name changes.

    `name`: with which the next ones go; None before the first. Owner: who has the counter.
    """

    __slots__ = ("_parts", "_since", "name")

    def __init__(self) -> None:
        self.name: str | None = None
        self._since = 0
        self._parts: dict[str, Counts] | None = None
        """None while all have had one name."""

    def turn(self, name: str, total: int) -> None:
        """From `total` on, the messages go with another name, or with an equal one."""
        if self.name is not None and name != self.name:
            if self._parts is None:
                self._parts = {}
            self._settle(total)
        self.name = name

    def _settle(self, total: int) -> None:
        parts, name = self._parts, self.name
        if parts is None or name is None:
            return
        count, self._since = total - self._since, total
        if name in parts:
            parts[name].publish += count
        elif count and len(parts) < MOST_SHARES:
            parts[name] = Counts()
            parts[name].publish = count

    def parts(self, whole: Counts) -> dict[str, Counts]:
        """Counters by name, of which `publish` counts. `whole`: the counter."""
        if self._parts is None:
            return {} if self.name is None else {self.name: whole}
        self._settle(whole.publish)
        return self._parts

    def sample(self, whole: Counts, now: float) -> None:
        if self._parts is not None:
            for part in self.parts(whole).values():
                part.sample(now, kept=2)


class Tally:
    """The counters of all clients of one protocol in a virtual host. Each channel counts for itself, so
    that a message costs no second count. `ended`: those of channels that are closed."""

    __slots__ = ("_open", "ended")

    def __init__(self) -> None:
        self.ended = Counts()
        self._open: dict[Counts, None] = {}

    def begin(self, counts: Counts) -> None:
        """A channel with these counters has been opened."""
        self._open[counts] = None

    def end(self, counts: Counts) -> None:
        """It is closed. Idempotent."""
        if counts in self._open:
            del self._open[counts]
            self.ended.add(counts)

    def total(self) -> Counts:
        """Some 1 us for each channel."""
        return sum_of([self.ended, *self._open])


class Churn:
    """How often something came and went, since the start."""

    __slots__ = (
        "channel_closed", "channel_created", "connection_closed", "connection_created", "queue_created",
        "queue_declared", "queue_deleted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.connection_created = self.connection_closed = 0
        self.channel_created = self.channel_closed = 0
        self.queue_declared = self.queue_created = self.queue_deleted = 0

    def values(self) -> tuple[int, ...]:
        """In the order of `CHURN`."""
        return (
            self.channel_closed, self.channel_created, self.connection_closed, self.connection_created,
            self.queue_created, self.queue_declared, self.queue_deleted,
        )  # fmt: skip


CHURN = (
    "channel_closed", "channel_created", "connection_closed", "connection_created", "queue_created",
    "queue_declared", "queue_deleted",
)  # fmt: skip


def sum_of(counted: Iterable[Counts]) -> Counts:
    total = Counts()
    for counts in counted:
        total.add(counts)
    return total
