"""Exchanges and bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from broker.model.queue.queue import Queue
from broker.model.routing.exchange import Binding, Exchange
from ha.adapter.management.definitions_view import key_to_json, to_json
from ha.adapter.management.operations.binding_key import percent, properties_key
from ha.adapter.management.views.flows import incoming_of_exchange, outgoing_of_exchange
from ha.adapter.management.views.queues import listed
from ha.adapter.management.views.rates import exchange_stats
from ha.adapter.management.views.view import ABSENT, Column, Table, View

_EXCHANGE: dict[str, Column[Exchange]] = {
    "arguments": lambda exchange, view: to_json(exchange.arguments),
    "auto_delete": lambda exchange, view: exchange.auto_delete,
    "durable": lambda exchange, view: exchange.durable,
    "internal": lambda exchange, view: exchange.internal,
    "message_stats": lambda exchange, view: (
        exchange_stats(exchange.counts, view) if exchange.counts.publish or exchange.counts.routed else ABSENT
    ),
    "messages_delayed": lambda exchange, view: (
        view.node.vhosts[exchange.vhost].delayed(exchange) if exchange.delays else ABSENT
    ),
    "name": lambda exchange, view: exchange.name,
    "policy": lambda exchange, view: ABSENT if exchange.ruled_by is None else exchange.ruled_by.name,
    "type": lambda exchange, view: exchange.type.value,
    "user_who_performed_action": lambda exchange, view: "",
    "vhost": lambda exchange, view: exchange.vhost,
}

EXCHANGES: Table[Exchange] = Table(
    items=lambda view: (x for vhost in list(view.node.vhosts) for x in list(vhost.exchanges.values())),
    vhost=lambda exchange: exchange.vhost,
    owner=None,
    columns=_EXCHANGE,
    details={"incoming": incoming_of_exchange, "outgoing": outgoing_of_exchange},
    plain=("arguments", "auto_delete", "durable", "internal", "name", "policy", "type", "vhost"),
)


class Bound(NamedTuple):
    """A binding as RabbitMQ tells it. Those of the default exchange are in no model: `binding` is None, and
    the queue is bound by its name."""

    binding: Binding | None
    queue: Queue | None = None

    @property
    def vhost(self) -> str:
        if self.binding is not None:
            return self.binding.source.vhost
        return self.queue.vhost if self.queue is not None else ""

    @property
    def source(self) -> str:
        return "" if self.binding is None else self.binding.source.name

    @property
    def destination(self) -> str:
        if self.binding is not None:
            return self.binding.target.name
        return self.queue.name if self.queue is not None else ""

    @property
    def destination_type(self) -> str:
        to_queue = self.binding is None or isinstance(self.binding.target, Queue)
        return "queue" if to_queue else "exchange"

    @property
    def routing_key(self) -> str:
        return self.destination if self.binding is None else self.binding.routing_key

    @property
    def key(self) -> str:
        if self.binding is not None:
            return properties_key(self.binding)
        return percent(self.destination)


def bindings(view: View, vhost: str | None = None) -> Iterator[Bound]:
    """All of one virtual host, or of all. Those of the default exchange come first."""
    for one in view.node.vhosts if vhost is None else filter(None, [view.node.vhosts.get(vhost)]):
        yield from (Bound(None, queue) for queue in list(one.queues.values()) if listed(queue))
        for exchange in list(one.exchanges.values()):
            yield from bindings_from(exchange)


def bindings_from(exchange: Exchange) -> Iterator[Bound]:
    """Those with this source."""
    for binding in list(exchange.bindings.values()):
        if not isinstance(binding.target, Queue) or listed(binding.target):
            yield Bound(binding)


def bindings_to(view: View, vhost: str, name: str, *, queue: bool) -> list[Bound]:
    """Those with this queue or exchange as their target."""
    host = view.node.vhosts[vhost]
    found = [Bound(one) for one in host.bound_to(host.queues[name] if queue else host.exchanges[name])]
    return [Bound(None, host.queues[name]), *found] if queue else found


_BINDING: dict[str, Column[Bound]] = {
    "source": lambda bound, view: bound.source,
    "vhost": lambda bound, view: bound.vhost,
    "destination": lambda bound, view: bound.destination,
    "destination_type": lambda bound, view: bound.destination_type,
    "routing_key": lambda bound, view: key_to_json(bound.routing_key),
    "arguments": lambda bound, view: {} if bound.binding is None else to_json(bound.binding.arguments),
    "properties_key": lambda bound, view: bound.key,
}


def _all(view: View) -> Iterable[Bound]:
    return bindings(view)


BINDINGS: Table[Bound] = Table(
    items=_all,
    vhost=lambda bound: bound.vhost,
    owner=None,
    columns=_BINDING,
    details={},
    plain=tuple(_BINDING),
)
