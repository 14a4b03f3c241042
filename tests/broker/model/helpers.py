"""A serving virtual host with a recording sink and a greedy consumer, for the model's tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from broker.hooks import Hooks
from broker.model.history.batch import Batch
from broker.model.history.history import History
from broker.model.history.record_codec import decode_records
from broker.model.history.records import Entry, ExchangeDeclare, QueueDeclare
from broker.model.queue.consumer import UNLIMITED, Consumer
from broker.model.routing.publish_route import PublishRoute
from broker.model.steps import finish
from broker.model.values import Scope
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.vhosts import VirtualHosts

OWNER = object()


class Everything(Hooks):
    """Stores and replicates all objects; temporary ones are only replicated."""

    def queue_scope(self, declared: QueueDeclare) -> Scope:
        return Scope.STORE | Scope.LINK if declared.durable else Scope.LINK

    def exchange_scope(self, declared: ExchangeDeclare) -> Scope:
        return Scope.STORE | Scope.LINK if declared.durable else Scope.LINK


class Follower:
    """A sink that applies each batch, encoded and decoded, to its own virtual host."""

    def __init__(self, scope: Scope = Scope.LINK, name: str = "/") -> None:
        self.scope = scope
        self.vhost = VirtualHosts(Hooks(), History(), uuids()).root
        self.batches: list[Batch] = []

    def batch(self, batch: Batch) -> None:
        self.batches.append(batch)
        for record in decode_records(b"".join(batch.payload(self.scope))):
            self.vhost.shared.apply(record)


class Recorder:
    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def batch(self, batch: Batch) -> None:
        self.batches.append(batch)


class Sink:
    """Takes up to `limit` messages at once and remembers them."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.got: list[Entry] = []
        self.by_tag: dict[str, list[int]] = {}
        self.calls = 0
        self.gone: list[str] = []

    client = "a test"

    def credit(self, consumer: Consumer) -> int:
        return self.limit - len(self.got)

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        self.calls += 1
        self.got += entries
        self.by_tag.setdefault(consumer.tag, []).extend(seq for seq, _, _ in entries)

    def cancelled(self, consumer: Consumer) -> None:
        self.gone.append(consumer.tag)


_MADE = itertools.count(1)


def uuids() -> Callable[[], bytes]:
    """UUIDs that never repeat, across all virtual hosts."""
    return lambda: next(_MADE).to_bytes(16, "big")


def serving(epoch: int = 1, hooks: Hooks | None = None, *, ledger: bool = False) -> VirtualHost:
    vhost = VirtualHosts(hooks or Everything(), History(ledger_wanted=ledger), uuids()).root
    vhost.shared.activate(epoch)
    return vhost


def publish(
    vhost: VirtualHost, key: str, *bodies: bytes, exchange: str = "", persistent: bool = False
) -> None:
    vhost.publish(
        vhost.route(exchange, key),
        list(bodies),
        persistent=persistent,
        channel=1,
        largest_frame=100,
        producer="p/1",
        first_tag=1,
    )


def seqs(entries: list[Entry]) -> list[int]:
    return [seq for seq, _, _ in entries]


def end_tick(vhost: VirtualHost, now: float = 0.0) -> Batch | None:
    """End a tick and flush all dequeues."""
    vhost.shared.dispatch()
    return vhost.history.flush(now, 0, force=True)


def inner_route(vhost: VirtualHost, exchange: str, key: str) -> PublishRoute:
    """The route of a message that the broker itself publishes, looked up at once."""
    return finish(vhost.find_inner(exchange, key))


def route_by_headers(
    vhost: VirtualHost, exchange: str, key: str, headers: Mapping[str, object], *, inner: bool = False
) -> PublishRoute:
    """The route of one message with these headers, looked up at once."""
    return finish(vhost.find_by_headers(exchange, key, headers, inner=inner))
