"""A consumer, independent of the protocol: it hands out messages, and acks them in batches.

It reconnects after a loss, and keeps a ledger. With `exactly_once`, it skips what was
processed before (`once`).

Role: the base of both kits' `Consumer`. The subclass opens the connection and sends the acks. Owner: the
application, on one thread.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from understudy.client import forks
from understudy.client.brokers import Brokers, TimeUp
from understudy.client.ledgers import Pulse, ReceivedLedger, ReplicationId, new_incarnation, open_ledger
from understudy.client.once import once_of
from understudy.client.processed import Processed

PREFETCH = 200
ACK_EVERY = 50
"""Most messages that one ack covers."""
ACK_INTERVAL = 0.05
"""Most seconds between a handled message and its ack, while the application asks for deliveries."""


class QueueGone(Exception):
    """The broker cancelled the consumer: the queue was deleted."""


@dataclass(slots=True)
class ConsumerCounts:
    received: int = 0
    """Handed to the caller."""
    redelivered: int = 0
    """The part of `received` that is flagged as possibly delivered before."""
    acked: int = 0
    skipped: int = 0
    """Acked, but not handed to the caller: processed before. With `exactly_once` only."""


class AnyDelivery(Protocol):
    """The common part of both kits' deliveries."""

    @property
    def redelivered(self) -> bool: ...

    @property
    def tag(self) -> int: ...

    @property
    def session(self) -> int: ...

    @property
    def id(self) -> ReplicationId | None: ...


DeliveryT = TypeVar("DeliveryT", bound=AnyDelivery)


class ConsumerBase(ABC, Generic[DeliveryT]):
    """Each kit implements the abstract methods, and appends arriving deliveries to `_arrived`."""

    failover: Brokers
    _lost: ClassVar[type[Exception] | tuple[type[Exception], ...]]
    """Exceptions that mean a lost connection."""

    def __init__(
        self,
        failover: Brokers,
        queue: str,
        name: str,
        ledger_dir: str | os.PathLike[str] | None,
        *,
        prefetch: int,
        ack_every: int,
        ack_interval: float,
        given_up: Callable[[], bool],
        ledger_heartbeat: float,
        exactly_once: bool,
        processed: str | os.PathLike[str] | Processed | None,
    ) -> None:
        self.name = name
        self.queue = queue
        self.counts = ConsumerCounts()
        self.failover = failover
        self._prefetch = prefetch
        self._ack_every = ack_every
        self._ack_interval = ack_interval
        self._given_up = given_up
        ledger = open_ledger(ledger_dir, name, "consumer", new_incarnation())
        try:
            self._once = once_of(exactly_once, processed, ledger_dir, name)
        except BaseException:
            if ledger is not None:
                ledger.close()
            raise
        self._ledger = ReceivedLedger(ledger, failover.title(queue))
        self._pulse = Pulse(ledger, ledger_heartbeat)
        self._source: Any = None
        """The channel or link that carries deliveries; None without a connection."""
        self._arrived: deque[DeliveryT] = deque()
        """Deliveries that are not handed out yet."""
        self._handled: list[DeliveryT] = []
        """Deliveries that the next batch acks."""
        self._handled_at = 0.0
        self._ledger_at = 0.0
        self._gone = False
        """Whether the broker reported that the queue was deleted."""
        self._closed = False
        self._abandoned = False
        forks.mind(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_rest: object) -> None:
        self.close()

    def connect(self, timeout: float | None = None) -> None:
        """Connect now rather than at the first `receive`. Raises ConnectFailed after `timeout` seconds."""
        self._ready(None if timeout is None else time.monotonic() + timeout)

    def deliveries(
        self, *, until: Callable[[], bool] = lambda: False, poll: float = 0.2
    ) -> Iterator[DeliveryT]:
        """Iterate over messages; each is acked (in a batch) once the caller asks for the next one.

        Ends when `until()` returns True, or the consumer is closed. `until` is called before each message,
        and at least every `poll` seconds.
        """
        while not self._closed and not until():
            delivery = self.receive(poll)
            if delivery is not None:
                yield delivery
                self.ack(delivery)

    def receive(self, timeout: float = 0.0) -> DeliveryT | None:
        """The next message. Waits up to `timeout` seconds; returns None if no message came or no broker
        serves.

        A connection attempt that has begun is finished, within `connect_timeout`. Raises QueueGone. With
        `exactly_once`, the last message must be acked or rejected, and RuntimeError is raised otherwise.
        """
        if self._once is not None:
            self._once.expect_none()
        until = time.monotonic() + timeout
        while self._look(timeout):
            try:
                delivery = self._take()
                if delivery is not None:
                    return delivery
            except BaseException:  # the caller has not seen it: a later ack must not cover it
                self._undo()
                raise
            timeout = max(0.0, until - time.monotonic())
        if self._gone:
            raise QueueGone(f"queue {self.queue!r} was deleted")
        return None

    def _look(self, timeout: float) -> bool:
        """Whether a message has arrived. Waits for one, and sees to heartbeats, acks and the ledger."""
        if not self._arrived:
            self._wait(timeout)
        else:
            self._stay_alive()
            if self._handled:
                self._ack_if_due()
            self._write_ledger_if_due()
        return bool(self._arrived)

    def _take(self) -> DeliveryT | None:
        """The message that arrived first, which the application has in hand now; None if it is skipped."""
        delivery = self._arrived.popleft()
        if self._once is not None and self._once.skips(delivery):
            self.counts.skipped += 1
            self._handle(delivery)
            return None
        self.counts.received += 1
        self.counts.redelivered += delivery.redelivered
        self._ledger.received(delivery.id, delivery.redelivered)
        return delivery

    def _undo(self) -> None:
        """The message in hand, if any, is not processed: it comes again."""
        try:
            self._lose()
        finally:
            if self._once is not None:
                self._once.undo()

    def ack(self, delivery: DeliveryT) -> None:
        """Ack `delivery` and all deliveries handed out before it. Acks are sent in batches; see `flush`.

        Does nothing for a delivery that is already acked or rejected. With `exactly_once`, remembers that it
        is processed, also after its connection is lost; raises NotExactlyOnce, or the error of the database,
        if that fails. The message then comes again.
        """
        self._refuse_if_abandoned()
        if self._once is not None and not self._remember(delivery):
            return
        if self._is_settled(delivery):
            return
        self._handle(delivery)
        self._stay_alive()

    def _remember(self, delivery: DeliveryT) -> bool:
        """Whether the delivery was in hand. It is processed from now on."""
        once = self._once
        assert once is not None
        try:
            done = once.done(delivery)
        except BaseException:  # processed or not, as the memory says when it comes again
            self._undo()
            raise
        self.counts.skipped += done is False
        return done is not None

    def _handle(self, delivery: DeliveryT) -> None:
        """Ack it, and all deliveries before it, with the next batch."""
        if not self._handled:
            self._handled_at = time.monotonic()
        try:
            self._handled.extend(self._covered(delivery))
        except BaseException:  # part of it may be forgotten, and not yet noted as handled
            self._lose()
            raise
        if len(self._handled) >= self._ack_every:
            self._send_ack()

    def reject(self, delivery: DeliveryT, *, requeue: bool) -> None:
        """Give one message back to the queue (`requeue`), or reject it for good. Sends pending acks first.

        With `exactly_once`, rolls the application's own transaction back."""
        self._refuse_if_abandoned()
        if self._once is not None and self._once.in_hand is delivery:
            self._once.undo()
        if self._is_settled(delivery):
            return
        self._send_ack()
        try:
            if self._source is not None:
                self._say_rejected(delivery, requeue)
        except self._lost:
            self._lose()
        except BaseException:  # the frame may be incomplete: do not use the connection again
            self._lose()
            raise

    def flush(self) -> None:
        """Send all pending acks, and write the ledger."""
        self._send_ack()
        self._ledger.write()
        self._stay_alive()

    def close(self) -> None:
        """Send pending acks, close, and seal the ledger. The broker redelivers messages that were handed out
        and not acked.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._send_ack()
            self._forget()
            self.failover.close()
        finally:
            try:
                self._ledger.close()
            finally:
                if self._once is not None:
                    self._once.close()

    def abandon(self) -> None:
        """Called in each forked child: connection, ledger and deliveries belong to the parent.

        Methods that connect, receive, ack or reject raise RuntimeError in the child.
        """
        self._abandoned = True
        self._forget()
        self._ledger.abandon()
        self.failover.abandon()
        if self._once is not None:
            self._once.abandon()

    # -- implemented by each kit ---------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, deadline: float | None) -> Any:
        """Connect and start consuming; returns the channel or link. `deadline` is a time of `time.monotonic`.
        Raises `_lost`, ConnectFailed, and errors that no retry can cure."""

    @abstractmethod
    def _wait_for_input(self, timeout: float) -> None:
        """Handle input that arrives within `timeout` seconds. Raises `_lost`."""

    @abstractmethod
    def _is_done_with(self, delivery: DeliveryT) -> bool:
        """Whether `delivery`, which came by the current connection, is acked or rejected."""

    @abstractmethod
    def _covered(self, delivery: DeliveryT) -> Sequence[DeliveryT]:
        """Mark all deliveries that an ack of `delivery` covers as done, and return them."""

    @abstractmethod
    def _say_acks(self, handled: Sequence[DeliveryT]) -> None:
        """Send acks for the deliveries that `_covered` returned. Raises `_lost`."""

    @abstractmethod
    def _say_rejected(self, delivery: DeliveryT, requeue: bool) -> None:
        """Mark `delivery` as done, and send its rejection. Raises `_lost`."""

    def _stay_alive(self) -> None:
        """Send and check the heartbeats that are due, even while the caller works on earlier deliveries."""

    def _forget(self) -> None:
        """Forget the connection and its deliveries. Each kit also clears its own state."""
        self._source = None
        self._gone = False
        self._arrived.clear()
        self._handled.clear()

    # -- connection ----------------------------------------------------------------------------------------

    def _ready(self, deadline: float | None) -> None:
        if self._closed:
            raise RuntimeError("the consumer is closed")
        self._refuse_if_abandoned()
        while self._source is None:
            try:
                self._source = self._begin(deadline)
            except self._lost:
                self._lose()
            except BaseException:
                self._lose()
                raise

    def _is_given_up(self) -> bool:
        self._pulse.beat()
        return self._given_up()

    def _lose(self) -> None:
        """Drop the connection and all deliveries that are not acked."""
        self._forget()
        self.failover.drop()
        self._ledger.write()

    def _wait(self, timeout: float) -> None:
        self._ack_if_due(idle=timeout > self._ack_interval)
        self._write_ledger_if_due()
        until = time.monotonic() + timeout
        try:
            self._ready(until)
            self._wait_for_input(max(0.0, until - time.monotonic()))
        except TimeUp:
            pass  # no broker serves
        except self._lost:
            self._lose()
        except BaseException:
            self._lose()
            raise

    def _refuse_if_abandoned(self) -> None:
        if self._abandoned:
            raise RuntimeError(f"the consumer {forks.REFUSAL}")

    # -- acks ----------------------------------------------------------------------------------------------

    def _is_settled(self, delivery: DeliveryT) -> bool:
        """Whether no ack or reject can be sent: already done with, or of an earlier connection."""
        self._refuse_if_abandoned()
        return (
            delivery.session != self.failover.connects or self._source is None or self._is_done_with(delivery)
        )

    def _ack_if_due(self, *, idle: bool = False) -> None:
        if self._handled and (idle or time.monotonic() - self._handled_at >= self._ack_interval):
            self._send_ack()

    def _send_ack(self) -> None:
        handled, self._handled = self._handled, []
        if not handled or self._source is None:
            return
        try:
            if self._once is not None:
                self._once.flush()
            self._say_acks(handled)
        except self._lost:
            self._lose()
            return
        except BaseException:
            self._lose()
            raise
        self.counts.acked += len(handled)
        for delivery in handled:
            self._ledger.acked(delivery.id)

    # -- the ledger ------------------------------------------------------------------------------------------

    def _write_ledger_if_due(self) -> None:
        now = time.monotonic()
        if now - self._ledger_at >= self._ack_interval:
            self._ledger_at = now
            self._ledger.write()
            self._pulse.beat()
