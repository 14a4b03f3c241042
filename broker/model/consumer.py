"""A consumer of one queue, and the sink through which it is served.

Owner: the channel that made the consumer (`broker.amqp091.channel`), which is also its sink. The queue calls
the sink from `Queue.dispatch`, at the end of a tick; the sink never calls back into the queue from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from broker.model.records import Entry

if TYPE_CHECKING:
    from broker.model.queue import Queue

UNLIMITED = 1 << 30
"""What `credit` answers when neither qos nor back-pressure limits the consumer."""


class DeliverySink(Protocol):
    """Where deliveries go. One sink may serve several consumers (a channel does)."""

    def credit(self, consumer: Consumer) -> int:
        """How many messages may be handed over now; 0 or less for none (qos, flow, slow socket).

        Whoever raises it again calls `queue.schedule()`, or the queue stays asleep.
        """

    def deliver(self, consumer: Consumer, queue: Queue, entries: list[Entry]) -> None:
        """Take `entries`, never more than the last `credit`. The list is the sink's from now on.

        Unless `consumer.no_ack`, each entry must later go back by exactly one of `queue.acknowledge`,
        `queue.requeue` or `queue.drop`.
        """

    def cancelled(self, consumer: Consumer) -> None:
        """The queue is gone, and the consumer with it: tell the client (basic.cancel) if it can be told."""


class Consumer:
    """One basic.consume. Compared by identity."""

    __slots__ = ("arguments", "exclusive", "no_ack", "queue", "sink", "tag")

    def __init__(
        self,
        queue: Queue,
        tag: str,
        sink: DeliverySink,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self.queue = queue
        self.tag = tag
        self.sink = sink
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.arguments: Mapping[str, object] = arguments or {}
