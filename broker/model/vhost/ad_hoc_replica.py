"""A queue mirror in a serving virtual host: its messages follow the source queue of another broker.

Each change is history like any other, so store and ledger see it. The high-availability adapter calls these
functions inside a tick. The queue stays in REPLICA mode. `Definitions` and `Topology` refuse client
operations that a mirror does not allow, and no rule of this broker removes its messages.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from broker.errors import InternalError
from broker.model.history.records import Dequeue, EnqueueRun, QueueDeclare
from broker.model.history.replication_id_set import Range
from broker.model.queue.origin import Origin, follows
from broker.model.queue.queue import Mode, Queue
from broker.model.values import Reason, Scope

if TYPE_CHECKING:
    from broker.model.vhost.vhost import VirtualHost


def declare_replica(vhost: VirtualHost, source: QueueDeclare, name: str, origin: Origin) -> Queue:
    """Create the mirror `name` with the declaration of `source`. Raises InternalError if the name is
    taken."""
    if name in vhost.queues:
        raise InternalError(f"queue '{name}' exists")
    declared = replace(source, uuid=vhost.new_uuid(), name=name, vhost=vhost.name)
    declared.scope = vhost.hooks.queue_scope(declared) & Scope.STORE
    declared.replicate = origin.text()
    vhost._record(declared)
    queue = vhost._make_queue(declared, None)
    queue.mode = Mode.REPLICA
    return queue


def stamp(vhost: VirtualHost, queue: Queue, replicate: str) -> None:
    """Set another level, and record it in history before the messages that need it."""
    vhost._record(replace(queue.declaration(), replicate=replicate))
    queue.set_scope(queue.scope, replicate)
    vhost._changed()


def take(vhost: VirtualHost, queue: Queue, run: EnqueueRun, epoch: int) -> None:
    """Add messages of the source, in the local `epoch`. None of them may be held yet."""
    envelope = copy(run.envelope)
    envelope.epoch = epoch
    scope = queue.content_scope if envelope.persistent else queue.content_scope & ~Scope.STORE
    queue.replica.add_run(run.firsts[0], envelope, run.raws)
    if scope or vhost.history.ledger_wanted:
        vhost.history.append(EnqueueRun([queue.uuid], [run.firsts[0]], envelope, run.raws, scope=scope))


def leave(vhost: VirtualHost, queue: Queue, epoch: int, ranges: list[Range], reason: Reason) -> None:
    """Messages left the source queue. All of them must be held here."""
    queue.replica.dequeue(epoch, ranges)
    scope = queue.content_scope
    if scope or vhost.history.ledger_wanted:
        vhost.history.append(Dequeue(queue.uuid, epoch, reason, ranges, scope))


def end_replica(vhost: VirtualHost, queue: Queue, *, alone: bool) -> None:
    """Make the mirror an ordinary queue of this broker. Its messages become ready and redelivered. `alone`:
    no backup has joined that would lack the messages, so the queue may get the usual replication level."""
    if not follows(queue):
        raise InternalError(f"queue '{queue.name}' follows nobody")
    queue.check_may_serve(vhost.history.epoch)
    declared = replace(queue.declaration(), replicate="none")
    if alone:
        declared.scope = vhost.hooks.queue_scope(declared)
    vhost._record(declared)
    queue.set_scope(declared.scope, declared.replicate)
    vhost._changed()
    queue.activate(vhost.history.epoch)
    vhost.shared.keep_in(queue)
    vhost.hooks.queue_created(queue)
    vhost.expiries.used(queue)
