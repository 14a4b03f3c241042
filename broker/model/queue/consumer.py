"""A consumer of one queue, and the sink that takes its deliveries.

Owner: the object that made the consumer (a channel, for example), which is also its sink. The queue calls the
sink from `Queue.dispatch` at the end of a tick. The sink must not call back into the queue from there.
"""

from __future__ import annotations

from typing import Protocol

from broker.errors import InternalError
from broker.model.history.records import Entry, MessageId
from broker.model.statistics import Counts

UNLIMITED = 1 << 30
"""The `credit` of a consumer that neither qos nor back-pressure limits."""


class DeliverySink(Protocol):
    """Takes deliveries. One sink may serve several consumers, as a channel does."""

    @property
    def client(self) -> str:
        """The client's address, for people; the log uses the same one."""

    def credit(self, consumer: Consumer) -> int:
        """The number of messages that the sink takes now. 0 or less: none (qos, flow, slow socket).

        When the credit rises again, the sink must call the queue's `schedule`. Otherwise the queue stays
        idle.
        """

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Take `entries`, at most as many as the last `credit`. The sink owns the list from now on.

        Unless `consumer.no_ack` is set, each entry must later return by exactly one of the queue's
        `acknowledge`, `requeue` or `drop`.
        """

    def cancelled(self, consumer: Consumer) -> None:
        """The queue and the consumer are deleted. Send basic.cancel if the client supports it."""


class _Nobody:
    """The sink of a consumer that has ended."""

    client = ""

    def credit(self, consumer: Consumer) -> int:
        return 0

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        raise InternalError(f"{len(entries)} messages for a consumer that has ended")

    def cancelled(self, consumer: Consumer) -> None:
        return


NOBODY = _Nobody()


class Consumer:
    """One basic.consume. Compared by identity.

    - `priority`: those with a lower one only get what all those with a higher one have no credit for.
    - `browses`: it sees messages, and takes none (`browsing`).
    - `counts`: what it got, and acknowledged.
    - `rests`: its sink took as much as one tick allows, and goes on by itself. Those with a lower priority
      wait.
    """

    __slots__ = ("browses", "counts", "exclusive", "no_ack", "priority", "rests", "sink", "tag")

    def __init__(
        self,
        tag: str,
        sink: DeliverySink,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        priority: int = 0,
        browses: bool = False,
    ) -> None:
        self.tag = tag
        self.sink = sink
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.priority = priority
        self.browses = browses
        self.rests = False
        self.counts = Counts()


Browsers = dict[Consumer, MessageId]
"""Those that browse, all without acks, each with the newest id that it has seen."""


class Level:
    """Consumers of one queue with equal priority, in the order of their arrival. `turn`: whose turn it is."""

    __slots__ = ("consumers", "priority", "turn")

    def __init__(self, priority: int, turn: int) -> None:
        self.priority = priority
        self.turn = turn
        self.consumers: list[Consumer] = []


def _urgency(consumer: Consumer) -> int:
    return -consumer.priority


class Consumers(dict[Consumer, None]):
    """The consumers of one queue. Adding and removing cost the same for any number.

    - `exclusive`: one of them is exclusive. That one is alone, or came before the others.
    - `ranked`: some consumer has, or had, another priority than 0.
    """

    __slots__ = ("_active", "_levels", "_order", "_stale", "exclusive", "ranked")

    def __init__(self) -> None:
        super().__init__()
        self._order: list[Consumer] | None = []
        self._levels: list[Level] = []
        self._stale = False
        self._active: Consumer | None = None
        self.exclusive = self.ranked = False

    def add(self, consumer: Consumer) -> None:
        self[consumer] = None
        self.ranked = self.ranked or consumer.priority != 0
        if self.ranked:
            self._order = None
        elif self._order is not None:
            self._order.append(consumer)
        self.exclusive = self.exclusive or consumer.exclusive
        if len(self) == 1:
            self._active = consumer

    def remove(self, consumer: Consumer) -> None:
        """Raises KeyError if the consumer is not in the collection."""
        del self[consumer]
        self._order = None
        if consumer is self._active:
            self._active = None
        if consumer.exclusive:
            self.exclusive = any(other.exclusive for other in self)

    def in_order(self) -> list[Consumer]:
        """A list for lookup by position, by falling priority and then by arrival; rebuilt after a removal.
        Callers must not change it."""
        order = self._order
        if order is None:
            self._stale = True
            order = self._order = sorted(self, key=_urgency) if self.ranked else list(self)
        return order

    def levels(self) -> list[Level]:
        """The consumers by falling priority."""
        order = self.in_order()
        if self._stale:
            turns = {level.priority: level.turn for level in self._levels}
            self._levels, self._stale = [], False
            for consumer in order:
                if not self._levels or self._levels[-1].priority != consumer.priority:
                    self._levels.append(Level(consumer.priority, turns.get(consumer.priority, 0)))
                self._levels[-1].consumers.append(consumer)
        return self._levels

    @property
    def active(self) -> Consumer | None:
        """The single active consumer: the one that came first. After it, the one of the highest priority
        that came first."""
        if self._active is None and self:
            self._active = self.in_order()[0]
        return self._active

    def clear(self) -> None:
        super().clear()
        self._order, self._levels, self._active = [], [], None
        self.exclusive = self.ranked = False
