"""One AMQP 0-9-1 channel: its methods, acknowledgements, and its end.

Owner: `ServerConnection`. A channel has an `Output` (the order of its replies), `ChannelConsumers` and
`Unacked`. Acks, nacks and recover are here. Definitions (exchanges, queues, bindings) are in
`definitions.py`, transactions in `transaction.py`. Errors are raised as `ChannelError` or `ConnectionError_`;
the connection adds class and method ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.ack_timeouts import timed_out
from broker.amqp091.channel_state.output import Output
from broker.amqp091.channel_state.unacked import (
    ACK_SIZE,
    Run,
    Unacked,
    UnknownTag,
    need_of_dequeue,
    parse_acks,
    parse_alike,
)
from broker.amqp091.codec.frames import REJECT
from broker.amqp091.codec.grammar import Method, encode_frame
from broker.amqp091.publishing import transaction
from broker.amqp091.publishing.transaction import Settlement, Transaction
from broker.amqp091.server.consuming import ChannelConsumers
from broker.amqp091.server.definitions import DEFINITION_METHODS
from broker.errors import (
    AmqpError,
    CommandInvalid,
    NotFound,
    NotImplemented_,
    PreconditionFailed,
    SyntaxError_,
)
from broker.model.queue.requeueing import Delivered
from broker.model.values import Need, Reason
from broker.model.vhost.producers import claim_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.amqp091.channel_state.assembly import Assembly
    from broker.amqp091.channel_state.host import Host
    from broker.model.history.records import Entry
    from broker.model.queue.queue import Queue
    from broker.model.queue.requeueing import Returning
    from broker.model.vhost.producers import ProducerSession

_REJECT_ID = REJECT[3]
_AT_ONCE = 1024
"""Messages given back by a client that are ready again before its next method is served."""


class Channel:
    """One channel of a connection.

    - `transaction`: None unless the channel is transactional.
    - `last_queue`: the queue declared last, to which an empty queue name refers.
    - `producer`: the name of this channel's publishes in the ledger. Set if the client named its
      connection (client property `producer`) and selected confirms or transactions. Then
      `next_publish_tag` counts its messages.
    - `numbers`: those of its messages, if the client gave its connection a `producer_id`.
    - `failed`: an error has closed the channel.
    - `crossed`: the client has closed it too, before it received our close.
    """

    __slots__ = (
        "assembly", "confirming", "connection", "consumers", "crossed", "failed", "is_open", "last_queue",
        "next_publish_tag", "number", "numbers", "output", "producer", "transaction", "unacked",
    )  # fmt: skip

    def __init__(self, connection: Host, number: int) -> None:
        self.connection = connection
        self.number = number
        self.is_open = True
        self.output = Output(connection, number)
        self.unacked = Unacked()
        self.consumers = ChannelConsumers(self.output, self.unacked)
        self.transaction: Transaction | None = None
        self.assembly: Assembly | None = None
        self.confirming = self.failed = self.crossed = False
        self.next_publish_tag = 1
        self.producer: str | None = None
        self.numbers: ProducerSession | None = None
        self.last_queue = ""

    # -- methods

    def method(self, method: Method, arguments: dict[str, Any]) -> None:
        """Serve one method. Publish and ack frames take a faster path and do not come here."""
        handler = _HANDLERS.get(method.name)
        if handler is not None:
            handler(self, arguments)
            return
        define = DEFINITION_METHODS.get(method.name)
        if define is None:
            raise NotImplemented_(method.name)
        define(self, arguments)

    @property
    def reply_to(self) -> str:
        """The name for direct replies. Raises PreconditionFailed without a consumer of them."""
        queue = self.consumers.reply_queue
        if queue is None:
            raise PreconditionFailed("fast reply consumer does not exist")
        return queue.name

    def queue_name(self, name: str) -> str:
        """`name`, or the queue declared last on this channel if `name` is empty."""
        if name:
            return name
        if not self.last_queue:
            raise NotFound("no previously declared queue")
        return self.last_queue

    # -- acknowledgements

    def acks(self, buf: bytes, pos: int, end: int) -> int:
        """Serve the basic.ack frame from `pos` to `end`, and those of this channel that follow directly.
        Returns the position behind them."""
        if end - pos != ACK_SIZE:
            raise SyntaxError_("basic.ack of a wrong size", 60, 80)
        ranges, end = parse_acks(buf, pos)
        try:
            for low, high in ranges:
                if low > 0:
                    self._acked(self.unacked.take(low, high))
                elif low == 0:
                    raise UnknownTag(0, [])
                else:
                    self._acked(self.unacked.take_through(high) if high else self.unacked.take_all())
        except UnknownTag as unknown:
            self._acked(unknown.settled)
            self.connection.fail(self, PreconditionFailed(f"unknown delivery tag {unknown.tag}", 60, 80))
        return end

    def nacks(self, buf: bytes, pos: int, end: int) -> int:
        """Serve the basic.nack or basic.reject frame from `pos` to `end`, and equal frames that follow
        directly, in one step, because each requeueing walks over the ready messages. Returns the position
        behind them, or 0 if the frame must be served as a single method."""
        if end - pos != ACK_SIZE:
            return 0
        method_id, bits = buf[pos + 10], buf[pos + 19]
        if bits not in (0, 1 if method_id == _REJECT_ID else 2):
            return 0
        ranges, end = parse_alike(buf, pos)
        runs: list[Run] = []
        unknown: int | None = None
        try:
            for low, high in ranges:
                runs += self.unacked.take(low, high)
        except UnknownTag as fault:
            runs += fault.settled
            unknown = fault.tag
        self._refused(Settlement.REQUEUE if bits else Settlement.REJECT, runs)
        if unknown is not None:
            error = PreconditionFailed(f"unknown delivery tag {unknown}", 60, method_id)
            self.connection.fail(self, error)
        return end

    def _acked(self, runs: list[Run]) -> None:
        if self.transaction is not None:
            self.transaction.settlements.append((Settlement.ACK, runs))
            return
        for run in runs:
            run.queue.acknowledge(run.entries)
            self._count_ack(run)
        self.consumers.settled(runs)

    def _count_ack(self, run: Run) -> None:
        count = len(run.entries)
        run.queue.counts.ack += count
        if run.consumer is not None:
            run.consumer.counts.ack += count
        elif run.queue in self.consumers.got:
            self.consumers.got[run.queue].ack += count
        self.output.counts.ack += count

    def settle(self, how: Settlement, runs: list[Run], *, whole: bool = False) -> Need:
        """Settle `runs` now. Returns what a reply about it must wait for. `whole`: make all dead letters now,
        and not only the first ones."""
        if how is Settlement.REQUEUE:
            self._requeue(runs)
            return Need.NONE
        need = Need.NONE
        for run in runs:
            reason = Reason.ACKED if how is Settlement.ACK else Reason.REJECTED
            if how is Settlement.ACK:
                self._count_ack(run)
            if not run.queue.drop(run.entries, reason, whole=whole):
                run.queue.after_dying(self.connection.await_dead_letters())
            need = max(need, need_of_dequeue(run.queue))
            if how is Settlement.REJECT and run.queue.rules.dead_letters:
                need = Need.DURABLE  # a need that covers any target of the dead letters
        if how is Settlement.REJECT:
            self.connection.await_refused()
        self.consumers.settled(runs)
        return need

    def outstanding_again(self, runs: list[Run]) -> None:
        """For a rollback: messages settled in the transaction are outstanding again."""
        self.unacked.put_back(runs)

    def _take(self, tag: int, *, multiple: bool) -> list[Run]:
        try:
            if not multiple:
                return self.unacked.take(tag, tag)
            return self.unacked.take_through(tag) if tag else self.unacked.take_all()
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
        """`failed`: see `Queue.requeue`; False for messages that the client did not receive."""
        self.consumers.settled(runs)
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
        """Requeue in pieces, without returning credit. `queues`: all queues of `runs`."""
        if runs:
            given = list[Delivered](runs)
            self.connection.vhost.removals.requeueing.give_back(given, queues, failed=failed)

    def _requeue_some(self) -> None:
        self.connection.vhost.removals.requeueing.work()

    def _recover(self, arguments: dict[str, Any]) -> None:
        self._recover_async(arguments)
        self.output.answer("basic.recover-ok")

    def _recover_async(self, arguments: dict[str, Any]) -> None:
        if not arguments["requeue"]:
            raise NotImplemented_("requeue=false")
        self._requeue(self.unacked.take_all())

    def check_acks(self, now: float) -> None:
        """Close the channel if its client has kept a message for too long."""
        if not self.is_open:
            return
        late = self.consumers.late(now)
        if late is not None:
            self.connection.fail(self, PreconditionFailed(timed_out(self.number, late)))

    # -- other methods

    def _close(self, arguments: dict[str, Any]) -> None:
        self._let_go()
        self._requeue_some()
        self._shut()
        close_ok = encode_frame(self.number, "channel.close-ok")
        self.output.reply(close_ok, after=lambda: self.connection.forget_channel(self))

    def _select(self, arguments: dict[str, Any]) -> None:
        if self.transaction is not None:
            raise PreconditionFailed("cannot switch from tx to confirm mode")
        need = Need.NONE
        if not self.confirming:
            need = self.begin_numbers()
            self.confirming = True
            self.output.counts.begin_confirms()
            self.next_publish_tag = 1
        self.name_producer()
        if not arguments["nowait"]:
            self.output.answer("confirm.select-ok", need=need)

    def begin_numbers(self) -> Need:
        """Number this channel's publishes, if the client gave its connection a `producer_id`. Returns what
        the answer waits for. Raises AccessRefused, PreconditionFailed."""
        connection = self.connection
        claim = claim_of(connection.client_properties)
        if claim is None:
            return Need.NONE
        if connection.numbered:
            raise PreconditionFailed(
                f"producer '{claim.producer}' has numbered a channel of this connection: open another "
                "connection"
            )
        shared = connection.vhost.shared
        self.numbers = shared.producers.begin(
            shared, connection.vhost.name, claim, connection.user, self._fenced
        )
        connection.numbered = True
        return Need.DURABLE

    def _fenced(self, why: AmqpError) -> None:
        if self.is_open:
            why.class_id, why.method_id = 60, 40
            self.connection.fail(self, why)

    def name_producer(self) -> None:
        """Name this channel's publishes after its connection, if the client named that."""
        session = self.connection.client_properties.get("producer")
        if isinstance(session, str) and session:
            self.producer = f"{session}/{self.number}"

    def wait_for(self, returning: Returning, serve: Callable[[], None], *ids: int) -> None:
        """Run `serve`, for the method with these `ids`, once all returning messages of a queue are ready. The
        client's later input waits."""
        go_on = self.connection.await_dead_letters()

        def ready() -> None:
            if self.is_open:
                try:
                    serve()
                except AmqpError as error:
                    error.class_id, error.method_id = ids
                    self.connection.fail(self, error)
            go_on()

        returning.afters.append(ready)

    def consume(self, arguments: dict[str, Any]) -> None:
        """basic.consume."""
        self.consumers.consume(self.queue_name(arguments["queue"]), arguments)

    def get(self, arguments: dict[str, Any]) -> None:
        """basic.get. Waits if messages are returning to the queue."""
        name = self.queue_name(arguments["queue"])
        queue = self.connection.vhost.queues.get(name)
        if queue is not None and queue.returning is not None:
            self.wait_for(queue.returning, lambda: self.get(arguments), 60, 70)
        else:
            self.consumers.get(name, no_ack=arguments["no_ack"])

    # -- the end

    def while_closing(self, name: str) -> None:
        """After our channel.close, ignore everything except the client's close-ok, which ends the channel,
        and a channel.close that crossed ours. That one is answered, and the client's close-ok still
        follows."""
        if name == "channel.close":
            self.crossed = True
            self.connection.send(encode_frame(self.number, "channel.close-ok"))
        elif name == "channel.close-ok":
            self.connection.forget_channel(self)

    def close_for(self, error: AmqpError) -> None:
        """Close this channel because of an error. Its messages are requeued now; its number is free after
        close-ok."""
        if not self.is_open:
            return
        self.failed = True
        self.end()
        self._requeue_some()
        self.connection.send(
            encode_frame(
                self.number, "channel.close", reply_code=error.code, reply_text=error.reply_text,
                failed_class=error.class_id, failed_method=error.method_id,
            )
        )  # fmt: skip

    def end(self) -> None:
        """Release everything. Pending confirms are never sent. Messages held are ready again at the end of
        the tick or later. Idempotent."""
        self._shut()
        self._let_go()
        self.output.drop()

    def _shut(self) -> None:
        self.is_open = False
        if self.numbers is not None:
            self.connection.vhost.shared.producers.end(self.numbers)
        self.consumers.stop()

    def _let_go(self) -> None:
        vhost = self.connection.vhost
        consumers, unsent = self.consumers.let_go()
        runs = self.unacked.take_all()
        queues = dict(self.unacked.queues)
        if self.transaction is not None:
            settled = self.transaction.end(self)
            queues.update({run.queue: None for run in settled})
            runs += settled
        self._give_back(unsent, {run.queue: None for run in unsent}, failed=False)
        self._give_back(runs, queues)
        for consumer in consumers:
            vhost.cancel(consumer.queue, consumer)


def _refuse_flow_ok(channel: Channel, arguments: dict[str, Any]) -> None:
    """For methods that are never valid here: the broker does not send channel.flow, and a close-ok came on an
    open channel."""
    raise CommandInvalid("an answer to what was not asked")


def _grant_access(channel: Channel, arguments: dict[str, Any]) -> None:
    """An AMQP 0-8 ticket, which no method checks."""
    channel.output.answer("access.request-ok", ticket=1)


_HANDLERS: dict[str, Callable[[Channel, dict[str, Any]], None]] = {
    "channel.flow": lambda channel, arguments: channel.consumers.flow(arguments),
    "channel.flow-ok": _refuse_flow_ok,
    "channel.close": Channel._close,
    "channel.close-ok": _refuse_flow_ok,
    "access.request": _grant_access,
    "confirm.select": Channel._select,
    "tx.select": transaction.select,
    "tx.commit": transaction.commit,
    "tx.rollback": transaction.rollback,
    "basic.qos": lambda channel, arguments: channel.consumers.qos(arguments),
    "basic.consume": Channel.consume,
    "basic.cancel": lambda channel, arguments: channel.consumers.cancel(arguments),
    "basic.cancel-ok": lambda channel, arguments: None,
    "basic.get": Channel.get,
    "basic.ack": Channel._ack,
    "basic.nack": Channel._nack,
    "basic.reject": Channel._nack,
    "basic.recover": Channel._recover,
    "basic.recover-async": Channel._recover_async,
}
