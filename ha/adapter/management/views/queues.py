"""Queues. On a backup a row has the messages of its copy, all of them as ready.

Octets are estimates: the mean body of a few messages stands for all. `consumer_capacity` is what holds now: 1
if consumers wait for messages, 0 if messages wait for consumers.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from broker.connection import Connection
from broker.model.queue.contents import Mode
from broker.model.queue.delays.delay_queue import is_delay
from broker.model.queue.direct_reply import is_direct_reply
from broker.model.queue.queue import Queue
from broker.model.vhost.policy_rules import merged
from broker.sampling import EVERY
from ha.adapter.management.connection_name import connection_name
from ha.adapter.management.definitions_view import to_json
from ha.adapter.management.views.consumers import consumer_rows
from ha.adapter.management.views.flows import deliveries_of_queue, incoming_of_queue
from ha.adapter.management.views.rates import LENGTHS, gauge, queue_stats, stat_at
from ha.adapter.management.views.view import ABSENT, Column, Table, View

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOOK_AT = 4
_OVERHEAD = 2000
"""Octets of a queue without messages, about."""


def ready_of(queue: Queue) -> int:
    return queue.message_count if queue.mode is Mode.ACTIVE else queue.replica.count


def listed(queue: Queue) -> bool:
    """The queues behind direct reply-to and behind delayed exchanges are not told, as in RabbitMQ."""
    return not is_direct_reply(queue.name) and not is_delay(queue.name)


def mean_body(queue: Queue) -> int:
    """Octets of a body, by a few messages."""
    ready = queue.ready
    some = list(islice(ready, _LOOK_AT)) if isinstance(ready, deque) else []
    some = some or queue.some_unacked(_LOOK_AT)
    size = queue.removals.format.body_size
    return sum([size(entry[2]) for entry in some]) // len(some) if some else 0


def octets_ready(queue: Queue) -> int:
    return queue.ready_octets if queue.sized else mean_body(queue) * ready_of(queue)


def _effective(queue: Queue) -> dict[str, Any]:
    own = queue.ruled_by.definition if queue.ruled_by is not None else {}
    by_operator = queue.operated_by.definition if queue.operated_by is not None else {}
    found = to_json(merged(own, by_operator))
    return dict(found)


def _exclusive_tag(queue: Queue) -> str | None:
    return next(iter(queue.consumers)).tag if queue.exclusive_consumer else None


def _single_active(queue: Queue) -> str | None:
    served = queue.served if queue.rules.single_active else []
    return served[0].tag if served else None


def _capacity(queue: Queue) -> float:
    return 1.0 if queue.consumers and not queue.message_count else 0.0


def _owner(queue: Queue) -> Any:
    """Of an exclusive queue: the connection that owns it."""
    owner = queue.owner
    if not isinstance(owner, Connection):
        return ABSENT
    peer = owner.peer
    return {"name": connection_name(owner), "peer_host": peer.host, "peer_port": peer.port}


def _idle_since(queue: Queue, view: View) -> Any:
    """When the last message came or went, as far as samples tell; of an idle queue only."""
    samples = queue.counts.samples
    if not samples or samples[-1][0] - queue.counts.idle_since < EVERY:
        return ABSENT
    seconds = view.wall_ms / 1000 - (view.now - queue.counts.idle_since)
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _state(queue: Queue) -> str:
    return "running" if queue.mode is Mode.ACTIVE else "replica"


def _type(queue: Queue) -> str:
    kind = queue.arguments.get("x-queue-type")
    return kind if isinstance(kind, str) and kind in ("classic", "quorum") else "classic"


def _length(name: str) -> Column[Queue]:
    return lambda queue, view: gauge(queue.counts, LENGTHS, name, view, view.lengths)


_COLUMNS: dict[str, Column[Queue]] = {
    "arguments": lambda queue, view: to_json(queue.arguments),
    "auto_delete": lambda queue, view: queue.auto_delete,
    "consumer_capacity": lambda queue, view: _capacity(queue),
    "consumer_utilisation": lambda queue, view: _capacity(queue),
    "consumers": lambda queue, view: len(queue.consumers),
    "durable": lambda queue, view: queue.durable,
    "effective_policy_definition": lambda queue, view: _effective(queue),
    "exclusive": lambda queue, view: queue.exclusive,
    "exclusive_consumer_tag": lambda queue, view: _exclusive_tag(queue),
    "head_message_timestamp": lambda queue, view: None,
    "idle_since": _idle_since,
    "memory": lambda queue, view: (
        _OVERHEAD + mean_body(queue) * (queue.total_count - queue.backlog.paged_out)
    ),
    "message_bytes": lambda queue, view: octets_ready(queue) + mean_body(queue) * queue.unacked_count,
    "message_bytes_paged_out": lambda queue, view: mean_body(queue) * queue.backlog.paged_out,
    "message_bytes_persistent": lambda queue, view: (
        octets_ready(queue) + mean_body(queue) * queue.unacked_count if queue.durable else 0
    ),
    "message_bytes_ram": lambda queue, view: mean_body(queue) * (queue.total_count - queue.backlog.paged_out),
    "message_bytes_ready": lambda queue, view: octets_ready(queue),
    "message_bytes_unacknowledged": lambda queue, view: mean_body(queue) * queue.unacked_count,
    "message_stats": lambda queue, view: queue_stats(queue.counts, view),
    "messages": lambda queue, view: queue.total_count,
    "messages_details": _length("messages"),
    "messages_paged_out": lambda queue, view: queue.backlog.paged_out,
    "messages_persistent": lambda queue, view: queue.total_count if queue.durable else 0,
    "messages_ram": lambda queue, view: queue.total_count - queue.backlog.paged_out,
    "messages_ready": lambda queue, view: ready_of(queue),
    "messages_ready_details": _length("messages_ready"),
    "messages_ready_ram": lambda queue, view: ready_of(queue) - queue.backlog.paged_out,
    "messages_unacknowledged": lambda queue, view: queue.unacked_count,
    "messages_unacknowledged_details": _length("messages_unacknowledged"),
    "messages_unacknowledged_ram": lambda queue, view: queue.unacked_count,
    "name": lambda queue, view: queue.name,
    "node": lambda queue, view: view.name,
    "operator_policy": lambda queue, view: None if queue.operated_by is None else queue.operated_by.name,
    "owner_pid_details": lambda queue, view: _owner(queue),
    "policy": lambda queue, view: queue.policy,
    "recoverable_slaves": lambda queue, view: None,
    "replicate": lambda queue, view: queue.replicate.split(" ")[0],
    "single_active_consumer_tag": lambda queue, view: _single_active(queue),
    "state": lambda queue, view: _state(queue),
    "type": lambda queue, view: _type(queue),
    "vhost": lambda queue, view: queue.vhost,
}
_PLAIN = (
    "arguments", "auto_delete", "durable", "exclusive", "name", "node", "state", "type", "vhost",
)  # fmt: skip
TOTALS = ("messages", "messages_ready", "messages_unacknowledged")
"""Columns that `enable_queue_totals` adds to those without statistics."""


def _items(view: View) -> Iterable[Queue]:
    return (queue for queue in list(view.node.vhosts.queues_by_uuid.values()) if listed(queue))


QUEUES: Table[Queue] = Table(
    items=_items,
    vhost=lambda queue: queue.vhost,
    owner=None,
    columns=_COLUMNS,
    details={
        "consumer_details": lambda queue, view: list(consumer_rows(queue, view)),
        "deliveries": deliveries_of_queue,
        "incoming": incoming_of_queue,
    },
    plain=_PLAIN,
    number=lambda queue, path: stat_at(queue.counts, path[1:]) if path[0] == "message_stats" else None,
)
