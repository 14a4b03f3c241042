"""What a channel has delivered and not had acknowledged, and what acks, nacks and recover do about it.

Base of `Consuming`, which fills it. Credit goes back as messages are settled: in a transaction that is at
its commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.amqp091.publishing.transaction import Settlement, Transaction
from broker.amqp091.server.channel_output import ChannelOutput
from broker.amqp091.server.unacked import Run, Unacked, UnknownTag
from broker.errors import NotImplemented_, PreconditionFailed
from broker.model.history.records import Entry
from broker.model.queue.requeueing import Delivered
from broker.model.routing.publish_route import need_of
from broker.model.values import Need, Reason, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.amqp091.server.delivery import ServedConsumer
    from broker.amqp091.server.host import Host
    from broker.model.queue.queue import Queue


_AT_ONCE = 1024
"""Messages that a client gives back, and that are ready again before its next word is served."""


class Acknowledging(ChannelOutput):
    """`consumers` by tag. `transaction`: None unless the channel is transactional. Messages in flight are
    counted per consumer and per channel, for qos."""

    __slots__ = ("_in_flight", "_limit", "_unacked", "consumers", "transaction")

    def __init__(self, connection: Host, number: int) -> None:
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
        self._settled(runs)

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
            need = max(need, need_of_dequeue(run.queue))
            if how is Settlement.REJECT and run.queue.rules.dead_letters:
                need = Need.DURABLE  # of wherever it goes
        self._settled(runs)
        return need

    def outstanding_again(self, runs: list[Run]) -> None:
        """A rollback: they were settled in the transaction, and can be again."""
        self._unacked.put_back(runs)

    def _settled(self, runs: list[Run]) -> None:
        """Give back the credit of messages that are no longer outstanding."""
        limit = self._limit
        for run in runs:
            consumer = run.consumer
            if consumer is None:
                continue
            count = len(run.entries)
            consumer.in_flight -= count
            self._in_flight -= count
            if not limit and consumer.limit:
                run.queue.schedule()
        if limit and runs:
            self._wake()

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
        self._settled(runs)
        if len(runs) > _AT_ONCE or sum([len(run.entries) for run in runs]) > _AT_ONCE:
            self._give_back(runs, {run.queue: None for run in runs}, failed=failed)
            self._requeue_some()
            return
        by_queue: dict[Queue, list[Entry]] = {}
        for run in runs:
            by_queue.setdefault(run.queue, []).extend(run.entries)
        for queue, entries in by_queue.items():
            queue.requeue(entries, failed=failed)

    def _give_back(self, runs: list[Run], queues: Iterable[Queue], *, failed: bool = True) -> None:
        """The same in pieces, and without a word of credit. `queues`: all that they are of."""
        if runs:
            given = list[Delivered](runs)
            self.connection.vhost.removals.requeueing.give_back(given, queues, failed=failed)

    def _requeue_some(self) -> None:
        self.connection.vhost.removals.requeueing.work()

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
