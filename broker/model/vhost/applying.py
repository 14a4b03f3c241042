"""Applies history records on a backup or on a recovering node. `VirtualHosts.apply` calls `apply_record`.

Nothing is decided here: only what the records say happens (invariant 18). Everything is idempotent. A record
for an unknown queue, exchange or virtual host is ignored, because its deletion may have been applied already.
"""

from __future__ import annotations

from typing import Protocol, assert_never

from broker.model.history.epoch_ends import DeletedQueues
from broker.model.history.records import (
    Bind,
    Commit,
    ConsumerSeen,
    Dequeue,
    Duplicate,
    EnqueueRun,
    EntryDelete,
    EntryPut,
    ExchangeDeclare,
    ExchangeDelete,
    HistoryCheckpoint,
    IdsNoted,
    QueueDeclare,
    QueueDelete,
    QueueEnds,
    QueueIds,
    QueueMarks,
    Record,
    Unbind,
    Unrouted,
)
from broker.model.queue.queue import Queue
from broker.model.routing.exchange import BUILT_IN, Binding, Exchange
from broker.model.values import Reason, Scope
from broker.model.vhost.producers import Producers
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.windows import take_ids, take_noted

_Named = QueueDeclare | ExchangeDeclare | ExchangeDelete | Bind | Unbind
"""Records that name an object inside a virtual host."""
_Seldom = (
    QueueDelete
    | ConsumerSeen
    | QueueEnds
    | QueueMarks
    | QueueIds
    | HistoryCheckpoint
    | EntryPut
    | EntryDelete
    | _Named
)
"""Records about definitions, not about messages."""


class Follower(Protocol):
    """All virtual hosts of a backup or recovering node."""

    @property
    def queues_by_uuid(self) -> dict[bytes, Queue]: ...
    @property
    def deleted_queues(self) -> DeletedQueues: ...
    @property
    def producers(self) -> Producers: ...
    def get(self, name: str) -> VirtualHost | None: ...
    def __getitem__(self, name: str) -> VirtualHost: ...
    def changed(self) -> None: ...
    def history_checkpoint(self, epoch: int) -> None: ...
    def apply_entry(self, record: EntryPut | EntryDelete) -> None: ...


def apply_record(vhosts: Follower, record: Record) -> None:
    """Change the state as `record` says."""
    queues = vhosts.queues_by_uuid
    match record:
        case EnqueueRun():
            for uuid, first in zip(record.queues, record.firsts, strict=True):
                queue = queues.get(uuid)
                if queue is not None:
                    if record.numbering is not None:
                        stored = Scope.STORE in record.scope or Scope.STORE not in queue.content_scope
                        vhosts.producers.note(queue, record.numbering, record.count, stored=stored)
                    queue.replica.add_run(first, record.envelope, record.raws)
        case Dequeue():
            queue = queues.get(record.queue)
            if queue is not None:
                own = record.scope == Scope.STORE and record.reason is Reason.DROPPED
                (queue.replica.drop if own else queue.replica.dequeue)(record.epoch, record.ranges)
        case IdsNoted():
            queue = queues.get(record.queue)
            if queue is not None:
                take_noted(queue, record)
        case Unrouted() | Duplicate() | Commit():
            pass
        case _:
            _apply_seldom(vhosts, record)


def _apply_seldom(vhosts: Follower, record: _Seldom) -> None:
    queues = vhosts.queues_by_uuid
    match record:
        case QueueDelete():
            queue = queues.get(record.uuid)
            if queue is not None:
                queue.end()
                vhosts[queue.vhost]._drop_queue(queue)
        case ConsumerSeen():
            queue = queues.get(record.queue)
            if queue is not None:
                queue.consumer_seen = True
                vhosts.changed()
        case QueueEnds(queue=uuid, ends=ends, deleted=deleted):
            if deleted:
                vhosts.deleted_queues.add(uuid, ends)
            elif (queue := queues.get(uuid)) is not None:
                queue.replica.set_ends(ends)
        case QueueMarks() | QueueIds():
            queue = queues.get(record.queue)
            if queue is not None:
                _replace_known(vhosts, queue, record)
        case HistoryCheckpoint():
            vhosts.history_checkpoint(record.epoch)
        case EntryPut() | EntryDelete():
            vhosts.apply_entry(record)
        case QueueDeclare() | ExchangeDeclare() | ExchangeDelete() | Bind() | Unbind():
            vhost = vhosts.get(record.vhost)
            if vhost is not None:
                _define(vhost, record)
        case _:
            assert_never(record)


def _replace_known(vhosts: Follower, queue: Queue, record: QueueMarks | QueueIds) -> None:
    if isinstance(record, QueueMarks):
        vhosts.producers.set_marks(queue, record.marks)
    else:
        queue.recent = take_ids(queue.recent, record)


def _define(vhost: VirtualHost, record: _Named) -> None:
    match record:
        case QueueDeclare():
            _declare_queue(vhost, record)
        case ExchangeDeclare():
            found = vhost.exchanges.get(record.name)
            if record.name not in BUILT_IN and (found is None or found.declaration() != record):
                if found is not None:
                    vhost.remove_exchange(found)
                vhost.add_exchange(Exchange(record))
            elif found is not None:
                found.bound = bool(found.bindings)  # see `consumer_seen` in `_declare_queue`
        case ExchangeDelete():
            found = vhost.exchanges.get(record.name)
            if found is not None and not found.built_in:
                vhost.remove_exchange(found)
        case Bind():
            binding = _binding(vhost, record)
            if binding is not None:
                vhost.add_binding(binding)
        case Unbind():
            binding = _binding(vhost, record)
            held = binding and binding.source.bindings.get(binding.key)
            if held:
                vhost.remove_binding(held)
        case _:
            assert_never(record)


def _declare_queue(vhost: VirtualHost, record: QueueDeclare) -> None:
    """A queue with the same name and another UUID is another queue: the old one is deleted with its messages
    (invariant 17). A known queue loses its `consumer_seen` until a ConsumerSeen follows, since another
    history may have set it."""
    known = vhost.shared.queues_by_uuid.get(record.uuid)
    if known is not None:
        if (known.scope, known.replicate) != (record.scope, record.replicate):
            known.set_scope(record.scope, record.replicate)
            vhost._changed()
        if known.arguments != record.arguments:
            vhost.set_arguments(known, record.arguments)
        if known.consumer_seen:
            known.consumer_seen = False
            vhost._changed()
        return
    namesake = vhost.queues.get(record.name)
    if namesake is not None:
        namesake.end()
        vhost._drop_queue(namesake)
    vhost._make_queue(record, None)


def _binding(vhost: VirtualHost, record: Bind | Unbind) -> Binding | None:
    source = vhost.exchanges.get(record.source)
    target: Queue | Exchange | None
    if record.queue is not None:
        target = vhost.shared.queues_by_uuid.get(record.queue)
    else:
        target = vhost.exchanges.get(record.target)
    if source is None or target is None:
        return None
    return Binding(source, target, record.routing_key, record.arguments)
