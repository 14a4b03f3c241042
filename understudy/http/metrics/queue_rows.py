"""What the metrics tell of one queue. Reads the model, changes nothing; some 3 us a queue.

Octets are estimates: the mean body of a few messages stands for all, as for the memory alarm.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, NamedTuple

from broker.memory_alarm import ENTRY_OVERHEAD
from broker.model.queue.direct_reply import is_direct_reply
from understudy.http.metrics.exposition import labels_of

if TYPE_CHECKING:
    from broker.model.history.records import Entry
    from broker.model.queue.queue import Queue
    from broker.model.statistics import Counts
    from broker.model.vhost.vhosts import VirtualHosts

_LOOK_AT = 4
"""Messages of which the sizes are taken."""


class QueueRow(NamedTuple):
    """The fields that `families` names."""

    labels: str
    counts: Counts
    ready: int
    unacked: int
    messages: int
    consumers: int
    paged_out: int
    in_memory: int
    ready_in_memory: int
    bytes: int
    ready_bytes: int
    unacked_bytes: int
    in_memory_bytes: int
    paged_out_bytes: int
    memory: int


def queue_rows(vhosts: VirtualHosts, of: Container[str] | None = None) -> Iterator[QueueRow | None]:
    """A row for each queue that this node serves; None for one that is left out, so that the caller can
    measure its time. A backup serves none: a queue counts on one node only. `of`: names of virtual hosts."""
    for queue in _queues(vhosts, of):
        yield row_of(queue) if _counts_here(queue) else None


class ArrivalRow(NamedTuple):
    """Messages put into a queue. The labels are others in this group, as in RabbitMQ."""

    labels: str
    counts: Counts


def arrival_rows(vhosts: VirtualHosts, of: Container[str] | None = None) -> Iterator[ArrivalRow | None]:
    for queue in _queues(vhosts, of):
        labels = {"queue_vhost": queue.vhost, "queue": queue.name}
        yield ArrivalRow(labels_of(labels), queue.counts) if _counts_here(queue) else None


def _queues(vhosts: VirtualHosts, of: Container[str] | None) -> list[Queue]:
    return [queue for vhost in vhosts if of is None or vhost.name in of for queue in vhost.queues.values()]


def _counts_here(queue: Queue) -> bool:
    return queue.serves and not is_direct_reply(queue.name)


def row_of(queue: Queue) -> QueueRow:
    ready, unacked, paged_out = queue.message_count, queue.unacked_count, queue.backlog.paged_out
    mean = _mean_body(queue)
    in_memory = ready + unacked - paged_out
    return QueueRow(
        labels=labels_of({"vhost": queue.vhost, "queue": queue.name}),
        counts=queue.counts,
        ready=ready,
        unacked=unacked,
        messages=ready + unacked,
        consumers=len(queue.consumers),
        paged_out=paged_out,
        in_memory=in_memory,
        ready_in_memory=ready - paged_out,
        bytes=mean * (ready + unacked),
        ready_bytes=mean * ready,
        unacked_bytes=mean * unacked,
        in_memory_bytes=mean * in_memory,
        paged_out_bytes=mean * paged_out,
        memory=queue.octets + in_memory * (mean + ENTRY_OVERHEAD),
    )


def _mean_body(queue: Queue) -> int:
    """Octets of a body, as the messages at the head and the oldest held ones have them; 0 if there are
    none."""
    some: list[Entry | None] = list(queue.some_unacked(1)) if queue.unacked_count else []
    ready = queue.ready
    some += [ready[at] for at in range(min(len(ready), _LOOK_AT))]
    sizes = [queue.removals.format.body_size(entry[2]) for entry in some if entry is not None]
    return sum(sizes) // len(sizes) if sizes else 0
