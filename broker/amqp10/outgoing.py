"""A link on which a client receives from a queue: credit, transfers, and the client's outcomes.

Owner: `Links`. It is the `DeliverySink` of its one consumer: the queue calls `credit` and `deliver` from its
dispatch, at the end of a tick. A message without an outcome, or with `released`, is ready again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from proton import Sender

from broker.ack_timeouts import DeliveryTimes
from broker.amqp091.channel_state.delivery import fit
from broker.amqp091.channel_state.unacked import need_of_dequeue
from broker.amqp10 import deliveries
from broker.amqp10.conversion import octets_alone
from broker.amqp10.conversion import outgoing as converted
from broker.amqp10.deliveries import ACCEPTED, MODIFIED, REJECTED, RELEASED, Delivery
from broker.model.history.records import Entry
from broker.model.queue.consumer import NOBODY, Consumer
from broker.model.queue.requeueing import DeliveredBatch
from broker.model.queue.until_confirmed import UntilConfirmed
from broker.model.values import Need, Reason
from understudy.shared.amqp10.conditions import DELETED, MESSAGE_SIZE, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.amqp10.host import Amqp10Host
    from broker.connection import Connection
    from broker.model.queue.queue import Queue

BURST = 128
"""Maximum messages of one link in one tick."""
UNSETTLED_MAX = 5000
"""Maximum unsettled deliveries of one link. Credit above it waits until the client settles some."""
REPLICATION_ID = "x-replication-id"
"""Link property that requests the replication id, and the message annotation with it."""

PRIORITY = "rabbitmq:priority"
"""Link property with the priority of the consumer."""


class OutgoingHost(Protocol):
    """What such a link needs from `Links`."""

    unsettled: int

    @property
    def connection(self) -> Amqp10Host: ...
    @property
    def starving(self) -> dict[Outgoing, None]: ...
    @property
    def turns(self) -> dict[Outgoing, None]: ...
    @property
    def burst(self) -> int: ...
    @property
    def unsettled_room(self) -> int: ...
    @property
    def piled_up(self) -> int: ...
    def wait_turn(self, link: Outgoing) -> None: ...
    def settle(self, served: Outgoing, delivery: Delivery, number: int, need: Need) -> None: ...
    def settle_later(self, served: Outgoing, delivery: Delivery, number: int) -> None: ...
    def at_end_of_tick(self, what: Callable[[], None]) -> None: ...
    def hold(self, need: Need, after: Callable[[], None]) -> None: ...
    def serves(self, served: Outgoing) -> bool: ...
    def fail(self, served: Outgoing, fault: Fault) -> None: ...


class Outgoing:
    """`consumer`: the queue's view of this link. `temporary`: the queue belongs to the link, and is deleted
    with it."""

    __slots__ = (
        "_burst", "_draining", "_largest", "_links", "_most", "_number", "_numbers", "_open",
        "_pointer", "_settling", "_staged", "_temporary", "_times", "_unacked", "_unconfirmed",
        "_wants_id", "consumer", "link", "queue",
    )  # fmt: skip

    def __init__(
        self,
        links: OutgoingHost,
        link: Sender,
        queue: Queue,
        *,
        settled: bool,
        wants_id: bool,
        confirmed_only: bool,
        temporary: bool,
        priority: int = 0,
        browses: bool = False,
    ) -> None:
        self._links = links
        self.link = link
        self._pointer = deliveries.pointer(link)
        self.consumer = Consumer(
            link.name, self, no_ack=settled, priority=priority, browses=browses
        )  # fmt: skip
        self.queue = queue
        self._wants_id = wants_id
        completion = links.connection.broker.completion
        self._unconfirmed = UntilConfirmed(queue, completion) if confirmed_only else None
        """Messages taken from the queue that could not be confirmed yet; None: all are sent at once."""
        self._largest = link.remote_max_message_size
        """Maximum octets of a message that the client accepts; 0 for any."""
        self._temporary = temporary
        self._number = 0
        self._numbers: dict[Delivery, int] = {}
        """The deliveries that are not settled here."""
        self._unacked: dict[int, Entry] = {}
        self._times = DeliveryTimes()
        self._settling: set[int] = set()
        """Deliveries with an outcome that are settled once that is safe."""
        self._staged: list[Entry] = []
        """Messages taken from the queue and not sent for lack of room."""
        self._open = self._draining = False
        self._most = BURST
        """Maximum messages from its queue in one tick."""
        self._burst = False
        """It got its maximum in this tick; the next messages come after `resume`."""

    @property
    def client(self) -> str:
        return self._links.connection.peer.address

    @property
    def origin(self) -> tuple[Connection, int]:
        """The connection; a link has no channel of its own."""
        return self._links.connection, 0

    def release(self) -> None:
        """The link has ended: break the reference cycle with the consumer. The garbage collector must find no
        object of the engine: in another order than links, session, connection, the engine frees some twice,
        which ends the process."""
        self.consumer.sink = NOBODY

    def open(self) -> None:
        """Answer the attach, for a temporary queue once the queue is safe. Raises AccessRefused."""
        vhost, queue = self._links.connection.vhost, self.queue
        vhost.consume(queue, self.consumer)
        need = vhost.need(queue.scope) if self._temporary else Need.NONE
        if need is Need.NONE:
            self._opened()
        else:
            self._links.hold(need, self._opened)

    def _opened(self) -> None:
        if self._links.serves(self):
            self._open = True
            self.link.open()
            self.flow()
            self._links.connection.sent(0)

    # -- deliveries

    def credit(self, consumer: Consumer) -> int:
        """The number of messages that it may get now. The queue calls this."""
        if not self._open or not self._links.connection.running:
            return 0
        if self in self._links.turns:
            return 0
        if self._staged or self._room() <= 0:
            self._wait_for_room()
            return 0
        self._most = most = self._links.burst
        if self.consumer.no_ack:
            return min(deliveries.credit(self._pointer), most)
        waiting = self._waiting
        may = min(UNSETTLED_MAX - self._unsettled, self._links.unsettled_room) - waiting
        if may <= 0:
            self._links.starving[self] = None
        given = deliveries.credit(self._pointer)
        if self._unconfirmed is not None:
            given += given - waiting  # as much may wait beside it
        return min(given, most, max(0, may))

    @property
    def _waiting(self) -> int:
        return self._unconfirmed.count if self._unconfirmed is not None else 0

    @property
    def _unsettled(self) -> int:
        return len(self._unacked) + len(self._settling)

    def _room(self) -> int:
        """Octets that may be sent now, so that neither the socket nor the client's session windows pile them
        up here."""
        connection = self._links.connection
        return min(connection.delivery_budget, connection.settings.unsent_max - self._links.piled_up)

    def _wait_for_room(self) -> None:
        connection = self._links.connection
        if connection.delivery_budget <= 0:
            connection.choke()
        else:
            self._links.starving[self] = None

    def _wait_turn(self) -> None:
        self.consumer.rests = True
        self._links.wait_turn(self)

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Send a batch, or as much as fits. The queue calls this."""
        if len(entries) >= self._most:
            self._burst = True
            self._wait_turn()
        if self._unconfirmed is not None:
            self._unconfirmed.add(entries)
            self._links.connection.broker.unconfirmed[consumer] = self._send_confirmed
            return
        self._staged += entries
        self._links.connection.later(self._send_staged)

    def _send_confirmed(self) -> bool:
        """Send what could be confirmed by now. Returns whether more waits."""
        if self._unconfirmed is None:
            return False
        room = deliveries.credit(self._pointer) - len(self._staged)
        if not (entries := self._unconfirmed.take(room)):
            return self._waiting > 0
        self._staged += entries
        self.flow()
        self._links.connection.sent(0)
        return self._waiting > 0

    def _send_staged(self) -> None:
        broker = self._links.connection.broker
        while self._open and self._staged and deliveries.credit(self._pointer) > 0:
            room, turn = self._room(), broker.sends
            if room <= 0:
                self._wait_for_room()
                return
            if turn <= 0:
                self._wait_turn()
                return
            if not self.consumer.no_ack:  # other links of the connection may have used the room
                turn = min(turn, self._links.unsettled_room)
                if turn <= 0:
                    self._links.starving[self] = None
                    return
            count = min(fit(self._staged, room), deliveries.credit(self._pointer), turn)
            broker.sends -= count
            for sent, entry in enumerate(self._staged[:count]):
                if not self._send(entry):
                    del self._staged[:sent]
                    return
            del self._staged[:count]

    def _send(self, entry: Entry) -> bool:
        """Send one message. Returns False if the link must be closed."""
        link = self._pointer
        payload = self._payload(self.queue, entry)
        if 0 < self._largest < len(payload):
            self._open = False
            self._links.at_end_of_tick(lambda: self._too_large(len(payload)))  # not during dispatch
            return False
        self._number += 1
        delivery = deliveries.sent(link, b"%d" % self._number, payload)
        if self.consumer.no_ack:
            deliveries.settle(delivery)
        else:
            self._numbers[delivery] = self._number
            self._unacked[self._number] = entry
            self._links.unsettled += 1
        deliveries.advance(link)
        connection = self._links.connection
        for counts in (self.queue.counts, connection.counts, self.consumer.counts):
            if self.consumer.no_ack:
                counts.deliver_no_ack += 1
            else:
                counts.deliver += 1
            if entry[1].redelivered:
                counts.redeliver += 1
        connection.sent(len(payload))
        return True

    def _too_large(self, octets: int) -> None:
        if self._links.serves(self):
            what = f"a message of {octets} octets, more than the {self._largest} that the link takes"
            self._links.fail(self, Fault(MESSAGE_SIZE, what))

    def _payload(self, queue: Queue, entry: Entry) -> bytes:
        sequence, envelope, raw = entry
        replication_id = f"{queue.uuid.hex()}:{envelope.epoch}:{sequence}" if self._wants_id else None
        ttl = envelope.expiration
        if ttl is not None:
            ttl = max(0, envelope.wall_ms + ttl - self._links.connection.broker.vhosts.wall_ms)
        try:
            return converted(
                raw, channel=envelope.channel, persistent=envelope.persistent, priority=envelope.priority,
                ttl=ttl, redelivered=envelope.redelivered, exchange=envelope.exchange,
                routing_key=envelope.routing_key, replication_id=replication_id,
            )  # fmt: skip
        except Exception as error:
            place = f"message {envelope.epoch}:{sequence} of queue '{queue.name}'"
            self._links.connection.log(f"{place} is given as octets alone: {error!r}")
            return octets_alone(raw, persistent=envelope.persistent, redelivered=envelope.redelivered)

    def cancelled(self, consumer: Consumer) -> None:
        """The queue is deleted. The queue calls this."""
        self._forget()
        self._links.fail(self, Fault(DELETED, f"queue '{self.queue.name}' is gone"))

    # -- client outcomes

    def delivery(self, delivery: Delivery) -> None:
        """The client has updated a delivery."""
        if not deliveries.updated(delivery):
            return
        number = self._numbers.get(delivery, 0)
        state, settled = deliveries.remote_state(delivery), deliveries.settled(delivery)
        if not settled and state not in _FINAL:
            return
        entry = self._unacked.pop(number, None)
        if entry is None:
            if settled:
                self.settle(delivery, number)
            return  # it has an outcome, and is settled once that is safe
        need = self._outcome(entry, state, delivery, number)
        if settled:
            self._links.unsettled -= 1
            if self._numbers.pop(delivery, 0):
                deliveries.settle(delivery)
        else:
            self._settling.add(number)
            deliveries.update(delivery, state)
            if need is not None:
                self._links.settle(self, delivery, number, need)

    def _dead_lettered(self, delivery: Delivery, number: int) -> None:
        """A rejected message has become a dead letter."""
        if self._links.serves(self) and number in self._settling:
            self._links.settle_later(self, delivery, number)

    def settle(self, delivery: Delivery, number: int) -> None:
        """Settle: the effect of the outcome is safe, or the client has settled. Idempotent."""
        if number in self._settling:
            self._settling.discard(number)
            self._links.unsettled -= 1
        if self._numbers.get(delivery) == number:
            del self._numbers[delivery]
            deliveries.settle(delivery)

    def _outcome(self, entry: Entry, state: int, delivery: Delivery, number: int) -> Need | None:
        """Apply the client's outcome to the message. Returns what our settlement waits for; None for a dead
        letter that is not made yet."""
        queue = self.queue
        reject = state == REJECTED or (state == MODIFIED and deliveries.undeliverable(delivery))
        if state == ACCEPTED:
            queue.acknowledge([entry])
            for counts in (queue.counts, self._links.connection.counts, self.consumer.counts):
                counts.ack += 1
        elif reject:
            settled = deliveries.settled(delivery)
            after = None if settled else partial(self._dead_lettered, delivery, number)
            if not queue.drop([entry], Reason.REJECTED, after=after):
                return None
        else:
            failed = state == MODIFIED and deliveries.failed(delivery)
            queue.requeue([entry], failed=failed)
            return Need.NONE
        return Need.DURABLE if reject and queue.rules.dead_letters else need_of_dequeue(queue)

    def flow(self) -> None:
        """The client gave or withdrew credit, or asked to drain it."""
        if len(self._staged) > deliveries.credit(self._pointer) and not self.consumer.no_ack:
            kept = max(0, deliveries.credit(self._pointer))
            withdrawn, self._staged = self._staged[kept:], self._staged[:kept]
            self.queue.requeue(withdrawn, failed=False)
        if self._staged:
            self._send_staged()
        if not self._staged:
            self.queue.schedule()
        if deliveries.draining(self._pointer) and not self._draining:
            self._draining = True
            self._links.at_end_of_tick(self._drained)

    def _drained(self) -> None:
        """For drain: everything deliverable is delivered, so give back the remaining credit. Messages without
        room come first."""
        self._draining = False
        if not self._links.serves(self) or not deliveries.draining(self._pointer):
            return
        if self._staged or self._waiting:
            return
        queue = self.queue
        if queue.returning is not None and deliveries.credit(self._pointer):
            self._draining = True
            queue.returning.afters.append(self._messages_returned)
            return
        if queue.message_count and deliveries.credit(self._pointer):
            if self._burst:
                return
            if self._room() <= 0:
                self._wait_for_room()
                return
            broker = self._links.connection.broker
            if broker.output_fenced or broker.input_paused:
                # Output is fenced or input is paused, so nothing is delivered. `resume` follows when that
                # ends. Nothing may wait for this until then, least of all a switchover.
                self._links.connection.choke()
                return
            if queue.scheduled:  # more messages came from its backlog
                self._draining = True
                self._links.at_end_of_tick(self._drained)
                return
        self.link.drained()
        self._links.connection.sent(0)

    def late(self, now: float) -> int | None:
        """The timeout for acks, in milliseconds, if a message is outstanding for longer."""
        own = self.queue.rules.consumer_timeout
        timeout = self._links.connection.settings.consumer_timeout if own is None else own
        if not timeout or not self._unacked:
            self._times.clear()
            return None
        oldest = next(iter(self._unacked))
        self._times.note(now, oldest, self._number + 1)
        return timeout if oldest < self._times.upto(now - timeout / 1000) else None

    def resume(self) -> None:
        """There is room again."""
        rested, self.consumer.rests = self.consumer.rests, False
        self._burst = False
        self.flow()
        if rested and not self.consumer.rests and self.queue.consumers.ranked:
            self.queue.schedule()  # consumers of a lower priority have waited

    def _messages_returned(self) -> None:
        """The queue delivers again. The link may have been closed meanwhile."""
        if self._links.serves(self):
            self._links.at_end_of_tick(self._drained)

    def take_back(self) -> tuple[list[Entry], list[Entry]]:
        """Take back the unsettled messages, and the unsent ones, to be requeued."""
        entries, unsent = list(self._unacked.values()), []
        if self._staged and not self.consumer.no_ack:
            # After a batch that failed midway, some are in both.
            known = {(envelope.epoch, sequence) for sequence, envelope, _ in entries}
            unsent = [entry for entry in self._staged if (entry[1].epoch, entry[0]) not in known]
        if self._unconfirmed is not None:
            unsent += self._unconfirmed.clear()
        self._forget()
        return entries, unsent

    def end(self) -> None:
        """Requeue what was not settled."""
        queue, vhost = self.queue, self._links.connection.vhost
        entries, unsent = self.take_back()
        for back, failed in ((unsent, False), (entries, True)):
            if back:
                vhost.removals.requeueing.give_back([DeliveredBatch(queue, back)], (queue,), failed=failed)
                vhost.removals.requeueing.work()
        vhost.cancel(queue, self.consumer)
        if self._temporary and not queue.deleted and vhost.serving and vhost.shared.deciding:
            # otherwise another node may serve, and the queue is kept until the connection ends
            vhost.end_left(queue, Reason.DELETED)

    def _forget(self) -> None:
        self._links.unsettled -= self._unsettled
        self._unacked, self._staged = {}, []
        if self._unconfirmed is not None:
            self._unconfirmed.clear()
        self._settling.clear()
        self._numbers.clear()


_FINAL = frozenset((ACCEPTED, REJECTED, RELEASED, MODIFIED))
