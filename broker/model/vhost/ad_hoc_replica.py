"""A queue that follows one of another broker, in a virtual host that serves: its messages come and go as the
other broker says, and each change is history like any other, so that store and ledger see it.

Called by the high-availability adapter, inside a tick. The queue stays in REPLICA mode: what clients may not
do with it is refused by `Definitions` and `Topology`, and no rule of this broker removes a message of it.
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
    """A queue `name`, declared as `source` is there. Its name must be free."""
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
    """Another level, in history before whatever comes by it."""
    vhost._record(replace(queue.declaration(), replicate=replicate))
    queue.set_scope(queue.scope, replicate)
    vhost._changed()


def take(vhost: VirtualHost, queue: Queue, run: EnqueueRun, epoch: int) -> None:
    """Messages of the source, in `epoch` of here. None of them may be held."""
    envelope = copy(run.envelope)
    envelope.epoch = epoch
    scope = queue.content_scope if envelope.persistent else queue.content_scope & ~Scope.STORE
    queue.replica.add_run(run.firsts[0], envelope, run.raws)
    if scope or vhost.history.ledger_wanted:
        vhost.history.append(EnqueueRun([queue.uuid], [run.firsts[0]], envelope, run.raws, scope=scope))


def leave(vhost: VirtualHost, queue: Queue, epoch: int, ranges: list[Range], reason: Reason) -> None:
    """These, all of which are held, have left the queue at the source."""
    queue.replica.dequeue(epoch, ranges)
    scope = queue.content_scope
    if scope or vhost.history.ledger_wanted:
        vhost.history.append(Dequeue(queue.uuid, epoch, reason, ranges, scope))


def end_replica(vhost: VirtualHost, queue: Queue, *, alone: bool) -> None:
    """From now on it is an ordinary queue of this broker: what it holds is ready, and redelivered. `alone`:
    no backup has joined, which would lack what it holds; so it may have the level that a declaration gets.
    """
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
    vhost.hooks.queue_created(queue)
    vhost.expiries.used(queue)
