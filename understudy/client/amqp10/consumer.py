"""A consumer over AMQP 1.0 that follows its queue to whichever broker serves, acks in batches, and keeps
a ledger.

What was handed to the caller and not acked when a connection is lost comes again from the next broker,
flagged `redelivered` and with the same replication id. Deliveries that had arrived but were not handed out
yet are dropped with the connection: nobody has seen them.

The broker is asked (property `x-replication-id` of the link) to name each message by queue, epoch and
sequence; the ledger notes these ids as they are handed out, and again once their ack is written.
One thread; Proton is not thread safe and neither is this.
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
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT
from understudy.shared.amqp10.addresses import of_queue, parse
from understudy.shared.amqp10.conditions import DELETED, Fault
from understudy.shared.amqp10.sections import Properties


@dataclass(slots=True, frozen=True, eq=False)
class Delivery:
    """One message as it arrived. `body` is bytes, or str where the publisher named a content encoding that is
    one of text; of other AMQP 1.0 clients it may be any value.
    """

    body: Any
    properties: Properties
    headers: Mapping[str, Any]
    """AMQP's application properties; the headers of a message that was published over 0-9-1."""
    annotations: Mapping[Any, Any]
    redelivered: bool
    exchange: str
    routing_key: str
    tag: int
    session: int
    """Number of the connection it came by; acks for an earlier one are pointless and ignored."""
    id: ReplicationId | None
    """None from a broker that does not give ids."""


class Consumer(ConsumerBase[Delivery]):
    """Consumes one queue over a list of brokers.

    Connects when first needed. Messages are acked in the order in which they were handed out. Whatever
    connects, such as `receive`, raises Refused for a queue that is not there or not for us.

    Each method that is called says and hears the signs of life that are due. Who works on one message for
    longer than the broker's `broker.heartbeat` calls `flush` meanwhile, more often than that; else the broker
    ends the connection, and all that was not acked comes again.
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
        **connection: Any,
    ) -> None:
        """`queue`: its name, or its address `/queues/NAME`. `connection`: user, password, virtual_host,
        retry, connect_timeout, heartbeat, tls as `Failover` takes them.

        `ledger_heartbeat`: seconds that the ledger is silent at most while deliveries are asked for.
        `prefetch`: messages that are not acked, at most; no less than `ack_every`, else the broker would wait
        for acks that wait for deliveries. It is given as credit, anew with each batch of acks.
        """
        if prefetch < max(1, ack_every):
            raise ValueError("prefetch must be at least ack_every")
        super().__init__(
            Failover(addresses, **connection), _queue_of(queue), name, ledger_dir,
            prefetch=prefetch, ack_every=ack_every, ack_interval=ack_interval, given_up=given_up,
            ledger_heartbeat=ledger_heartbeat,
        )  # fmt: skip
        self._patience = connection.get("connect_timeout", CONNECT_TIMEOUT)
        self._attached = False
        self._last_tag = 0
        self._unsettled: OrderedDict[int, tuple[Delivery, Transfer]] = OrderedDict()
        """By tag, in order: what has come, and of which the caller has said nothing."""
        self._accepted: list[Transfer] = []
        """Of what is acked with the next batch."""

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
        link.properties = {symbol(ID_HEADER): True}
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

    # -- what the broker says ------------------------------------------------------------------------------

    def _serve(self, kind: EventType, what: Any) -> bool:
        if kind is Event.DELIVERY:
            return self._transfer(what)
        if kind is Event.LINK_REMOTE_OPEN:
            self._attached = what.remote_source.type == Terminus.SOURCE  # else a detach says why not
        elif kind is not Event.LINK_FLOW and not what.state & Endpoint.LOCAL_CLOSED:
            condition = what.remote_condition
            self._gone = self._attached and condition is not None and condition.name == DELETED
            if self._gone:  # nothing can be said of its messages any more
                self._unsettled.clear()
                self._accepted.clear()
                self._handled.clear()
            else:
                name, why = reason(condition)
                raise Refused(name, f"consuming from queue {self.queue!r}: {why}")
            return True
        return False

    def _transfer(self, transfer: Transfer) -> bool:
        """One that has come whole is kept until it is asked for."""
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
        """Say what became of them, and ask for as many more."""
        for transfer in transfers:
            transfer.update(state)
            transfer.settle()
        self._source.flow(len(transfers))
        wire = self.failover.wire
        if wire is not None:
            wire.send()


def _queue_of(text: str) -> str:
    """The name of the queue. Raises ValueError for what is none."""
    try:
        queue = parse(text).queue
    except Fault as fault:
        raise ValueError(fault.text) from None
    if queue is None:
        raise ValueError(f"{text!r} is an exchange; messages are consumed from a queue")
    return queue
