"""A consumer of one queue, and the sink through which it is served.

Owner: whoever made the consumer, a channel say, and is also its sink. The queue calls the sink from
`Queue.dispatch`, at the end of a tick; the sink never calls back into the queue from there.
"""

from __future__ import annotations

from typing import Protocol

from broker.model.history.records import Entry

UNLIMITED = 1 << 30
"""What `credit` answers when neither qos nor back-pressure limits the consumer."""


class DeliverySink(Protocol):
    """Where deliveries go. One sink may serve several consumers (a channel does)."""

    @property
    def client(self) -> str:
        """Who is served, for people: its address, by which the log names it too."""

    def credit(self, consumer: Consumer) -> int:
        """How many messages may be handed over now; 0 or less for none (qos, flow, slow socket).

        Whoever raises it again calls the queue's `schedule`, or the queue stays asleep.
        """

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Take `entries`, never more than the last `credit`. The list is the sink's from now on.

        Unless `consumer.no_ack`, each entry must later go back by exactly one of the queue's
        `acknowledge`, `requeue` or `drop`.
        """

    def cancelled(self, consumer: Consumer) -> None:
        """The queue is gone, and the consumer with it: tell the client (basic.cancel) if it can be told."""


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
    """Those of one queue, in the order in which they came. To add or to remove one costs the same, however
    many there are."""

    __slots__ = ("_order", "exclusive")

    def __init__(self) -> None:
        super().__init__()
        self._order: list[Consumer] | None = []
        self.exclusive = False
        """One of them is: then it is alone, or came before the others."""

    def add(self, consumer: Consumer) -> None:
        self[consumer] = None
        if self._order is not None:
            self._order.append(consumer)
        self.exclusive = self.exclusive or consumer.exclusive

    def remove(self, consumer: Consumer) -> None:
        """KeyError if it is none of them."""
        del self[consumer]
        self._order = None
        if consumer.exclusive:
            self.exclusive = any(other.exclusive for other in self)

    def in_order(self) -> list[Consumer]:
        """To look at, by place. Made anew after a removal."""
        order = self._order
        if order is None:
            order = self._order = list(self)
        return order

    def clear(self) -> None:
        super().clear()
        self._order, self.exclusive = [], False
