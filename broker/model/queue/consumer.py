"""A consumer of one queue, and the sink that takes its deliveries.

Owner: the object that made the consumer (a channel, for example), which is also its sink. The queue calls the
sink from `Queue.dispatch` at the end of a tick. The sink must not call back into the queue from there.
"""

from __future__ import annotations

from typing import Protocol

from broker.model.history.records import Entry

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


class Consumer:
    """One basic.consume. Compared by identity."""

    __slots__ = ("exclusive", "no_ack", "sink", "tag")

    def __init__(
        self, tag: str, sink: DeliverySink, *, no_ack: bool = False, exclusive: bool = False
    ) -> None:
        self.tag = tag
        self.sink = sink
        self.no_ack = no_ack
        self.exclusive = exclusive


class Consumers(dict[Consumer, None]):
    """The consumers of one queue, in the order of their arrival. Adding and removing cost the same for any
    number."""

    __slots__ = ("_order", "exclusive")

    def __init__(self) -> None:
        super().__init__()
        self._order: list[Consumer] | None = []
        self.exclusive = False
        """True if one of them is exclusive. That one is alone, or came before the others."""

    def add(self, consumer: Consumer) -> None:
        self[consumer] = None
        if self._order is not None:
            self._order.append(consumer)
        self.exclusive = self.exclusive or consumer.exclusive

    def remove(self, consumer: Consumer) -> None:
        """Raises KeyError if the consumer is not in the collection."""
        del self[consumer]
        self._order = None
        if consumer.exclusive:
            self.exclusive = any(other.exclusive for other in self)

    def in_order(self) -> list[Consumer]:
        """A list for lookup by position; rebuilt after a removal. Callers must not change it."""
        order = self._order
        if order is None:
            order = self._order = list(self)
        return order

    def clear(self) -> None:
        super().clear()
        self._order, self.exclusive = [], False
