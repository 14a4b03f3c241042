"""A consumer that follows its queue to whichever broker serves, acks in batches, and keeps books.

What was handed to the caller and not acked when a connection is lost comes again from the next broker,
flagged `redelivered` and with the same replication id. Deliveries that had arrived but were not handed out
yet are dropped with the connection: nobody has seen them.

The broker is asked (consumer argument `x-replication-id`) to name each message by queue, epoch and sequence;
the ledger notes these ids as they are handed out, and again once their ack is written.
One thread; py-amqp is not thread safe and neither is this.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from understudy.client.failover import (
    LOST,
    Addresses,
    Failover,
    Pulse,
    declare_all,
    new_incarnation,
    open_ledger,
)
from understudy.ledger.ranges import RangeGatherer
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT
from understudy.ledger.writer import wall_microseconds

PREFETCH = 200
ACK_EVERY = 50
"""Messages per ack, at most."""
ACK_INTERVAL = 0.05
"""Seconds that a handled message waits for its ack, at most, while deliveries are asked for."""
REJECTED = 64
"""Rejected messages that are remembered, so that an ack of one is known to be none."""
ID_HEADER = "x-replication-id"


class QueueGone(Exception):
    """The broker cancelled the consumer: the queue was deleted."""


class ReplicationId(NamedTuple):
    """Names a message for all time: the queue's UUID (32 hex digits), epoch and sequence."""

    queue: str
    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.queue}:{self.epoch}:{self.sequence}"


@dataclass(slots=True, frozen=True, eq=False)
class Delivery:
    """One message as it arrived. `body` is bytes, or str where the publisher named a content encoding."""

    body: bytes | str
    properties: Mapping[str, Any]
    redelivered: bool
    exchange: str
    routing_key: str
    tag: int
    session: int
    """Number of the connection it came by; acks for an earlier one are pointless and ignored."""
    id: ReplicationId | None
    """None from a broker that does not give ids."""

    @property
    def headers(self) -> Mapping[str, Any]:
        headers: Mapping[str, Any] = self.properties.get("application_headers") or {}
        return headers


@dataclass(slots=True)
class ConsumerCounts:
    received: int = 0
    """Handed to the caller."""
    redelivered: int = 0
    """Of these, flagged as perhaps delivered before."""
    acked: int = 0


def parse_replication_id(text: Any) -> ReplicationId | None:
    """`"<queue uuid hex>:<epoch>:<sequence>"`, or None if it is no such thing."""
    if not isinstance(text, str):
        return None
    parts = text.split(":")
    if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    return ReplicationId(parts[0], int(parts[1]), int(parts[2]))


class Consumer:
    """Consumes one queue over a list of brokers.

    `declare`: kombu queues and exchanges declared on each new connection, before consuming. Connects when
    first needed. Messages are acked in the order in which they were handed out.
    """

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
        declare: Iterable[Any] = (),
        given_up: Callable[[], bool] = lambda: False,
        ledger_heartbeat: float = LEDGER_HEARTBEAT,
        **connection: Any,
    ) -> None:
        """`connection`: user, password, virtual_host, retry, connect_timeout, heartbeat, tls as
        `Failover` takes them.

        `ledger_heartbeat`: seconds that the ledger is silent at most while deliveries are asked for.
        `prefetch` must be no less than `ack_every`, else the broker would wait for acks that wait for
        deliveries.
        """
        if prefetch and prefetch < ack_every:
            raise ValueError("prefetch must be 0 or at least ack_every")
        self.name = name
        self.queue = queue
        self.counts = ConsumerCounts()
        self.failover = Failover(addresses, **connection)
        self._prefetch = prefetch
        self._ack_every = ack_every
        self._ack_interval = ack_interval
        self._declare = tuple(declare)
        self._given_up = given_up
        self._ledger = open_ledger(ledger_dir, name, "consumer", new_incarnation())
        self._pulse = Pulse(self._ledger, ledger_heartbeat)
        self._named: set[str] = set()
        self._channel: Any = None
        self._arrived: deque[Delivery] = deque()
        self._handled: list[Delivery] = []
        self._handled_at = 0.0
        self._done_tag = 0
        """Highest tag that is acked, or will be with the next batch."""
        self._rejected: deque[int] = deque(maxlen=REJECTED)
        self._run: tuple[str, int, int, int, bool] | None = None
        self._run_at = 0
        """When the first of it was handed out, in microseconds since 1970."""
        self._acked: RangeGatherer[tuple[str, int]] = RangeGatherer()
        self._ledger_at = 0.0
        self._cancelled = False
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_rest: object) -> None:
        self.close()

    def connect(self, timeout: float | None = None) -> None:
        """Connect now rather than at the first `receive`. Raises ConnectFailed after `timeout` seconds."""
        self._ready(None if timeout is None else time.monotonic() + timeout)

    def deliveries(
        self, *, until: Callable[[], bool] = lambda: False, poll: float = 0.2
    ) -> Iterator[Delivery]:
        """Messages, one after another; each is acked (in a batch) once the next one is asked for.

        Ends when `until()` says so, asked at least every `poll` seconds and before each message.
        """
        while not until():
            delivery = self.receive(poll)
            if delivery is not None:
                yield delivery
                self.ack(delivery)

    def receive(self, timeout: float = 0.0) -> Delivery | None:
        """The next message, waiting up to `timeout` seconds; None if none came. Raises QueueGone."""
        if not self._arrived:
            self._wait(timeout)
        else:
            if self._handled:
                self._ack_if_due()
            self._write_ledger_if_due()
        if not self._arrived:
            if self._cancelled:
                raise QueueGone(f"queue {self.queue!r} was deleted")
            return None
        delivery = self._arrived.popleft()
        self.counts.received += 1
        self.counts.redelivered += delivery.redelivered
        self._note_received(delivery)
        return delivery

    def ack(self, delivery: Delivery) -> None:
        """`delivery`, and all handed out before it, are done with. Sent in batches; see `flush`.

        Of one that was rejected, or done with before, nothing more is said.
        """
        if self._is_settled(delivery):
            return
        self._done_tag = delivery.tag
        if not self._handled:
            self._handled_at = time.monotonic()
        self._handled.append(delivery)
        if len(self._handled) >= self._ack_every:
            self._send_ack()

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        """Give one message back (`requeue`), or away for good; whatever was acked before is sent first."""
        if self._is_settled(delivery):
            return
        self._rejected.append(delivery.tag)
        self._send_ack()
        try:
            if self._channel is not None:
                self._channel.basic_reject(delivery.tag, requeue)
        except LOST:
            self._lose()

    def _is_settled(self, delivery: Delivery) -> bool:
        if delivery.session != self.failover.connects or self._channel is None:
            return True
        return delivery.tag <= self._done_tag or delivery.tag in self._rejected

    def flush(self) -> None:
        """Write the acks that are due and the ledger."""
        self._send_ack()
        self._write_ledger()

    def close(self) -> None:
        """Ack what was handled, close, seal the ledger. What was handed out and not acked comes again to
        others.
        """
        if self._closed:
            return
        self._closed = True
        self._send_ack()
        self._arrived.clear()
        self.failover.close()
        self._channel = None
        self._write_ledger()
        if self._ledger is not None:
            self._ledger.close()

    # -- connection ----------------------------------------------------------------------------------------

    def _ready(self, deadline: float | None) -> None:
        while self._channel is None:
            try:
                self._begin(deadline)
            except LOST:
                self._lose()
            except BaseException:
                self._lose()
                raise

    def _is_given_up(self) -> bool:
        self._pulse.beat()
        return self._given_up()

    def _begin(self, deadline: float | None) -> None:
        channel = self.failover.connect(
            {"connection_name": self.name}, deadline=deadline, given_up=self._is_given_up
        )
        self._channel = channel
        declare_all(self._declare, channel)
        if self._prefetch:
            channel.basic_qos(0, self._prefetch, False)
        channel.basic_consume(
            self.queue, callback=self._delivered, on_cancel=self._on_cancel, arguments={ID_HEADER: True}
        )

    def _lose(self) -> None:
        """The connection is gone, and with it every delivery that is not acked."""
        self._channel = None
        self._arrived.clear()
        self._handled.clear()
        self._rejected.clear()
        self._done_tag = 0
        self.failover.drop()
        self._write_ledger()

    def _wait(self, timeout: float) -> None:
        self._ack_if_due(idle=timeout > self._ack_interval)
        self._write_ledger_if_due()
        try:
            self._ready(None)
            self.failover.wait(timeout, self._pulse, limit=self._prefetch or 1000)
        except LOST:
            self._lose()
        except BaseException:
            self._lose()
            raise

    def _delivered(self, message: Any) -> None:
        info = message.delivery_info
        properties = message.properties
        headers = properties.get("application_headers")
        self._arrived.append(
            Delivery(
                message.body,
                properties,
                bool(info["redelivered"]),
                info["exchange"],
                info["routing_key"],
                info["delivery_tag"],
                self.failover.connects,
                parse_replication_id(headers.get(ID_HEADER)) if headers else None,
            )
        )
        self.failover.serving()

    def _on_cancel(self, _tag: str) -> None:
        self._cancelled = True

    # -- acks ----------------------------------------------------------------------------------------------

    def _ack_if_due(self, *, idle: bool = False) -> None:
        if self._handled and (idle or time.monotonic() - self._handled_at >= self._ack_interval):
            self._send_ack()

    def _send_ack(self) -> None:
        handled, self._handled = self._handled, []
        if not handled or self._channel is None:
            return
        try:
            self._channel.basic_ack(handled[-1].tag, multiple=True)
        except LOST:
            self._lose()
            return
        self.counts.acked += len(handled)
        for delivery in handled:
            if delivery.id is not None:
                self._acked.add((delivery.id.queue, delivery.id.epoch), delivery.id.sequence)

    # -- the books -----------------------------------------------------------------------------------------

    def _note_received(self, delivery: Delivery) -> None:
        """In arrival order, adjacent ids joined: so that order and repetition stay visible."""
        if self._ledger is None or delivery.id is None:
            return
        queue, epoch, sequence = delivery.id
        run = self._run
        if run is not None:
            if (
                sequence == run[3] + 1
                and epoch == run[1]
                and queue == run[0]
                and delivery.redelivered == run[4]
            ):
                self._run = (queue, epoch, run[2], sequence, run[4])
                return
            self._end_run()
        self._run = (queue, epoch, sequence, sequence, delivery.redelivered)
        self._run_at = wall_microseconds()

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is None or self._ledger is None:
            return
        queue, epoch, first, last, redelivered = run
        if queue not in self._named:
            self._named.add(queue)
            self._ledger.record("definition", queue=queue, name=self.failover.title(self.queue))
        self._ledger.record(
            "received",
            queue=queue,
            epoch=epoch,
            first=first,
            last=last,
            reason="redelivered" if redelivered else None,
            at=self._run_at,
        )

    def _write_ledger_if_due(self) -> None:
        now = time.monotonic()
        if now - self._ledger_at >= self._ack_interval:
            self._ledger_at = now
            self._write_ledger()
            self._pulse.beat()

    def _write_ledger(self) -> None:
        if self._ledger is None:
            return
        self._end_run()
        for (queue, epoch), first, last in self._acked.drain():
            self._ledger.record("acked", queue=queue, epoch=epoch, first=first, last=last)
        self._ledger.flush()
