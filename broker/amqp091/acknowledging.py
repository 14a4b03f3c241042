"""What a channel has delivered and not had acknowledged, and what acks, nacks and recover do about it.

Base of `Consuming`, which fills it. Credit goes back as messages are settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.amqp091.channel_output import ChannelOutput
from broker.amqp091.unacked import Run, Unacked, UnknownTag
from broker.errors import NotImplemented_, PreconditionFailed
from broker.model.records import Entry
from broker.model.values import Reason

if TYPE_CHECKING:
    from broker.amqp091.connection import ServerConnection
    from broker.amqp091.delivery import ServedConsumer
    from broker.model.queue import Queue


class Acknowledging(ChannelOutput):
    """`consumers` by tag. Messages in flight are counted per consumer and per channel, for qos."""

    __slots__ = ("_in_flight", "_limit", "_unacked", "consumers")

    def __init__(self, connection: ServerConnection, number: int) -> None:
        super().__init__(connection, number)
        self.consumers: dict[str, ServedConsumer] = {}
        self._unacked = Unacked()
        self._limit = 0
        """Limit of the whole channel (qos with global)."""
        self._in_flight = 0

    def _acked(self, runs: list[Run]) -> None:
        for run in runs:
            run.queue.acknowledge(run.entries)
            self._settled(run)

    def _settled(self, run: Run) -> None:
        """Give back the credit of messages that are no longer outstanding."""
        consumer = run.consumer
        if consumer is None:
            return
        count = len(run.entries)
        consumer.in_flight -= count
        self._in_flight -= count
        if self._limit:
            self._wake()
        elif consumer.limit:
            run.queue.schedule()

    def _take(self, tag: int, *, multiple: bool) -> list[Run]:
        try:
            if not multiple:
                return self._unacked.take(tag, tag)
            return self._unacked.take_through(tag) if tag else self._unacked.take_all()
        except UnknownTag:
            raise PreconditionFailed(f"unknown delivery tag {tag}") from None

    def _ack(self, arguments: dict[str, Any]) -> None:
        self._acked(self._take(arguments["delivery_tag"], multiple=arguments["multiple"]))

    def _nack(self, arguments: dict[str, Any]) -> None:
        runs = self._take(arguments["delivery_tag"], multiple=arguments.get("multiple", False))
        if arguments["requeue"]:
            self._requeue(runs)
            return
        for run in runs:
            run.queue.drop(run.entries, Reason.REJECTED)
            self._settled(run)

    def _requeue(self, runs: list[Run]) -> None:
        by_queue: dict[Queue, list[Entry]] = {}
        for run in runs:
            by_queue.setdefault(run.queue, []).extend(run.entries)
            self._settled(run)
        for queue, entries in by_queue.items():
            queue.requeue(entries)

    def _recover(self, arguments: dict[str, Any]) -> None:
        self._recover_async(arguments)
        self.answer("basic.recover-ok")

    def _recover_async(self, arguments: dict[str, Any]) -> None:
        if not arguments["requeue"]:
            raise NotImplemented_("requeue=false")
        self._requeue(self._unacked.take_all())

    def _wake(self) -> None:
        for consumer in self.consumers.values():
            consumer.queue.schedule()
