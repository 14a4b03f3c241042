"""A consumer that follows its queue to whichever broker serves, acks in batches, and keeps a ledger.

What was handed to the caller and not acked when a connection is lost comes again from the next broker,
flagged `redelivered` and with the same replication id. Deliveries that had arrived but were not handed out
yet are dropped with the connection: nobody has seen them.

The broker is asked (consumer argument `x-replication-id`) to name each message by queue, epoch and sequence;
the ledger notes these ids as they are handed out, and again once their ack is written.
One thread; py-amqp is not thread safe and neither is this.
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
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT


@dataclass(slots=True, frozen=True, eq=False)
class Delivery:
    """One message as it arrived. `body` is bytes, or str where the publisher named a content encoding that is
    one of text. A timestamp in `headers` is a `datetime`, or an int, in seconds since 1970, where that is
    after the year 9999. A routing key or a property that is no UTF-8 is bytes."""

    body: bytes | str
    properties: Mapping[str, Any]
    redelivered: bool
    exchange: str
    routing_key: str | bytes
    tag: int
    session: int
    """Number of the connection it came by; acks for an earlier one are pointless and ignored."""
    id: ReplicationId | None
    """None from a broker that does not give ids."""

    @property
    def headers(self) -> Mapping[str, Any]:
        headers: Mapping[str, Any] = self.properties.get("application_headers") or {}
        return headers


@lru_cache(maxsize=64)
def _nothing(encoding: Any) -> bytes | str:
    """An empty body, for which py-amqp has `""`: of the type that another one would have."""
    try:
        return b"" if encoding is None else b" ".decode(encoding)[:0]
    except (LookupError, ValueError, TypeError):
        return b""


class Consumer(ConsumerBase[Delivery]):
    """Consumes one queue over a list of brokers.

    `declare`: kombu queues and exchanges declared on each new connection, before consuming. Connects when
    first needed. Messages are acked in the order in which they were handed out.

    Each method that is called says and hears the signs of life that are due. Who works on one message for
    longer than the heartbeat calls `flush` meanwhile, more often than that; else the broker ends the
    connection, and all that was not acked comes again. `heartbeat=0` does without.
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
        super().__init__(
            Failover(addresses, **connection), queue, name, ledger_dir,
            prefetch=prefetch, ack_every=ack_every, ack_interval=ack_interval, given_up=given_up,
            ledger_heartbeat=ledger_heartbeat,
        )  # fmt: skip
        self._declare = tuple(declare)
        self._unsettled: OrderedDict[int, Delivery] = OrderedDict()
        """By tag, in order: what has come, and of which the caller has said nothing."""

    # -- connection ----------------------------------------------------------------------------------------

    def _begin(self, deadline: float | None) -> Any:
        channel = self.failover.connect(
            {"connection_name": self.name}, deadline=deadline, given_up=self._is_given_up
        )
        declare_all(self._declare, channel)
        if self._prefetch:
            channel.basic_qos(0, self._prefetch, False)
        channel.basic_consume(
            self.queue, callback=self._delivered, on_cancel=self._on_cancel, arguments={ID_HEADER: True}
        )
        return channel

    def _wait_for_input(self, timeout: float) -> None:
        self.failover.wait(timeout, self._pulse, limit=self._prefetch or 1000)

    def _stay_alive(self) -> None:
        try:
            self.failover.beat()
        except self._lost:
            self._lose()
        except BaseException:  # a half-written frame: not to be used again
            self._lose()
            raise

    def _forget(self) -> None:
        super()._forget()
        self._unsettled.clear()

    # -- what the broker says ------------------------------------------------------------------------------

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
