"""What the metrics tell of virtual hosts and exchanges. Reads the model, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from broker.model.routing.exchange import INTERNAL
from understudy.http.metrics.exposition import labels_of

if TYPE_CHECKING:
    from broker.model.routing.exchange import Exchange
    from broker.model.statistics import Counts
    from broker.model.vhost.vhosts import VirtualHosts


class VhostRow(NamedTuple):
    labels: str
    works: int = 1


class ExchangeRow(NamedTuple):
    labels: str
    bindings: int
    counts: Counts
    works: int = 1


def vhost_rows(vhosts: VirtualHosts) -> Iterator[VhostRow]:
    for vhost in list(vhosts):
        yield VhostRow(labels_of({"vhost": vhost.name}))


def exchange_rows(vhosts: VirtualHosts) -> Iterator[ExchangeRow]:
    """For bindings: without the default exchange and the internal ones, as RabbitMQ lists them."""
    for exchange in _exchanges(vhosts):
        if exchange.name and exchange.name not in INTERNAL:
            labels = {"vhost": exchange.vhost, "exchange": exchange.name, "type": exchange.type.value}
            yield _row(exchange, labels)


def counted_rows(vhosts: VirtualHosts) -> Iterator[ExchangeRow | None]:
    """For counters: exchanges of the serving node that messages came to."""
    for exchange in _exchanges(vhosts) if vhosts.serving else ():
        seen = exchange.counts.publish
        yield _row(exchange, {"vhost": exchange.vhost, "exchange": exchange.name}) if seen else None


def _row(exchange: Exchange, labels: dict[str, str]) -> ExchangeRow:
    return ExchangeRow(labels_of(labels), len(exchange.bindings), exchange.counts)


def _exchanges(vhosts: VirtualHosts) -> list[Exchange]:
    return [exchange for vhost in vhosts for exchange in vhost.exchanges.values()]
