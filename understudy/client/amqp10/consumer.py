"""An AMQP 1.0 consumer that follows its queue to the broker that serves, acks in batches, and keeps a ledger.

When a connection is lost, the next broker redelivers the messages that were handed out and not acked, flagged
`redelivered` and with the same replication id. The consumer drops deliveries that had arrived but were not
handed out: the application has not seen them.

The link property `x-replication-id` asks the broker to identify each message by queue, epoch and sequence.
The ledger records these ids when messages are handed out, and again when their ack is written. One thread
only: like Proton, this class is not thread safe.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proton import Delivery as Transfer
from proton import Endpoint, Event, EventType, Link, Terminus, symbol

from understudy.client.amqp10.failover import Failover
from understudy.client.amqp10.messages import decoded
from understudy.client.amqp10.wire import Lost, Refused, Wire, reason
from understudy.client.brokers import CONNECT_TIMEOUT, Addresses
from understudy.client.consuming import ACK_EVERY, ACK_INTERVAL, PREFETCH, ConsumerBase
from understudy.client.ledgers import ID_HEADER, ReplicationId, parse_replication_id
from understudy.client.once import asked_of_brokers
from understudy.client.processed import Processed
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT
from understudy.shared.amqp10.addresses import of_queue, parse
from understudy.shared.amqp10.conditions import DELETED, Fault
from understudy.shared.amqp10.sections import Properties


@dataclass(slots=True, frozen=True, eq=False)
class Delivery:
    """One message as it arrived.

    `body` is bytes, or str if the publisher named a text encoding as the content encoding. Other AMQP 1.0
    clients may send any value.
    """

    body: Any
    properties: Properties
    headers: Mapping[str, Any]
    """AMQP's application properties, or the headers of a message published over 0-9-1."""
    annotations: Mapping[Any, Any]
    redelivered: bool
    exchange: str
    routing_key: str
    tag: int
    session: int
    """Number of the connection that carried it; acks for an earlier connection are ignored."""
    id: ReplicationId | None
    """None from a broker that does not support replication ids."""


class Consumer(ConsumerBase[Delivery]):
    """Consumes one queue over a list of brokers.

    The consumer connects when first needed. Messages are acked in the order in which they were handed out.
    Methods that connect, such as `receive`, raise Refused for a missing or forbidden queue.

    Each method call also sends and checks heartbeats. An application that works on one message for longer
    than the broker's `broker.heartbeat` must call `flush` meanwhile, more often than that. Otherwise the
    broker ends the connection, and redelivers all messages that are not acked.
    """

    failover: Failover
    _lost = Lost

    def __init__(
        self,
        addresses: Addresses,
        queue: str,
        name: str,
        ledger_dir: str | os.PathLike[str] | None = None,
        *,
        prefetch: int = PREFETCH,
        ack_every: int = ACK_EVERY,
        ack_interval: float = ACK_INTERVAL,
        given_up: Callable[[], bool] = lambda: False,
        ledger_heartbeat: float = LEDGER_HEARTBEAT,
        exactly_once: bool = False,
        confirmed_only: bool = False,
        processed: str | os.PathLike[str] | Processed | None = None,
        **connection: Any,
    ) -> None:
        """`queue`: the queue's name, or its address `/queues/NAME`. `connection`: user, password,
        virtual_host, retry, connect_timeout, heartbeat and tls, as for `Failover`.

        `ledger_heartbeat`: longest silence of the ledger, in seconds, while the application asks for
        deliveries. `prefetch`: most messages that are not acked, given to the broker as credit. It must be at
        least `ack_every`. Otherwise the broker would wait for acks, and the acks for deliveries.

        `exactly_once`: skip messages that were processed before. `processed` remembers them: a file, which is
        `NAME.processed.db` in `ledger_dir` by default, or a `Processed`, such as an `OwnTransaction`.

        `confirmed_only`: a message comes once its confirm could leave, so that no failover gives it another
        id. `exactly_once` includes it.
        """
        if prefetch < max(1, ack_every):
            raise ValueError("prefetch must be at least ack_every")
        super().__init__(
            Failover(addresses, **connection), _queue_of(queue), name, ledger_dir,
            prefetch=prefetch, ack_every=ack_every, ack_interval=ack_interval, given_up=given_up,
            ledger_heartbeat=ledger_heartbeat, exactly_once=exactly_once, processed=processed,
        )  # fmt: skip
        self._confirmed_only = exactly_once or confirmed_only
        self._patience = connection.get("connect_timeout", CONNECT_TIMEOUT)
        self._attached = False
        self._last_tag = 0
        self._unsettled: OrderedDict[int, tuple[Delivery, Transfer]] = OrderedDict()
        """Deliveries by tag, in order, that are neither acked nor rejected."""
        self._accepted: list[Transfer] = []
        """Transfers of the deliveries that the next batch acks."""

    # -- connection ----------------------------------------------------------------------------------------

    def _begin(self, deadline: float | None) -> Any:
        wire = self.failover.connect(
            {"connection_name": self.name}, self._serve, deadline=deadline, given_up=self._is_given_up
        )
        link = wire.session.receiver(self.name)
        link.source.address = of_queue(self.queue)
        link.source.type = Terminus.SOURCE
        link.target.address = self.name
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_FIRST
        link.properties = {symbol(key): True for key in asked_of_brokers(confirmed_only=self._confirmed_only)}
        self._last_tag = 0
        self._attached = False
        link.open()
        link.flow(self._prefetch)
        try:
            self._await_attach(wire)
        except Lost as error:
            self.failover.unserved(error, deadline, self._is_given_up)
            raise
        return link

    def _await_attach(self, wire: Wire) -> None:
        until = time.monotonic() + self._patience
        while not self._attached:
            left = until - time.monotonic()
            if left <= 0:
                raise Lost("the broker did not answer in time")
            wire.pump(left)

    def _wait_for_input(self, timeout: float) -> None:
        if not self._arrived:
            self.failover.wait(timeout, self._pulse)

    def _stay_alive(self) -> None:
        wire = self.failover.wire
        if self._source is None or wire is None or not wire.overdue:
            return
        try:
            wire.pump(0)
        except self._lost:
            self._lose()
        except BaseException:
            self._lose()
            raise

    def _forget(self) -> None:
        super()._forget()
        self._unsettled.clear()
        self._accepted.clear()

    # -- input from the broker -----------------------------------------------------------------------------

    def _serve(self, kind: EventType, what: Any) -> bool:
        if kind is Event.DELIVERY:
            return self._transfer(what)
        if kind is Event.LINK_REMOTE_OPEN:
            self._attached = what.remote_source.type == Terminus.SOURCE  # else a detach says why
        elif kind is not Event.LINK_FLOW and not what.state & Endpoint.LOCAL_CLOSED:
            condition = what.remote_condition
            self._gone = self._attached and condition is not None and condition.name == DELETED
            if self._gone:  # its messages can no longer be acked or rejected
                self._unsettled.clear()
                self._accepted.clear()
                self._handled.clear()
            else:
                name, why = reason(condition)
                raise Refused(name, f"consuming from queue {self.queue!r}: {why}")
            return True
        return False

    def _transfer(self, transfer: Transfer) -> bool:
        """Keep a complete message until the application asks for it."""
        if not transfer.readable or transfer.partial:
            return False
        link = transfer.link
        payload = b"" if transfer.aborted else bytes(link.recv(transfer.pending) or b"")
        link.advance()
        if transfer.aborted:
            transfer.settle()
            link.flow(1)
            return False
        self._last_tag += 1
        message = decoded(payload)
        known = message.annotations
        delivery = Delivery(
            message.body, message.properties, message.headers, known,
            bool(message.header.delivery_count), known.get("x-exchange", ""), known.get("x-routing-key", ""),
            self._last_tag, self.failover.connects, parse_replication_id(known.get(ID_HEADER)),
        )  # fmt: skip
        self._unsettled[delivery.tag] = delivery, transfer
        self._arrived.append(delivery)
        self.failover.serving()
        return True

    # -- acks ----------------------------------------------------------------------------------------------

    def _is_done_with(self, delivery: Delivery) -> bool:
        return delivery.tag not in self._unsettled

    def _covered(self, delivery: Delivery) -> Sequence[Delivery]:
        covered: list[Delivery] = []
        while self._unsettled:
            tag, (each, transfer) = self._unsettled.popitem(last=False)
            covered.append(each)
            self._accepted.append(transfer)
            if tag == delivery.tag:
                break
        return covered

    def _say_acks(self, handled: Sequence[Delivery]) -> None:
        accepted, self._accepted = self._accepted, []
        self._settle(accepted, Transfer.ACCEPTED)

    def _say_rejected(self, delivery: Delivery, requeue: bool) -> None:
        _, transfer = self._unsettled.pop(delivery.tag)
        self._settle([transfer], Transfer.RELEASED if requeue else Transfer.REJECTED)

    def _settle(self, transfers: list[Transfer], state: int) -> None:
        """Send the outcome of each transfer, and give credit for as many new ones."""
        for transfer in transfers:
            transfer.update(state)
            transfer.settle()
        self._source.flow(len(transfers))
        wire = self.failover.wire
        if wire is not None:
            wire.send()


def _queue_of(text: str) -> str:
    """The queue name of an address or plain name. Raises ValueError for anything else."""
    try:
        queue = parse(text).queue
    except Fault as fault:
        raise ValueError(fault.text) from None
    if queue is None:
        raise ValueError(f"{text!r} is an exchange; messages are consumed from a queue")
    return queue
