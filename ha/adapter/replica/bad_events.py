"""Events that the copy of a queue cannot take: finds and reports them, and keeps store and model equal
meanwhile.

Such a queue is sent again. The link may be lost before it is whole. Messages that only the store holds would
then be back after the next start, and messages that only the model holds would be gone.
"""

from __future__ import annotations

from broker.model.history.records import Dequeue, EnqueueRun
from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.queue.link import is_link
from broker.model.values import Reason, Scope
from broker.model.vhost.vhosts import VirtualHosts
from ha.core.ports import BadEvent
from ha.core.wire.queue_snapshot import minus


def out_of_line(vhosts: VirtualHosts, run: EnqueueRun) -> list[BadEvent]:
    """Queues in which these are not the next messages: their copies lack some, or have too many. The ids of a
    link queue have gaps (`broker.model.queue.link_ids`)."""
    bad: list[BadEvent] = []
    for uuid, first in zip(run.queues, run.firsts, strict=True):
        queue = vhosts.queues_by_uuid.get(uuid)
        if queue is None:
            continue
        due = queue.replica.next_of(run.envelope.epoch)
        fits = first >= due if is_link(queue.name) else first == due
        if not fits and not queue.replica.unsure:
            bad.append(BadEvent(uuid, f"queue {queue.title!r} gets {first} where {due} was due"))
        queue.replica.unsure = False
    return bad


def bad_events(vhosts: VirtualHosts, record: EnqueueRun | Dequeue, error: str) -> list[BadEvent]:
    """One for each queue of `record` that exists here: `error` kept the record from being applied."""
    queues = record.queues if isinstance(record, EnqueueRun) else [record.queue]
    there = [q for uuid in queues if (q := vhosts.queues_by_uuid.get(uuid)) is not None]
    what = "messages" if isinstance(record, EnqueueRun) else "dequeues"
    return [BadEvent(q.uuid, f"queue {q.title!r} cannot take its {what} ({error})") for q in there]


def not_taken(vhosts: VirtualHosts, run: EnqueueRun) -> list[Dequeue]:
    """Messages of `run` that the model has not taken. The store is told of all of them. If the link is lost
    before the queue is whole again, neither is told of messages that leave meanwhile."""
    epoch = run.envelope.epoch
    lost: list[Dequeue] = []
    for uuid, first in zip(run.queues, run.firsts, strict=True):
        queue = vhosts.queues_by_uuid.get(uuid)
        if queue is None or not run.scope & Scope.STORE:
            continue
        ids = {epoch: ReplicationIdSet([(first, first + run.count - 1)])}
        for of, missing in minus(ids, queue.replica.ids()).items():
            lost.append(Dequeue(uuid, of, Reason.DROPPED, missing.ranges(), Scope.STORE))
    return lost
