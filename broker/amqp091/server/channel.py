"""One channel: its methods, confirms, and its end.

Owner: `ServerConnection`. What it consumes and acknowledges is in its bases, `Consuming` and `Acknowledging`,
the order of its replies in `ChannelOutput`; definitions (exchanges, queues, bindings) are in
`definitions.py`, transactions in `transaction.py`. Errors are raised as `ChannelError` or `ConnectionError_`;
the connection adds class and method ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.amqp091.codec.frames import REJECT
from broker.amqp091.codec.grammar import Method, encode_frame
from broker.amqp091.publishing import transaction
from broker.amqp091.publishing.held import Held
from broker.amqp091.publishing.transaction import Settlement
from broker.amqp091.server.consuming import Consuming
from broker.amqp091.server.definitions import DEFINITION_METHODS
from broker.amqp091.server.delivery import Staged
from broker.amqp091.server.unacked import ACK_SIZE, Run, UnknownTag, parse_acks, parse_alike
from broker.errors import AmqpError, CommandInvalid, NotImplemented_, PreconditionFailed, SyntaxError_

if TYPE_CHECKING:
    from broker.amqp091.publishing.assembly import Assembly
    from broker.amqp091.server.host import Host
    from broker.model.queue.requeueing import Returning

_REJECT_ID = REJECT[3]


class Channel(Consuming):
    """`producer` names this channel's publishes in the ledger: only where the client gave its connection a
    name (client property `producer`) and asked for confirms, or for transactions. From then on
    `next_publish_tag` counts its messages. `failed`: an error has closed it.
    `crossed`: the client has closed it, too, before it knew."""

    __slots__ = ("assembly", "confirming", "crossed", "failed", "next_publish_tag", "producer")

    def __init__(self, connection: Host, number: int) -> None:
        super().__init__(connection, number)
        self.assembly: Assembly | None = None
        self.confirming = self.failed = self.crossed = False
        self.next_publish_tag = 1
        self.producer: str | None = None

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

    def nacks(self, buf: bytes, pos: int, end: int) -> int:
        """At `pos` is a whole basic.nack or basic.reject frame that ends at `end`. Serve it and those like it
        that follow at once in one go, for each requeueing walks over what is ready; where the rest begins, or
        0 for one that has to be served by itself."""
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
                runs += self._unacked.take(low, high)
        except UnknownTag as fault:
            runs += fault.settled
            unknown = fault.tag
        self._refused(Settlement.REQUEUE if bits else Settlement.REJECT, runs)
        if unknown is not None:
            error = PreconditionFailed(f"unknown delivery tag {unknown}", 60, method_id)
            self.connection.fail(self, error)
        return end

    def _close(self, arguments: dict[str, Any]) -> None:
        self._let_go()
        self._requeue_some()
        self.is_open = False
        close_ok = encode_frame(self.number, "channel.close-ok")
        self.reply(close_ok, after=lambda: self.connection.forget_channel(self))

    def _select(self, arguments: dict[str, Any]) -> None:
        if self.transaction is not None:
            raise PreconditionFailed("cannot switch from tx to confirm mode")
        if not self.confirming:
            self.confirming = True
            self.next_publish_tag = 1
        self.name_producer()
        if not arguments["nowait"]:
            self.answer("confirm.select-ok")

    def name_producer(self) -> None:
        """Publishes are noted under the name that the client gave its connection, if it did."""
        session = self.connection.client_properties.get("producer")
        if isinstance(session, str) and session:
            self.producer = f"{session}/{self.number}"

    def wait_for(self, returning: Returning, serve: Callable[[], None], *ids: int) -> None:
        """`serve` what the client asks of a queue, by the method with these `ids`, once all is ready there;
        what it says next comes after."""
        go_on = self.connection.await_letters()

        def ready() -> None:
            if self.is_open:
                try:
                    serve()
                except AmqpError as error:
                    error.class_id, error.method_id = ids
                    self.connection.fail(self, error)
            go_on()

        returning.afters.append(ready)

    def get(self, arguments: dict[str, Any]) -> None:
        """basic.get, of a queue to which nothing is on its way back."""
        queue = self.connection.vhost.queues.get(self.queue_name(arguments["queue"]))
        if queue is not None and queue.returning is not None:
            self.wait_for(queue.returning, lambda: self.get(arguments), 60, 70)
        else:
            self._get(arguments)

    # -- the end

    def while_closing(self, name: str) -> None:
        """After our channel.close everything is ignored but the client's close-ok, which ends the channel,
        and a close that `crossed` ours: it is answered, and the client's close-ok comes all the same."""
        if name == "channel.close":
            self.crossed = True
            self.connection.send(encode_frame(self.number, "channel.close-ok"))
        elif name == "channel.close-ok":
            self.connection.forget_channel(self)

    def close_for(self, error: AmqpError) -> None:
        """Close this channel for an error: what it held is requeued now, its number is free after
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
        """Let go of everything; confirms still held are never sent. What it held is ready again at the end of
        the tick, or later. Idempotent."""
        self.is_open = False
        self._let_go()
        self.held = Held(self.number)
        self.connection.broker.holding.pop(self, None)

    def _let_go(self) -> None:
        vhost = self.connection.vhost
        consumers, self.consumers = self.consumers, {}
        staged, self._staged = self._staged, Staged()
        runs = self._unacked.take_all()
        queues = dict(self._unacked.queues)
        if self.transaction is not None:
            settled = self.transaction.end(self)
            queues.update({run.queue: None for run in settled})
            runs += settled
        unsent = [Run(0, entries, c.queue, c) for c, entries in staged.batches if not c.no_ack]
        self._give_back(unsent, {run.queue: None for run in unsent}, failed=False)
        self._give_back(runs, queues)
        for consumer in consumers.values():
            vhost.cancel(consumer.queue, consumer)


def _refuse_flow_ok(channel: Channel, arguments: dict[str, Any]) -> None:
    """We never send channel.flow, nor close a channel that is still open when a close-ok comes."""
    raise CommandInvalid("an answer to what was not asked")


def _grant_access(channel: Channel, arguments: dict[str, Any]) -> None:
    """A ticket of AMQP 0-8, which no method looks at."""
    channel.answer("access.request-ok", ticket=1)


_HANDLERS: dict[str, Callable[[Channel, dict[str, Any]], None]] = {
    "channel.flow": Channel._flow,
    "channel.flow-ok": _refuse_flow_ok,
    "channel.close": Channel._close,
    "channel.close-ok": _refuse_flow_ok,
    "access.request": _grant_access,
    "confirm.select": Channel._select,
    "tx.select": transaction.select,
    "tx.commit": transaction.commit,
    "tx.rollback": transaction.rollback,
    "basic.qos": Channel._qos,
    "basic.consume": Channel._consume,
    "basic.cancel": Channel._cancel,
    "basic.cancel-ok": lambda channel, arguments: None,
    "basic.get": Channel.get,
    "basic.ack": Channel._ack,
    "basic.nack": Channel._nack,
    "basic.reject": Channel._nack,
    "basic.recover": Channel._recover,
    "basic.recover-async": Channel._recover_async,
}
