"""RabbitMQ's counters of the whole node: those of closed connections and deleted queues are in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from broker.model.statistics import PROTOCOLS, Churn, Counts
from understudy.http.metrics.exposition import Family, labels_of
from understudy.http.metrics.node_rows import Sample

if TYPE_CHECKING:
    from broker.engine import Broker
    from broker.security.logins import Attempts

_DEATHS = ("expired", "rejected", "maxlen", "delivery_limit")
TYPE = "rabbit_classic_queue"
"""The label `queue_type`: this broker has one type of queues, which answers to RabbitMQ's classic one."""


class _Counter(NamedTuple):
    """`name`: without `global_messages_` and `_total`."""

    name: str
    text: str
    read: Callable[[Counts], int]


_OF_PUBLISHERS = (
    _Counter("received", "Messages from publishers", lambda c: c.publish),
    _Counter("received_confirm", "Those that want a confirm", lambda c: c.publish_confirm),
    _Counter("routed", "Copies that went into queues", lambda c: c.routed),
    _Counter("unroutable_dropped", "Messages that reached no queue", lambda c: c.drop_unroutable),
    _Counter("unroutable_returned", "Mandatory ones that went back", lambda c: c.return_unroutable),
    _Counter("confirmed", "Confirms to publishers", lambda c: c.confirm),
)
_OF_QUEUES = (
    _Counter(
        "delivered", "Messages to clients", lambda c: c.deliver + c.deliver_no_ack + c.get + c.get_no_ack
    ),
    _Counter("delivered_consume_manual_ack", "To consumers that ack", lambda c: c.deliver),
    _Counter("delivered_consume_auto_ack", "To consumers that do not ack", lambda c: c.deliver_no_ack),
    _Counter("delivered_get_manual_ack", "By basic.get, with an ack", lambda c: c.get),
    _Counter("delivered_get_auto_ack", "By basic.get, without an ack", lambda c: c.get_no_ack),
    _Counter("get_empty", "Answers to basic.get that there is no message", lambda c: c.get_empty),
    _Counter("redelivered", "Messages that had been sent before", lambda c: c.redeliver),
    _Counter("acknowledged", "Acks of clients", lambda c: c.ack),
)
_MESSAGES: tuple[tuple[tuple[_Counter, ...], dict[str, str]], ...] = (
    (_OF_PUBLISHERS, {}),
    (_OF_QUEUES, {"queue_type": TYPE}),
)
"""With their further labels."""
_CHURN: tuple[tuple[str, str, Callable[[Churn], int]], ...] = (
    ("connections_opened", "Connections that were opened", lambda c: c.connection_created),
    ("connections_closed", "Connections that were closed", lambda c: c.connection_closed),
    ("channels_opened", "Channels that were opened", lambda c: c.channel_created),
    ("channels_closed", "Channels that were closed", lambda c: c.channel_closed),
    ("queues_declared", "Declarations of queues", lambda c: c.queue_declared),
    ("queues_created", "Queues that were created", lambda c: c.queue_created),
    ("queues_deleted", "Queues that were deleted", lambda c: c.queue_deleted),
)
_LOGINS: tuple[tuple[str, str, Callable[[Attempts], int]], ...] = (
    ("auth_attempts", "Logins", lambda a: a.succeeded + a.failed),
    ("auth_attempts_succeeded", "Logins that were let in", lambda a: a.succeeded),
    ("auth_attempts_failed", "Logins that were refused", lambda a: a.failed),
)


def messages(broker: Broker) -> Iterator[Sample]:
    """What happened to messages, since the start of the process."""
    totals = {name: broker.vhosts.totals(name) for name in PROTOCOLS}
    for of_some, more in _MESSAGES:
        for counter in of_some:
            family = _total(f"global_messages_{counter.name}", counter.text)
            for protocol, counts in totals.items():
                yield Sample(family, labels_of({"protocol": protocol, **more}), counter.read(counts))
    how = labels_of({"queue_type": TYPE, "dead_letter_strategy": "at_least_once"})
    for reason in _DEATHS:
        family = _total(f"global_messages_dead_lettered_{reason}", f"Dead letters, by the reason {reason}")
        yield Sample(family, how, broker.vhosts.removals.dead_lettered.get(reason, 0))


def churn(broker: Broker) -> Iterator[Sample]:
    """What came and went, since the start of the process."""
    for name, text, read in _CHURN:
        yield Sample(_total(name, text), "", read(broker.vhosts.churn))


def logins(broker: Broker) -> Iterator[Sample]:
    for name, text, read in _LOGINS:
        for protocol, attempts in sorted(broker.logins.attempts.items()):
            yield Sample(_total(name, text), labels_of({"protocol": protocol}), read(attempts))


def _total(name: str, text: str) -> Family:
    return Family(f"{name}_total", "counter", text)
