"""What the metrics tell of virtual hosts and exchanges. Reads the model, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from broker.model.routing.exchange import INTERNAL
from understudy.http.metrics.exposition import labels_of

if TYPE_CHECKING:
    from broker.model.vhost.vhosts import VirtualHosts


class VhostRow(NamedTuple):
    labels: str
    works: int = 1


class ExchangeRow(NamedTuple):
    labels: str
    bindings: int
    works: int = 1


def vhost_rows(vhosts: VirtualHosts) -> Iterator[VhostRow]:
    for vhost in list(vhosts):
        yield VhostRow(labels_of({"vhost": vhost.name}))


def exchange_rows(vhosts: VirtualHosts) -> Iterator[ExchangeRow]:
    """Without the default exchange and the internal ones, as RabbitMQ lists them."""
    exchanges = [exchange for vhost in vhosts for exchange in vhost.exchanges.values() if exchange.name]
    for exchange in exchanges:
        if exchange.name in INTERNAL:
            continue
        labels = {"vhost": exchange.vhost, "exchange": exchange.name, "type": exchange.type.value}
        yield ExchangeRow(labels_of(labels), len(exchange.bindings))
