"""One channel: consumers, acknowledgements, qos, confirms, and the order of its replies.

Owner: `ServerConnection`. It is the `DeliverySink` of its consumers: queues call `credit` and `deliver` from
their dispatch, at the end of a tick. Definitions (exchanges, queues, bindings) are in `definitions.py`.
Errors are raised as `ChannelError` or `ConnectionError_`; the connection adds class and method ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.amqp091.definitions import DEFINITION_METHODS
from broker.amqp091.delivery import ServedConsumer, Staged, fit, write_deliveries
from broker.amqp091.frames import reframe
from broker.amqp091.grammar import Method, encode_frame
from broker.amqp091.held import Held
from broker.amqp091.unacked import ACK_SIZE, Run, Unacked, UnknownTag, parse_acks
from broker.errors import (
    AmqpError,
    CommandInvalid,
    FrameError,
    NotAllowed,
    NotFound,
    NotImplemented_,
    PreconditionFailed,
    SyntaxError_,
)
from broker.model.consumer import Consumer
from broker.model.records import Entry
from broker.model.values import Need, Reason, Scope

if TYPE_CHECKING:
    from broker.amqp091.connection import ServerConnection
    from broker.amqp091.publish import Assembly
    from broker.model.queue import Queue

BURST = 4096
"""Most messages that one consumer without a prefetch limit takes in one tick."""


class Channel:
    """`producer` names this channel's publishes in the ledger: only where the client gave its connection a
    name (client property `producer`) and asked for confirms, whose tags then count its messages."""

    __slots__ = (
        "_flowing", "_gets_held", "_in_flight", "_limit", "_next_tag", "_prefetch", "_served", "_staged",
        "_unacked", "assembly", "confirming", "connection", "consumers", "held", "is_open", "last_queue",
        "next_publish_tag", "number", "producer",
    )  # fmt: skip

    def __init__(self, connection: ServerConnection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.is_open = True
        self.assembly: Assembly | None = None
        self.confirming = False
        self.next_publish_tag = 1
        self.producer: str | None = None
        self.held = Held(number)
        self.consumers: dict[str, ServedConsumer] = {}
        self.last_queue = ""
        """The queue declared last: what an empty queue name means."""
        self._served = 0
        self._unacked = Unacked()
        self._staged = Staged()
        self._next_tag = 1
        self._prefetch = 0
        """Limit that new consumers get."""
        self._limit = 0
        """Limit of the whole channel (qos with global)."""
        self._in_flight = 0
        self._flowing = True
        self._gets_held = 0
        """Messages of basic.get that wait in `held`: deliveries wait for them, so that tags go out in order
        and a multiple ack only ever reaches what the client has seen."""

    # -- output

    def reply(
        self, frame: bytes, scope: Scope | None = None, after: Callable[[], None] | None = None
    ) -> None:
        """Send `frame`, then run `after`, in channel order; with a scope, once what changed in it is safe."""
        vhost = self.connection.vhost
        need = vhost.need(scope) if scope is not None else Need.NONE
        if need is Need.NONE and not self.held:
            if frame:
                self.connection.send(frame)
            if after is not None:
                after()
            return
        self.held.reply(frame, need, vhost.history.position, after)
        self.connection.broker.holding[self] = None

    def answer(self, name: str, scope: Scope | None = None, **arguments: Any) -> None:
        """`reply` with a method frame."""
        self.reply(encode_frame(self.number, name, **arguments), scope)

    # -- methods

    def method(self, method: Method, arguments: dict[str, Any]) -> None:
        """Serve one method; publish and ack have ways of their own."""
        handler = _HANDLERS.get(method.name)
        if handler is not None:
            handler(self, arguments)
            return
        define = DEFINITION_METHODS.get(method.name)
        if define is None:
            raise NotImplemented_(method.name)
        define(self, arguments)

    def queue_name(self, name: str) -> str:
        """`name`, or the queue declared last on this channel where it is empty."""
        if name:
            return name
        if not self.last_queue:
            raise NotFound("no previously declared queue")
        return self.last_queue

    def _flow(self, arguments: dict[str, Any]) -> None:
        self._flowing = arguments["active"]
        self.answer("channel.flow-ok", active=self._flowing)
        if self._flowing:
            self.resume()

    def _close(self, arguments: dict[str, Any]) -> None:
        self._let_go()
        self.is_open = False
        close_ok = encode_frame(self.number, "channel.close-ok")
        self.reply(close_ok, after=lambda: self.connection.forget_channel(self))

    def _select(self, arguments: dict[str, Any]) -> None:
        if not self.confirming:
            self.confirming = True
            self.next_publish_tag = 1
        session = self.connection.client_properties.get("producer")
        if isinstance(session, str) and session:
            self.producer = f"{session}/{self.number}"
        if not arguments["nowait"]:
            self.answer("confirm.select-ok")

    def _qos(self, arguments: dict[str, Any]) -> None:
        if arguments["prefetch_size"]:
            raise NotImplemented_("prefetch_size!=0")
        if arguments["global_"]:
            self._limit = arguments["prefetch_count"]
        else:
            self._prefetch = arguments["prefetch_count"]
        self.answer("basic.qos-ok")
        self._wake()

    # -- consuming

    def _consume(self, arguments: dict[str, Any]) -> None:
        vhost = self.connection.vhost
        queue = vhost.queue(self.queue_name(arguments["queue"]), owner=self.connection)
        tag = arguments["consumer_tag"] or self._new_tag()
        if tag in self.consumers:
            raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
        consumer = ServedConsumer(
            queue, tag, self, self.number, limit=self._prefetch, no_ack=arguments["no_ack"],
            exclusive=arguments["exclusive"], arguments=arguments["arguments"],
        )  # fmt: skip
        vhost.consume(consumer)
        self.consumers[tag] = consumer
        ok = b"" if arguments["nowait"] else encode_frame(self.number, "basic.consume-ok", consumer_tag=tag)
        self.reply(ok, after=lambda: self._start(consumer))

    def _new_tag(self) -> str:
        self._served += 1
        return f"amq.ctag-{self.number}.{self._served}"

    def _start(self, consumer: ServedConsumer) -> None:
        consumer.started = True
        consumer.queue.schedule()

    def _cancel(self, arguments: dict[str, Any]) -> None:
        consumer = self.consumers.pop(arguments["consumer_tag"], None)
        if consumer is not None:
            self._unstage(consumer)
            self.connection.vhost.cancel(consumer)
        if not arguments["nowait"]:
            self.answer("basic.cancel-ok", consumer_tag=arguments["consumer_tag"])

    def _unstage(self, consumer: ServedConsumer) -> None:
        """What was staged for a consumer that ends goes back, or, if it never acks, out."""
        entries = self._staged.take_of(consumer)
        if not entries:
            return
        if consumer.no_ack:
            self._write(consumer, consumer.queue, entries)
        else:
            self._in_flight -= len(entries)
            consumer.queue.requeue(entries)

    def credit(self, consumer: Consumer) -> int:
        """How many messages `consumer` may get now (called by its queue)."""
        assert isinstance(consumer, ServedConsumer)
        if not consumer.started or not self._flowing or not self.is_open or self._gets_held:
            return 0
        if self._staged or self.connection.delivery_budget <= 0:
            self.connection.choke()
            return 0
        room = BURST
        if not consumer.no_ack:
            if consumer.limit:
                room = min(room, consumer.limit - consumer.in_flight)
            if self._limit:
                room = min(room, self._limit - self._in_flight)
        return room

    def deliver(self, consumer: Consumer, queue: Queue, entries: list[Entry]) -> None:
        """Send a batch, or as much of it as the connection has room for (called by its queue)."""
        assert isinstance(consumer, ServedConsumer)
        count = len(entries)
        if not consumer.no_ack:
            consumer.in_flight += count
            self._in_flight += count
        if count >= BURST:
            self.connection.choke()
        self._send_or_stage(consumer, queue, entries)

    def _send_or_stage(self, consumer: ServedConsumer, queue: Queue, entries: list[Entry]) -> None:
        count = fit(entries, self.connection.delivery_budget)
        if count < len(entries):
            self._staged.batches.append((consumer, queue, entries[count:]))
            self.connection.choke()
            entries = entries[:count]
        self._write(consumer, queue, entries)

    def _write(self, consumer: ServedConsumer, queue: Queue, entries: list[Entry]) -> None:
        connection = self.connection
        tag = self._next_tag
        self._next_tag = tag + len(entries)
        if not consumer.no_ack:
            self._unacked.add(Run(tag, entries, queue, consumer))
        try:
            octets = write_deliveries(
                connection.out, consumer, tag, entries, self.number, connection.frame_max
            )
        except ValueError as error:
            connection.doom(FrameError(str(error), 60, 60))
            return
        connection.sent(octets)

    def resume(self) -> None:
        """The connection has room again, or flow is on: first what is staged, then more from the queues."""
        if not self._flowing or not self.is_open or self._gets_held:
            return
        batches = self._staged.batches
        while batches:
            budget = self.connection.delivery_budget
            if budget <= 0:
                self.connection.choke()
                return
            consumer, queue, entries = batches[0]
            count = fit(entries, budget)
            if count < len(entries):
                batches[0] = (consumer, queue, entries[count:])
            else:
                batches.popleft()
            self._write(consumer, queue, entries[:count])
        self._wake()

    def _wake(self) -> None:
        for consumer in self.consumers.values():
            consumer.queue.schedule()

    def cancelled(self, consumer: Consumer) -> None:
        """The queue went away: basic.cancel to clients that understand it (called by the queue)."""
        self._staged.take_of(consumer)
        if self.consumers.pop(consumer.tag, None) is None or not self.is_open:
            return
        if self.connection.capability("consumer_cancel_notify"):
            cancel = encode_frame(self.number, "basic.cancel", consumer_tag=consumer.tag, nowait=True)
            self.reply(cancel)

    def _get(self, arguments: dict[str, Any]) -> None:
        connection = self.connection
        queue = connection.vhost.queue(self.queue_name(arguments["queue"]), owner=connection)
        connection.vhost.expiries.used(queue)
        entry = queue.pop(no_ack=arguments["no_ack"])
        if entry is None:
            self.answer("basic.get-empty")
            return
        tag = self._next_tag
        self._next_tag = tag + 1
        if not arguments["no_ack"]:
            self._unacked.add(Run(tag, [entry], queue, None))
        _, envelope, raw = entry
        if envelope.channel != self.number or envelope.largest_frame > connection.frame_max:
            try:
                raw = reframe(raw, self.number, connection.frame_max)
            except ValueError as error:
                raise FrameError(str(error)) from None
        method = encode_frame(
            self.number, "basic.get-ok", delivery_tag=tag, redelivered=envelope.redelivered,
            exchange=envelope.exchange, routing_key=envelope.routing_key, message_count=queue.message_count,
        )  # fmt: skip
        if not self.held:
            self.reply(method + raw)
            return
        self._gets_held += 1
        self.reply(method + raw, after=self._got)

    def _got(self) -> None:
        self._gets_held -= 1
        self.resume()

    # -- acknowledging

    def acks(self, buf: bytes, pos: int, end: int) -> int:
        """At `pos` is a whole basic.ack frame that ends at `end`. Serve it and those of this channel that
        follow at once; where the rest begins."""
        if end - pos != ACK_SIZE:
            raise SyntaxError_("basic.ack of a wrong size", 60, 80)
        ranges, end = parse_acks(buf, pos)
        try:
            for low, high in ranges:
                if low > 0:
                    self._acked(self._unacked.take(low, high))
                elif low == 0:
                    raise UnknownTag(0, [])
                else:
                    self._acked(self._unacked.take_through(high) if high else self._unacked.take_all())
        except UnknownTag as unknown:
            self._acked(unknown.settled)
            self.connection.fail(self, PreconditionFailed(f"unknown delivery tag {unknown.tag}", 60, 80))
        return end

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

    # -- the end

    def while_closing(self, name: str) -> None:
        """After our channel.close everything is ignored but the client's close-ok, or a close that crossed
        ours."""
        if name == "channel.close":
            self.connection.send(encode_frame(self.number, "channel.close-ok"))
        if name in ("channel.close", "channel.close-ok"):
            self.connection.forget_channel(self)

    def close_for(self, error: AmqpError) -> None:
        """Close this channel for an error: what it held is requeued now, its number is free after
        close-ok."""
        if not self.is_open:
            return
        self.end()
        self.connection.send(
            encode_frame(
                self.number, "channel.close", reply_code=error.code, reply_text=error.reply_text,
                failed_class=error.class_id, failed_method=error.method_id,
            )
        )  # fmt: skip

    def end(self) -> None:
        """Let go of everything; confirms still held are never sent. Idempotent."""
        self.is_open = False
        self._let_go()
        self.held = Held(self.number)
        self.connection.broker.holding.pop(self, None)

    def _let_go(self) -> None:
        vhost = self.connection.vhost
        consumers, self.consumers = self.consumers, {}
        staged, self._staged = self._staged, Staged()
        runs = self._unacked.take_all()
        runs += [Run(0, entries, queue, c) for c, queue, entries in staged.batches if not c.no_ack]
        self._requeue(runs)
        for consumer in consumers.values():
            vhost.cancel(consumer)


def _refuse_flow_ok(channel: Channel, arguments: dict[str, Any]) -> None:
    """We never send channel.flow, nor close a channel that is still open when a close-ok comes."""
    raise CommandInvalid("an answer to what was not asked")


_HANDLERS: dict[str, Callable[[Channel, dict[str, Any]], None]] = {
    "channel.flow": Channel._flow,
    "channel.flow-ok": _refuse_flow_ok,
    "channel.close": Channel._close,
    "channel.close-ok": _refuse_flow_ok,
    "confirm.select": Channel._select,
    "basic.qos": Channel._qos,
    "basic.consume": Channel._consume,
    "basic.cancel": Channel._cancel,
    "basic.cancel-ok": lambda channel, arguments: None,
    "basic.get": Channel._get,
    "basic.ack": Channel._ack,
    "basic.nack": Channel._nack,
    "basic.reject": Channel._nack,
    "basic.recover": Channel._recover,
    "basic.recover-async": Channel._recover_async,
}
