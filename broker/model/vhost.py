"""The virtual host: publishing, consuming, and following another's history. The model's front door.

Owner: the engine (one today). Channels call everything but `apply`, `activate` and `deactivate`, which the
engine, recovery and the high-availability adapter call. Deterministic: ids of new queues come from
`new_uuid`, time from `wall_ms`, which the engine sets at the start of each tick. Definitions are in
`Definitions`, routing in `Topology`; both are its bases, so that a channel sees one object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.errors import AccessRefused, InternalError
from broker.hooks import Hooks
from broker.model.applying import apply_record
from broker.model.consumer import Consumer
from broker.model.definitions import Removed
from broker.model.directory import POLICY, SCOPE, check_entry
from broker.model.enqueueing import Enqueueing, Published
from broker.model.fingerprint import definitions_of, fingerprint_of
from broker.model.history import History
from broker.model.message_run import Overflow
from broker.model.policies import names_of_policies, obey_all
from broker.model.publish_route import PublishRoute
from broker.model.queue import Mode, Queue
from broker.model.queue_origin import follows
from broker.model.records import ConsumerSeen, EntryDelete, EntryPut, Milestone, QueueEnds, Record
from broker.model.removals import ROUNDS
from broker.model.values import Reason, Scope

__all__ = ["PublishRoute", "Published", "QueueInfo", "Removed", "VirtualHost"]


class QueueInfo(NamedTuple):
    """One line of the management's queue list."""

    name: str
    uuid: bytes
    ready: int
    unacked: int
    consumers: int
    scope: Scope
    durable: bool
    replicate: str
    policy: str | None


class VirtualHost(Enqueueing):
    """See the module. `serving` is False at first: contents are replicas and only `apply` may change
    anything.

    `pending`: queues that asked for dispatch in this tick. `generation`
    (of `Topology`) grows with every change of queues, exchanges or bindings.
    """

    def __init__(self, name: str, hooks: Hooks, history: History, new_uuid: Callable[[], bytes]) -> None:
        super().__init__(name, hooks, history, new_uuid)
        self.deciding = True
        """No queue ends because its clients are gone while this is False: another node may serve, to which
        they went."""
        self._left: list[Queue] = []
        """Those that would have ended meanwhile."""

    # -- consumers

    def consume(self, consumer: Consumer) -> Scope:
        """Register a consumer and schedule its queue. Returns the scope touched, NONE mostly.

        Raises AccessRefused if somebody's exclusive use forbids it.
        """
        queue = consumer.queue
        if queue.consumers and (consumer.exclusive or queue.exclusive_consumer):
            raise AccessRefused(f"queue '{queue.name}' in vhost '{self.name}' in exclusive use")
        queue.consumers.append(consumer)
        self.expiries.used(queue)
        queue.schedule()
        if queue.consumer_seen:
            return Scope.NONE
        queue.consumer_seen = True
        if not queue.auto_delete:
            return Scope.NONE
        self._record(ConsumerSeen(queue.uuid, queue.scope))
        self._changed()
        return queue.scope

    def cancel(self, consumer: Consumer) -> None:
        """basic.cancel, or the channel closed. May end an auto-delete queue. Idempotent.

        Unacked messages stay the channel's: it requeues them when it closes, before the cancel.
        """
        queue = consumer.queue
        if consumer not in queue.consumers:
            return
        queue.consumers.remove(consumer)
        self.expiries.used(queue)
        if queue.auto_delete and not queue.consumers and not queue.deleted and self.serving:
            self._end_left(queue, Reason.QUEUE_UNUSED)

    def connection_closed(self, owner: object) -> None:
        """End the exclusive queues of `owner`. Call it after its channels requeued and cancelled."""
        for queue in list(self._owned.get(owner, ())):
            if self.serving:
                self._end_left(queue, Reason.OWNER_GONE)
        self._owned.pop(owner, None)

    def _end_left(self, queue: Queue, reason: Reason) -> None:
        """Its clients have left it: it ends, now or when this node may decide again."""
        if self.deciding:
            self._end_queue(queue, reason)
        else:
            queue.owner = None
            self._left.append(queue)

    def decide_again(self) -> None:
        """End what was left by its clients, and is so still."""
        self.deciding = True
        self._give_time()
        left, self._left = self._left, []
        for queue in left:
            if not queue.deleted and not queue.consumers and queue.owner is None:
                self._end_queue(queue, _left_by(queue))

    def expire(self, now: float) -> int:
        """End the queues that nobody has used for their time (`x-expires`), once a tick; how many."""
        over = self.expiries.due(now)
        for queue in over:
            self._end_queue(queue, Reason.QUEUE_EXPIRED)
        return len(over)

    def _give_time(self) -> None:
        """Whoever uses a queue that would expire may not have been able to: its time begins anew."""
        for queue in self.queues.values():
            if not follows(queue):
                self.expiries.used(queue)

    def dispatch(self) -> int:
        """Serve the pending queues, once, at the end of a tick and before `history.flush`; messages
        delivered. What nobody took leaves if its time is over or its queue too long; dead letters of dead
        letters, however many they become, do so in the ticks that follow."""
        sent = 0
        pending, removals = self.pending, self.removals
        removals.expire_due()
        for _ in range(ROUNDS):
            while pending:
                queues = pending[:]
                pending.clear()
                for queue in queues:
                    sent += queue.dispatch()
            if not removals.settle():
                break
        return sent

    def set_aside(self, overflow: Overflow, most: int) -> int:
        """About `most` bytes of messages leave memory, of the deepest queues first; how many did."""
        done = 0
        for queue in sorted(self.queues.values(), key=lambda queue: -queue.total_count):
            if done >= most or queue.total_count <= queue.window:
                break
            done += queue.set_aside(overflow, most - done)
        return done

    # -- users, permissions, policies

    def change_directory(self, changes: Sequence[EntryPut | EntryDelete]) -> Scope:
        """All of them in one batch, or none; the scope touched, NONE if all was so before.

        Whoever deletes a user deletes its permissions. Raises EntryFault, with nothing changed.
        """
        directory = self.directory
        planned = directory.copy()
        records: list[EntryPut | EntryDelete] = []
        for change in changes:
            if isinstance(change, EntryPut):
                check_entry(planned, frozenset((self.name,)), change)
            for record in planned.steps(change):
                planned.apply(record)
                records.append(record)
        for record in records:
            self._record(record)
            directory.apply(record)
        if any(record.kind == POLICY for record in records):
            obey_all(self)
        if records:
            self._changed()
        return SCOPE if records else Scope.NONE

    # -- following and changing sides

    def apply(self, record: Record) -> None:
        """Apply one history record without making history. Idempotent; unknown queues are ignored.

        Raises InternalError while serving.
        """
        if self.serving:
            raise InternalError("a serving virtual host follows nobody")
        apply_record(self, record)

    def activate(self, epoch: int) -> None:
        """Begin to serve in `epoch`: positions and ids start anew, contents become ready, older ones
        redelivered. Queues that follow another broker's go on doing so.

        Raises InternalError, with nothing changed, if a queue's copy is incomplete or of a later epoch.
        """
        if self.serving:
            raise InternalError("already serving")
        own = [queue for queue in self.queues.values() if not follows(queue)]
        for queue in own:
            queue.check_may_serve(epoch)
        self.history.begin_epoch(epoch)
        obey_all(self)
        for queue in own:
            queue.activate(epoch)
        self._give_time()
        self.serving = True

    def deactivate(self) -> None:
        """Stop serving: every queue is a replica again. History must be flushed before, consumers are not
        told."""
        for queue in self.queues.values():
            if queue.mode is Mode.ACTIVE:
                queue.deactivate()
        self.pending.clear()
        self._owned.clear()
        self._left.clear()
        self.expiries.clear()
        self.removals.clear()
        self.deciding = True
        self.serving = False

    def milestone(self, epoch: int) -> None:
        """All known members hold what settled at the last one: forget it, and settle what may be."""
        self.graves.milestone()
        for queue in self.queues.values():
            queue.milestone(epoch)

    def make_milestone(self) -> bool:
        """As the one that serves: make it history, if there is anything to settle or to forget."""
        epoch = self.history.epoch
        due = bool(self.graves) or any(queue.milestone_due() for queue in self.queues.values())
        if due:
            self._record(Milestone(epoch, Scope.STORE | Scope.LINK))
            self.milestone(epoch)
        return due

    def orphans(self) -> list[Queue]:
        """Auto-delete queues that had a consumer, and exclusive ones, whose clients have not come back."""
        return [
            queue
            for queue in self.queues.values()
            if (queue.auto_delete and queue.consumer_seen and not queue.consumers)
            or (queue.exclusive and queue.owner is None)
        ]

    def end_orphans(self) -> int:
        """Delete them, once, by the serving node, when its clients had their time to return; how many."""
        ended = self.orphans()
        for queue in ended:
            self._end_queue(queue, _left_by(queue))
        return len(ended)

    # -- looking

    def definitions(self, scope: Scope | None = None) -> list[Record]:
        """Declares, ConsumerSeen and binds that rebuild what `scope` sees (all if None), in an order that
        applies."""
        return definitions_of(self, scope)

    def ends(self, scope: Scope) -> list[QueueEnds]:
        """What history ever had in the queues that `scope` sees, and in those that it has deleted."""
        found = [
            QueueEnds(q.uuid, q.ends() if q.content_scope & scope else {}, False, q.scope)
            for q in self.queues.values()
            if q.scope & scope
        ]
        return found + [QueueEnds(uuid, ends, True, Scope.STORE | Scope.LINK) for uuid, ends in self.graves]

    def fingerprint(self, scope: Scope | None = None) -> str:
        """Hex hash of queues, exchanges, bindings and message ids: those that `scope` sees, or all."""
        return fingerprint_of(self, scope)

    def list_queues(self) -> list[QueueInfo]:
        policies = names_of_policies(self)
        return [
            QueueInfo(
                q.name,
                q.uuid,
                q.total_count - q.unacked_count,
                q.unacked_count,
                len(q.consumers),
                q.scope,
                q.durable,
                q.replicate,
                policies.get(q.name),
            )
            for q in self.queues.values()
        ]


def _left_by(queue: Queue) -> Reason:
    return Reason.OWNER_GONE if queue.exclusive else Reason.QUEUE_UNUSED
