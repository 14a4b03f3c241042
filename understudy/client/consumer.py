"""A consumer that follows its queue to the broker that serves, acks in batches, and keeps a ledger.

When a connection is lost, the next broker redelivers the messages that were handed out and not acked, flagged
`redelivered` and with the same replication id. The consumer drops deliveries that had arrived but were not
handed out: the application has not seen them.

The consumer argument `x-replication-id` asks the broker to identify each message by queue, epoch and
sequence. The ledger records these ids when messages are handed out, and again when their ack is written. One
thread only: like py-amqp, this class is not thread safe.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from understudy.client.brokers import Addresses
from understudy.client.consuming import ACK_EVERY, ACK_INTERVAL, PREFETCH, ConsumerBase
from understudy.client.failover import LOST, Failover, declare_all
from understudy.client.ledgers import ID_HEADER, ReplicationId, parse_replication_id
from understudy.client.once import asked_of_brokers
from understudy.client.processed import Processed
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT


@dataclass(slots=True, frozen=True, eq=False)
class Delivery:
    """One message as it arrived.

    `body` is bytes, or str if the publisher named a text encoding as the content encoding. A timestamp in
    `headers` is a `datetime`; after the year 9999 it is an int, in seconds since 1970. A routing key or
    property that is not UTF-8 is bytes."""

    body: bytes | str
    properties: Mapping[str, Any]
    redelivered: bool
    exchange: str
    routing_key: str | bytes
    tag: int
    session: int
    """Number of the connection that carried it; acks for an earlier connection are ignored."""
    id: ReplicationId | None
    """None from a broker that does not support replication ids."""

    @property
    def headers(self) -> Mapping[str, Any]:
        headers: Mapping[str, Any] = self.properties.get("application_headers") or {}
        return headers


@lru_cache(maxsize=64)
def _nothing(encoding: Any) -> bytes | str:
    """An empty body of the right type, bytes or str; py-amqp always gives `""`."""
    try:
        return b"" if encoding is None else b" ".decode(encoding)[:0]
    except (LookupError, ValueError, TypeError):
        return b""


class Consumer(ConsumerBase[Delivery]):
    """Consumes one queue over a list of brokers.

    `declare`: kombu queues and exchanges to declare on each new connection, before consuming. The consumer
    connects when first needed. Messages are acked in the order in which they were handed out.

    Each method call also sends and checks heartbeats. An application that works on one message for longer
    than the heartbeat must call `flush` meanwhile, more often than that. Otherwise the broker ends the
    connection, and redelivers all messages that are not acked. `heartbeat=0` disables heartbeats.
    """

    failover: Failover
    _lost = LOST

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
        exactly_once: bool = False,
        confirmed_only: bool = False,
        processed: str | os.PathLike[str] | Processed | None = None,
        **connection: Any,
    ) -> None:
        """`connection`: user, password, virtual_host, retry, connect_timeout, heartbeat and tls, as for
        `Failover`.

        `ledger_heartbeat`: longest silence of the ledger, in seconds, while the application asks for
        deliveries. `prefetch` must be at least `ack_every`. Otherwise the broker would wait for acks, and the
        acks for deliveries.

        `exactly_once`: skip messages that were processed before. `processed` remembers them: a file, which is
        `NAME.processed.db` in `ledger_dir` by default, or a `Processed`, such as an `OwnTransaction`.

        `confirmed_only`: a message comes once its confirm could leave, so that no failover gives it another
        id. `exactly_once` includes it.
        """
        if prefetch and prefetch < ack_every:
            raise ValueError("prefetch must be 0 or at least ack_every")
        super().__init__(
            Failover(addresses, **connection), queue, name, ledger_dir,
            prefetch=prefetch, ack_every=ack_every, ack_interval=ack_interval, given_up=given_up,
            ledger_heartbeat=ledger_heartbeat, exactly_once=exactly_once, processed=processed,
        )  # fmt: skip
        self._confirmed_only = exactly_once or confirmed_only
        self._declare = tuple(declare)
        self._unsettled: OrderedDict[int, Delivery] = OrderedDict()
        """Deliveries by tag, in order, that are neither acked nor rejected."""

    # -- connection ----------------------------------------------------------------------------------------

    def _begin(self, deadline: float | None) -> Any:
        channel = self.failover.connect(
            {"connection_name": self.name}, deadline=deadline, given_up=self._is_given_up
        )
        declare_all(self._declare, channel)
        if self._prefetch:
            channel.basic_qos(0, self._prefetch, False)
        channel.basic_consume(
            self.queue, callback=self._delivered, on_cancel=self._on_cancel,
            arguments=dict.fromkeys(asked_of_brokers(confirmed_only=self._confirmed_only), True),
        )  # fmt: skip
        return channel

    def _wait_for_input(self, timeout: float) -> None:
        self.failover.wait(timeout, self._pulse, limit=self._prefetch or 1000)

    def _stay_alive(self) -> None:
        try:
            self.failover.beat()
        except self._lost:
            self._lose()
        except BaseException:  # the frame may be incomplete: do not use the connection again
            self._lose()
            raise

    def _forget(self) -> None:
        super()._forget()
        self._unsettled.clear()

    # -- input from the broker -----------------------------------------------------------------------------

    def _delivered(self, message: Any) -> None:
        info = message.delivery_info
        properties = message.properties
        headers = properties.get("application_headers")
        delivery = Delivery(
            message.body or _nothing(properties.get("content_encoding")),
            properties,
            bool(info["redelivered"]),
            info["exchange"],
            info["routing_key"] if message.octets_of_key is None else message.octets_of_key,
            info["delivery_tag"],
            self.failover.connects,
            parse_replication_id(headers.get(ID_HEADER)) if headers else None,
        )
        self._unsettled[delivery.tag] = delivery
        self._arrived.append(delivery)
        self.failover.serving()

    def _on_cancel(self, _tag: str) -> None:
        self._gone = True

    # -- acks ----------------------------------------------------------------------------------------------

    def _is_done_with(self, delivery: Delivery) -> bool:
        return delivery.tag not in self._unsettled

    def _covered(self, delivery: Delivery) -> Sequence[Delivery]:
        covered: list[Delivery] = []
        while self._unsettled:
            tag, each = self._unsettled.popitem(last=False)
            covered.append(each)
            if tag == delivery.tag:
                break
        return covered

    def _say_acks(self, handled: Sequence[Delivery]) -> None:
        self._source.basic_ack(handled[-1].tag, multiple=True)

    def _say_rejected(self, delivery: Delivery, requeue: bool) -> None:
        del self._unsettled[delivery.tag]
        self._source.basic_reject(delivery.tag, requeue)
