"""Consumers of clients. Those that a node makes for its own links and mirrors are not told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from broker.amqp091.channel_state.delivery import ServedConsumer
from broker.model.queue.direct_reply import is_direct_reply
from ha.adapter.management.connection_name import connection_name
from ha.adapter.management.definitions_view import to_json
from ha.adapter.management.views.view import Column, Row, Table, View

if TYPE_CHECKING:
    from broker.connection import Connection
    from broker.model.queue.consumer import Consumer
    from broker.model.queue.queue import Queue


@runtime_checkable
class _OfClient(Protocol):
    """The sink of a client's consumer."""

    @property
    def origin(self) -> tuple[Connection, int]: ...


class Consuming(NamedTuple):
    """A client's consumer."""

    queue: Queue
    consumer: Consumer
    connection: Connection
    number: int


def consuming(queue: Queue) -> Iterator[Consuming]:
    """With those that only browse."""
    for consumer in (*queue.consumers.in_order(), *queue.browsers):
        sink = consumer.sink
        if isinstance(sink, _OfClient):
            yield Consuming(queue, consumer, *sink.origin)


def consumer_rows(queue: Queue, view: View) -> Iterator[Row]:
    """Those of one queue."""
    for found in consuming(queue):
        yield CONSUMERS.row(found, view)


def channel_name(connection: Connection, number: int) -> str:
    return f"{connection_name(connection)} ({number})"


def _is_active(found: Consuming) -> bool:
    if not found.queue.rules.single_active or found.consumer in found.queue.browsers:
        return True
    return found.queue.served[:1] == [found.consumer]


def _channel(found: Consuming, view: View) -> dict[str, Any]:
    connection = found.connection
    return {
        "connection_name": connection_name(connection), "name": channel_name(connection, found.number),
        "node": view.name, "number": found.number, "peer_host": connection.peer.host,
        "peer_port": connection.peer.port, "user": connection.user,
    }  # fmt: skip


def _arguments(consumer: Consumer) -> Any:
    return to_json(consumer.arguments) if isinstance(consumer, ServedConsumer) else {}


def _prefetch(consumer: Consumer) -> int:
    return consumer.limit if isinstance(consumer, ServedConsumer) else 0


_COLUMNS: dict[str, Column[Consuming]] = {
    "arguments": lambda found, view: _arguments(found.consumer),
    "ack_required": lambda found, view: not found.consumer.no_ack,
    "active": lambda found, view: _is_active(found),
    "activity_status": lambda found, view: "single_active" if _sole(found) else _status(found),
    "channel_details": _channel,
    "consumer_tag": lambda found, view: found.consumer.tag,
    "exclusive": lambda found, view: found.consumer.exclusive,
    "prefetch_count": lambda found, view: _prefetch(found.consumer),
    "queue": lambda found, view: {"name": found.queue.name, "vhost": found.queue.vhost},
}


def _sole(found: Consuming) -> bool:
    return found.queue.rules.single_active and _is_active(found)


def _status(found: Consuming) -> str:
    return "up" if _is_active(found) else "waiting"


def _items(view: View) -> Iterator[Consuming]:
    for queue in list(view.node.vhosts.queues_by_uuid.values()):
        if not is_direct_reply(queue.name):
            yield from consuming(queue)


CONSUMERS: Table[Consuming] = Table(
    items=_items,
    vhost=lambda found: found.queue.vhost,
    owner=None,
    columns=_COLUMNS,
    details={},
    plain=tuple(_COLUMNS),
)
