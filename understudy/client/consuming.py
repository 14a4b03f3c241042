"""What a consumer does in any protocol: hands out what has arrived, acks in batches, comes back after a loss,
and keeps a ledger.

Role: the base of both kits' `Consumer`, which knows how a connection begins and how an ack is said on it.
Owner: the application, on one thread.
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

PREFETCH = 200
ACK_EVERY = 50
"""Messages per ack, at most."""
ACK_INTERVAL = 0.05
"""Seconds that a handled message waits for its ack, at most, while deliveries are asked for."""


class QueueGone(Exception):
    """The broker cancelled the consumer: the queue was deleted."""


@dataclass(slots=True)
class ConsumerCounts:
    received: int = 0
    """Handed to the caller."""
    redelivered: int = 0
    """Of these, flagged as perhaps delivered before."""
    acked: int = 0


class AnyDelivery(Protocol):
    """What both kits' deliveries have in common."""

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
    """Each kit gives what is abstract here, and puts into `_arrived` what comes."""

    failover: Brokers
    _lost: ClassVar[type[Exception] | tuple[type[Exception], ...]]
    """What is raised when a connection is gone."""

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
        self._ledger = ReceivedLedger(ledger, failover.title(queue))
        self._pulse = Pulse(ledger, ledger_heartbeat)
        self._source: Any = None
        """What deliveries come by, a channel or a link; None without a connection."""
        self._arrived: deque[DeliveryT] = deque()
        """What nobody has asked for yet."""
        self._handled: list[DeliveryT] = []
        """What is acked with the next batch."""
        self._handled_at = 0.0
        self._ledger_at = 0.0
        self._gone = False
        """Does the broker say that the queue was deleted?"""
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
        """Messages, one after another; each is acked (in a batch) once the next one is asked for.

        Ends when `until()` says so, asked at least every `poll` seconds and before each message, and once the
        consumer is closed.
        """
        while not self._closed and not until():
            delivery = self.receive(poll)
            if delivery is not None:
                yield delivery
                self.ack(delivery)

    def receive(self, timeout: float = 0.0) -> DeliveryT | None:
        """The next message, waiting up to `timeout` seconds; None if none came, or no broker serves. A try to
        connect that has begun is finished, within `connect_timeout`. Raises QueueGone.
        """
        if not self._arrived:
            self._wait(timeout)
        else:
            self._stay_alive()
            if self._handled:
                self._ack_if_due()
            self._write_ledger_if_due()
        if not self._arrived:
            if self._gone:
                raise QueueGone(f"queue {self.queue!r} was deleted")
            return None
        try:
            delivery = self._arrived.popleft()
            self.counts.received += 1
            self.counts.redelivered += delivery.redelivered
            self._ledger.received(delivery.id, delivery.redelivered)
            return delivery
        except BaseException:  # nobody has seen it: an ack of the next one is not to cover it
            self._lose()
            raise

    def ack(self, delivery: DeliveryT) -> None:
        """`delivery`, and all handed out before it, are done with. Sent in batches; see `flush`.

        Of one that was rejected, or done with before, nothing more is said.
        """
        if self._is_settled(delivery):
            return
        if not self._handled:
            self._handled_at = time.monotonic()
        try:
            self._handled.extend(self._covered(delivery))
        except BaseException:  # some of it is forgotten, and not handled
            self._lose()
            raise
        if len(self._handled) >= self._ack_every:
            self._send_ack()
        self._stay_alive()

    def reject(self, delivery: DeliveryT, *, requeue: bool) -> None:
        """Give one message back (`requeue`), or away for good; whatever was acked before is sent first."""
        if self._is_settled(delivery):
            return
        self._send_ack()
        try:
            if self._source is not None:
                self._say_rejected(delivery, requeue)
        except self._lost:
            self._lose()
        except BaseException:  # a half-written frame: not to be used again
            self._lose()
            raise

    def flush(self) -> None:
        """Write the acks that are due and the ledger."""
        self._send_ack()
        self._ledger.write()
        self._stay_alive()

    def close(self) -> None:
        """Ack what was handled, close, seal the ledger. What was handed out and not acked comes again to
        others.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._send_ack()
            self._forget()
            self.failover.close()
        finally:
            self._ledger.close()

    def abandon(self) -> None:
        """Called in each child of a fork: connection, ledger and deliveries are the parent's. What would
        connect, receive, ack or reject there raises RuntimeError.
        """
        self._abandoned = True
        self._forget()
        self._ledger.abandon()
        self.failover.abandon()

    # -- what each kit gives -------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, deadline: float | None) -> Any:
        """Connect and consume; what deliveries come by. `deadline` is on the clock of `time.monotonic`;
        raises `_lost`, ConnectFailed, and what will not heal."""

    @abstractmethod
    def _wait_for_input(self, timeout: float) -> None:
        """Let come what comes within `timeout` seconds. Raises `_lost`."""

    @abstractmethod
    def _is_done_with(self, delivery: DeliveryT) -> bool:
        """Was it acked or rejected? It came by the connection that there is."""

    @abstractmethod
    def _covered(self, delivery: DeliveryT) -> Sequence[DeliveryT]:
        """What an ack of `delivery` is noted for; all of it is done with."""

    @abstractmethod
    def _say_acks(self, handled: Sequence[DeliveryT]) -> None:
        """Ack what `_covered` gave, and all before it. Raises `_lost`."""

    @abstractmethod
    def _say_rejected(self, delivery: DeliveryT, requeue: bool) -> None:
        """It is done with. Raises `_lost`."""

    def _stay_alive(self) -> None:
        """Say and hear the signs of life that are due, however long the caller works on what has come."""

    def _forget(self) -> None:
        """Of the connection, and of all that came by it. A kit forgets what it has of its own, too."""
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
        """The connection is gone, and with it every delivery that is not acked."""
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
        """Also one that is of an earlier connection: nothing can be said of it any more."""
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
