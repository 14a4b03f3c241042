"""What a channel has delivered and not had acknowledged, and what acks, nacks and recover do about it.

Base of `Consuming`, which fills it. Credit goes back as messages are settled: in a transaction that is at
its commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.amqp091.channel_output import ChannelOutput
from broker.amqp091.transaction import Settlement, Transaction
from broker.amqp091.unacked import Run, Unacked, UnknownTag
from broker.errors import NotImplemented_, PreconditionFailed
from broker.model.publish_route import need_of
from broker.model.records import Entry
from broker.model.values import Need, Reason, Scope

if TYPE_CHECKING:
    from broker.amqp091.connection import ServerConnection
    from broker.amqp091.delivery import ServedConsumer
    from broker.model.queue import Queue


class Acknowledging(ChannelOutput):
    """`consumers` by tag. `transaction`: None unless the channel is transactional. Messages in flight are
    counted per consumer and per channel, for qos."""

    __slots__ = ("_in_flight", "_limit", "_unacked", "consumers", "transaction")

    def __init__(self, connection: ServerConnection, number: int) -> None:
        super().__init__(connection, number)
        self.consumers: dict[str, ServedConsumer] = {}
        self.transaction: Transaction | None = None
        self._unacked = Unacked()
        self._limit = 0
        """Limit of the whole channel (qos with global)."""
        self._in_flight = 0

    def _acked(self, runs: list[Run]) -> None:
        if self.transaction is not None:
            self.transaction.settlements.append((Settlement.ACK, runs))
            return
        for run in runs:
            run.queue.acknowledge(run.entries)
            self._settled(run)

    def settle(self, how: Settlement, runs: list[Run], *, whole: bool = False) -> Need:
        """Do now what the client wants done with `runs`; what a reply that promises it waits for.
        `whole`: all dead letters are made now, and not only the first ones."""
        if how is Settlement.REQUEUE:
            self._requeue(runs)
            return Need.NONE
        need = Need.NONE
        for run in runs:
            reason = Reason.ACKED if how is Settlement.ACK else Reason.REJECTED
            if not run.queue.drop(run.entries, reason, whole=whole):
                run.queue.after_dying(self.connection.await_letters())
            self._settled(run)
            need = max(need, need_of_dequeue(run.queue))
            if how is Settlement.REJECT and run.queue.rules.dead_letters:
                need = Need.DURABLE  # of wherever it goes
        return need

    def outstanding_again(self, runs: list[Run]) -> None:
        """A rollback: they were settled in the transaction, and can be again."""
        self._unacked.put_back(runs)

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
        self._refused(Settlement.REQUEUE if arguments["requeue"] else Settlement.REJECT, runs)

    def _refused(self, how: Settlement, runs: list[Run]) -> None:
        if self.transaction is not None:
            self.transaction.settlements.append((how, runs))
        else:
            self.settle(how, runs)

    def _requeue(self, runs: list[Run], *, failed: bool = True) -> None:
        """`failed`: as `Queue.requeue` has it; False for what the client has not got."""
        by_queue: dict[Queue, list[Entry]] = {}
        for run in runs:
            by_queue.setdefault(run.queue, []).extend(run.entries)
            self._settled(run)
        for queue, entries in by_queue.items():
            queue.requeue(entries, failed=failed)

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


def need_of_dequeue(queue: Queue) -> Need:
    """When it is safe that messages have left `queue`."""
    if queue.deleted:
        return Need.NONE
    return need_of(queue.content_scope if queue.stored else queue.content_scope & ~Scope.STORE)
