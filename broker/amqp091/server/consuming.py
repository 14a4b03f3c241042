"""The consumers of a channel: consume, cancel, get, qos, flow, and deliveries as far as there is room.

Owner: `Channel`. The `DeliverySink` of its consumers: queues call `credit` and `deliver` from their dispatch
at the end of a tick. It fills the channel's `Unacked`. `settled` reports what has left that, and returns the
credit; in a transaction at its commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from broker.ack_timeouts import DeliveryTimes
from broker.amqp091.channel_state.delivery import ServedConsumer, Staged, fit, with_counts, write_deliveries
from broker.amqp091.channel_state.output import Output
from broker.amqp091.channel_state.unacked import Run, Unacked
from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.codec.properties import without_bcc
from broker.amqp091.codec.served_frames import served_frames
from broker.authorization import demand
from broker.errors import NotAllowed, NotImplemented_, PreconditionFailed
from broker.model.history.records import Entry
from broker.model.queue.arguments import BROWSE, CONFIRMED_ONLY, check_consumer_arguments
from broker.model.queue.consumer import Consumer
from broker.model.queue.direct_reply import PREFIX, REPLY_TO
from broker.model.statistics import MOST_SHARES, Counts

if TYPE_CHECKING:
    from broker.connection import Connection
    from broker.model.queue.queue import Queue

BURST = 4096
"""Maximum messages for one consumer without a prefetch limit in one tick."""
_LOOK_AT = 16
"""Messages whose sizes are taken as an estimate for the following ones."""


class ChannelConsumers:
    """The consumers of one channel, in `by_tag`. Messages in flight are counted for each consumer and for the
    channel, for qos. `got`: the counters of basic.get, of the last queues."""

    __slots__ = (
        "_cancels", "_connection", "_flowing", "_gets_held", "_in_flight", "_limit", "_next_tag", "_number",
        "_output", "_prefetch", "_replies", "_served", "_staged", "_times", "_unacked", "by_tag",
        "got",
    )  # fmt: skip

    def __init__(self, output: Output, unacked: Unacked) -> None:
        self._output = output
        self._connection = output.connection
        self._number = output.number
        self._unacked = unacked
        self.by_tag: dict[str, ServedConsumer] = {}
        self.got: dict[Queue, Counts] = {}
        self._replies: ServedConsumer | None = None
        self._served = 0
        self._staged = Staged()
        self._times = DeliveryTimes()
        self._next_tag = 1
        self._limit = 0
        """Limit of the whole channel (qos with global)."""
        self._in_flight = 0
        self._prefetch = 0
        """Limit of new consumers."""
        self._flowing = True
        self._cancels: list[bytes] | None = None
        self._gets_held = 0
        """Messages of basic.get that wait in `Output.held`. Deliveries wait for them, so tags go out in
        order, and a multiple ack only covers what the client has seen."""

    @property
    def client(self) -> str:
        return self._connection.peer.address

    @property
    def origin(self) -> tuple[Connection, int]:
        """The connection and the number of the channel."""
        return self._connection, self._number

    @property
    def limits(self) -> tuple[int, int]:
        """Maximum messages in flight: of a new consumer, and of the whole channel; 0: any."""
        return self._prefetch, self._limit

    def flow(self, arguments: dict[str, Any]) -> None:
        """channel.flow."""
        self._flowing = arguments["active"]
        self._output.answer("channel.flow-ok", active=self._flowing)
        if self._flowing:
            self.resume()

    def qos(self, arguments: dict[str, Any]) -> None:
        """basic.qos."""
        if arguments["prefetch_size"]:
            raise NotImplemented_("prefetch_size!=0")
        if arguments["global_"]:
            self._limit = arguments["prefetch_count"]
        else:
            self._prefetch = arguments["prefetch_count"]
        self._output.answer("basic.qos-ok")
        self.wake()

    def consume(self, name: str, arguments: dict[str, Any]) -> None:
        """basic.consume from the queue of this name."""
        vhost = self._connection.vhost
        if name != REPLY_TO:
            demand(self._connection, "read", "queue", name)
            vhost.queue(name, owner=self._connection)
        tag = arguments["consumer_tag"] or self._new_tag()
        if tag in self.by_tag:
            raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
        most = self._connection.settings.consumer_max_per_channel
        if len(self.by_tag) >= most:
            raise NotAllowed(f"reached maximum ({most}) of consumers per channel")
        check_consumer_arguments(arguments["arguments"], f"queue '{name}' in vhost '{vhost.name}'")
        if arguments["arguments"].get(BROWSE) and not arguments["no_ack"]:
            raise PreconditionFailed("a browsing consumer cannot acknowledge: it takes no messages")
        if arguments["arguments"].get(CONFIRMED_ONLY) and arguments["no_ack"]:
            raise PreconditionFailed(f"a consumer with {CONFIRMED_ONLY} has to acknowledge")
        queue = vhost.queues[name] if name != REPLY_TO else self._make_reply_queue(no_ack=arguments["no_ack"])
        consumer = ServedConsumer(
            queue, tag, self, self._number, limit=self._prefetch, no_ack=arguments["no_ack"],
            exclusive=arguments["exclusive"], arguments=arguments["arguments"],
            completion=self._connection.broker.completion,
        )  # fmt: skip
        vhost.consume(queue, consumer)
        self.by_tag[tag] = consumer
        if name == REPLY_TO:
            self._replies = consumer
        ok = b"" if arguments["nowait"] else encode_frame(self._number, "basic.consume-ok", consumer_tag=tag)
        self._output.reply(ok, after=lambda: self._start(consumer))

    @property
    def reply_queue(self) -> Queue | None:
        """That of the channel's consumer of direct replies, if it has one."""
        consumer = self._replies
        there = consumer is not None and self.by_tag.get(consumer.tag) is consumer
        return consumer.queue if consumer is not None and there else None

    def _make_reply_queue(self, *, no_ack: bool) -> Queue:
        """Raises PreconditionFailed, with RabbitMQ's texts."""
        if not no_ack:
            raise PreconditionFailed("reply consumer cannot acknowledge")
        if self.reply_queue is not None:
            raise PreconditionFailed("reply consumer already set")
        connection = self._connection
        return connection.vhost.declare_queue(
            "", owner=connection, exclusive=True, auto_delete=True, prefix=PREFIX
        )

    def _new_tag(self) -> str:
        self._served += 1
        return f"amq.ctag-{self._number}.{self._served}"

    def _start(self, consumer: ServedConsumer) -> None:
        consumer.started = True
        consumer.queue.schedule()

    def cancel(self, arguments: dict[str, Any]) -> None:
        """basic.cancel."""
        consumer = self.by_tag.pop(arguments["consumer_tag"], None)
        if consumer is not None:
            self._unstage(consumer)
            self._connection.vhost.cancel(consumer.queue, consumer)
        if not arguments["nowait"]:
            self._output.answer("basic.cancel-ok", consumer_tag=arguments["consumer_tag"])

    def _unstage(self, consumer: ServedConsumer) -> None:
        """Requeue the messages staged for a cancelled consumer, or send them if it does not ack."""
        entries = self._staged.take_of(consumer)
        if consumer.unconfirmed is not None:
            entries += consumer.unconfirmed.clear()
        if not entries:
            return
        if consumer.no_ack:
            self._write(consumer, entries)
        else:
            self._in_flight -= len(entries)
            consumer.queue.requeue(entries, failed=False)

    def credit(self, consumer: Consumer) -> int:
        """The number of messages that `consumer` may get now. The queue calls this."""
        assert isinstance(consumer, ServedConsumer)
        if not consumer.started or not self._flowing or self._gets_held:
            return 0
        if self._staged or self._connection.delivery_budget <= 0:
            self._connection.choke()
            return 0
        room = BURST
        if consumer.no_ack:
            room = min(room, self._fitting(consumer.queue))
        else:
            if consumer.limit:
                # What cannot be confirmed yet waits beside the messages in flight.
                limit = consumer.limit if consumer.unconfirmed is None else 2 * consumer.limit
                room = min(room, limit - consumer.in_flight)
            if self._limit:
                room = min(room, self._limit - self._in_flight)
            if consumer.unconfirmed is not None:
                room = min(room, BURST - consumer.unconfirmed.count)
        return room

    def _fitting(self, queue: Queue) -> int:
        """Approximate number of the queue's next messages that fit, for a consumer without acks, whose
        messages leave the queue when they are taken. For a queue with limits or expiry, BURST, so that it
        drops no message that a consumer can take."""
        if queue.watched:
            return BURST
        head = list(islice(queue.ready, _LOOK_AT))
        budget, octets = self._connection.delivery_budget, sum([len(entry[2]) for entry in head])
        room = fit(head, budget) if octets > budget else len(head) * budget // max(octets, 1)
        if room < len(queue.ready):
            self._connection.choke()
        return room

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Send a batch, or as much as fits. The queue calls this."""
        assert isinstance(consumer, ServedConsumer)
        count = len(entries)
        if not consumer.no_ack:
            consumer.in_flight += count
            self._in_flight += count
        if consumer.unconfirmed is not None:
            consumer.unconfirmed.add(entries)
            self._connection.broker.unconfirmed[consumer] = partial(self._send_confirmed, consumer)
            return
        if count >= BURST:
            self._connection.choke()
        self._send_or_stage(consumer, entries)

    def _send_confirmed(self, consumer: ServedConsumer) -> bool:
        """Send what could be confirmed by now. Returns whether more waits."""
        unconfirmed = consumer.unconfirmed
        if unconfirmed is None:
            return False
        sent = consumer.in_flight - unconfirmed.count
        if not (entries := unconfirmed.take(consumer.limit - sent if consumer.limit else BURST)):
            return unconfirmed.count > 0
        if self._staged or self._gets_held or not self._flowing or self._connection.delivery_budget <= 0:
            self._staged.batches.append((consumer, entries))
            self._connection.choke()
        else:
            self._send_or_stage(consumer, entries)
        consumer.queue.schedule()
        return unconfirmed.count > 0

    def _send_or_stage(self, consumer: ServedConsumer, entries: list[Entry]) -> None:
        count = fit(entries, self._connection.delivery_budget)
        if count < len(entries):
            self._staged.batches.append((consumer, entries[count:]))
            self._connection.choke()
            entries = entries[:count]
        self._write(consumer, entries)

    def _write(self, consumer: ServedConsumer, entries: list[Entry]) -> None:
        connection = self._connection
        tag = self._next_tag
        self._next_tag = tag + len(entries)
        if not consumer.no_ack:
            self._unacked.add(Run(tag, entries, consumer.queue, consumer))
        octets = write_deliveries(connection.out, consumer, tag, entries, self._number, connection.frame_max)
        counts, of_queue, own, count = (
            self._output.counts, consumer.queue.counts, consumer.counts, len(entries)
        )  # fmt: skip
        if consumer.no_ack:
            counts.deliver_no_ack += count
            of_queue.deliver_no_ack += count
            own.deliver_no_ack += count
        else:
            counts.deliver += count
            of_queue.deliver += count
            own.deliver += count
        if consumer.redelivered:
            counts.redeliver += consumer.redelivered
            of_queue.redeliver += consumer.redelivered
            own.redeliver += consumer.redelivered
        connection.sent(octets)

    def resume(self) -> None:
        """The connection has room again, or flow is on: send staged messages first, then more from the
        queues."""
        if not self._flowing or self._gets_held:
            return
        batches = self._staged.batches
        while batches:
            budget = self._connection.delivery_budget
            if budget <= 0:
                self._connection.choke()
                return
            consumer, entries = batches[0]
            count = fit(entries, budget)
            if count < len(entries):
                batches[0] = (consumer, entries[count:])
            else:
                batches.popleft()
            self._write(consumer, entries[:count])
        self.wake()

    def cancelled(self, consumer: Consumer) -> None:
        """The queue is deleted: send basic.cancel to clients that support it. The queue calls this."""
        assert isinstance(consumer, ServedConsumer)
        staged = self._staged.take_of(consumer)
        if consumer.unconfirmed is not None:
            staged += consumer.unconfirmed.clear()
        if not consumer.no_ack:
            self._in_flight -= len(staged)
        if self.by_tag.pop(consumer.tag, None) is None:
            return
        if self._connection.capability("consumer_cancel_notify"):
            cancel = encode_frame(self._number, "basic.cancel", consumer_tag=consumer.tag, nowait=True)
            if self._cancels is None:
                self._output.reply(cancel)
            else:
                self._cancels.append(cancel)

    @contextmanager
    def answering_first(self) -> Iterator[None]:
        """Delay basic.cancel for consumers that end inside until after the replies made inside, as in
        RabbitMQ. py-amqp treats a basic.cancel before queue.delete-ok as a failed deletion."""
        self._cancels = []
        try:
            yield
        finally:
            cancels, self._cancels = self._cancels, None
            for cancel in cancels:
                self._output.reply(cancel)

    def _got_of(self, queue: Queue) -> Counts:
        """The counters of basic.get from this queue."""
        found = self.got.get(queue)
        if found is None:
            if len(self.got) >= MOST_SHARES:
                del self.got[next(iter(self.got))]
            found = self.got[queue] = Counts()
        return found

    def get(self, name: str, *, no_ack: bool) -> None:
        """basic.get from the queue of this name."""
        connection = self._connection
        demand(connection, "read", "queue", name)
        queue = connection.vhost.queue(name, owner=connection)
        connection.vhost.shared.used(queue)
        entry = queue.pop(no_ack=no_ack)
        for counts in (queue.counts, self._output.counts, self._got_of(queue)):
            if entry is None:
                counts.get_empty += 1
            else:
                counts.got(no_ack, entry[1].redelivered)
        if entry is None:
            self._output.answer("basic.get-empty")
            return
        tag = self._next_tag
        self._next_tag = tag + 1
        if not no_ack:
            self._unacked.add(Run(tag, [entry], queue, None))
        _, envelope, raw = entry
        if envelope.blind:
            raw = without_bcc(raw)
        if queue.returns:
            (raw,) = with_counts([raw], [entry], queue.returns)
        if envelope.channel != self._number or envelope.largest_frame > connection.frame_max:
            raw = served_frames(raw, self._number, connection.frame_max)
        method = encode_frame(
            self._number, "basic.get-ok", delivery_tag=tag, redelivered=envelope.redelivered,
            exchange=envelope.exchange, routing_key=envelope.routing_key, message_count=queue.message_count,
        )  # fmt: skip
        if not self._output.held:
            self._output.reply(method + raw)
            return
        self._gets_held += 1
        self._output.reply(method + raw, after=self._got)

    def _got(self) -> None:
        self._gets_held -= 1
        self.resume()

    # -- settled messages

    def settled(self, runs: list[Run]) -> None:
        """Return the credit of messages that are no longer outstanding."""
        limit = self._limit
        for run in runs:
            consumer = run.consumer
            if consumer is None:
                continue
            count = len(run.entries)
            consumer.in_flight -= count
            self._in_flight -= count
            if not limit and consumer.limit:
                run.queue.credit_came()
        if limit and runs:
            self.wake()

    def wake(self) -> None:
        """Schedule the queues that hold messages, since each consumer may get more than before."""
        for consumer in self.by_tag.values():
            consumer.queue.credit_came()

    def late(self, now: float) -> int | None:
        """The timeout for acks of a queue, in milliseconds, if a message of it is outstanding for longer."""
        oldest = self._unacked.oldest
        if oldest is None:
            self._times.clear()
            return None
        self._times.note(now, oldest, self._next_tag)
        default, shortest = self._connection.settings.consumer_timeout, None
        for queue in self._unacked.queues:
            timeout = queue.rules.consumer_timeout
            timeout = default if timeout is None else timeout
            if timeout and (shortest is None or timeout < shortest):
                shortest = timeout
        if shortest is None:
            return None
        for queue, first in self._unacked.before(self._times.upto(now - shortest / 1000)):
            own = queue.rules.consumer_timeout
            timeout = default if own is None else own
            if timeout and first < self._times.upto(now - timeout / 1000):
                return timeout
        return None

    # -- the end

    def stop(self) -> None:
        """The channel is closed: deliver nothing more."""
        self._flowing = False

    def let_go(self) -> tuple[list[ServedConsumer], list[Run]]:
        """Release the consumers. Returns them, and the messages staged for them, to be requeued."""
        consumers, self.by_tag = self.by_tag, {}
        staged, self._staged = self._staged, Staged()
        unsent = [Run(0, entries, c.queue, c) for c, entries in staged.batches if not c.no_ack]
        for consumer in consumers.values():
            if consumer.unconfirmed is not None and (entries := consumer.unconfirmed.clear()):
                unsent.append(Run(0, entries, consumer.queue, consumer))
        return list(consumers.values()), unsent
