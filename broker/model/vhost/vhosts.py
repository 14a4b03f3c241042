"""All virtual hosts of a broker, which are replicated as one: one history, one state.

Owner: the engine. The engine, recovery and the high-availability adapter call it; channels call their own
virtual host. Deterministic: `new_uuid` gives the ids of new queues, and the engine sets `wall_ms` at the
start of each tick.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from broker.errors import InternalError
from broker.hooks import Hooks
from broker.model.history.history import History
from broker.model.history.marks import after_restart
from broker.model.history.records import (
    Entry,
    EntryDelete,
    EntryPut,
    HistoryCheckpoint,
    QueueEnds,
    QueueIds,
    QueueMarks,
    Record,
)
from broker.model.queue.consumer import Consumer
from broker.model.queue.link_ids import LinkNumbers
from broker.model.queue.message_run import Overflow
from broker.model.queue.origin import follows
from broker.model.queue.queue import Mode, Queue
from broker.model.queue.removals import OPAQUE, ROUNDS, STEPS, MessageFormat, Removals, RuledQueue
from broker.model.routing.exchange import Exchange
from broker.model.statistics import Counts, sum_of
from broker.model.values import ROOT, Reason, Scope
from broker.model.vhost.applying import apply_record
from broker.model.vhost.directory import OPERATOR_POLICY, POLICY, PROGRESS, SCOPE, VHOST, check_change
from broker.model.vhost.federation_entries import CURSOR, HOME, SEEN, Cursor, Home, SeenAt, seen_name
from broker.model.vhost.fingerprint import definitions_of, fingerprint_of
from broker.model.vhost.policies import apply_to_all, policy_names
from broker.model.vhost.producer_entries import PRODUCER
from broker.model.vhost.shared import Shared
from broker.model.vhost.stamping import stamp_unset
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.windows import records_of


class QueueInfo(NamedTuple):
    """One line of the management's queue list. `single_active`: the queue has a single active consumer;
    `active`: that consumer, if any."""

    name: str
    uuid: bytes
    ready: int
    unacked: int
    consumers: int
    scope: Scope
    durable: bool
    replicate: str
    policy: str | None
    vhost: str = ROOT
    single_active: bool = False
    active: Consumer | None = None


class VirtualHosts(Shared):
    """See the module. Initially `serving` is False: contents are replicas, and only `apply` may change
    anything.

    `message_format`: that of the clients' protocol, for making dead letters. `root`: the virtual host `/`,
    which always exists. `ending`: called on the serving node with a virtual host that is about to be deleted,
    before its queues are.
    """

    def __init__(
        self, hooks: Hooks, history: History, new_uuid: Callable[[], bytes],
        message_format: MessageFormat = OPAQUE,
    ) -> None:  # fmt: skip
        super().__init__(hooks, history, new_uuid, Removals(message_format, self._dead_letter))
        self.steps = STEPS
        """Steps for deliveries in one tick."""
        self._paging: set[Queue] = set()
        """Queues that had messages paged out."""
        self.ending: Callable[[VirtualHost], None] = lambda vhost: None
        self._by_name: dict[str, VirtualHost] = {}
        self.add(ROOT)
        self.root = self[ROOT]

    # -- the virtual hosts

    def __iter__(self) -> Iterator[VirtualHost]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __getitem__(self, name: str) -> VirtualHost:
        return self._by_name[name]

    def get(self, name: str) -> VirtualHost | None:
        return self._by_name.get(name)

    def add(self, name: str) -> None:
        """Add a virtual host with only the built-in exchanges, unless it exists. Makes no history."""
        if name not in self._by_name:
            self._by_name[name] = VirtualHost(name, self)
            self.changed()

    def remove(self, name: str) -> None:
        """Remove a virtual host and its remaining queues, which are local to this node and not in history.
        Makes no history. `/` stays."""
        if name == ROOT or name not in self._by_name:
            return
        vhost = self._by_name[name]
        for queue in list(vhost.queues.values()):
            queue.end()
            vhost._drop_queue(queue)
        for protocol, tally in vhost.counts.items():
            self.counts[protocol].add(tally.total())
        del self._by_name[name]
        self.changed()

    def totals(self, protocol: str) -> Counts:
        """Messages of all clients of a protocol since the start."""
        return sum_of([self.counts[protocol], *(vhost.counts[protocol].total() for vhost in self)])

    @property
    def wall_ms(self) -> int:
        """Wall clock of this tick, in milliseconds."""
        return self.removals.wall_ms

    @wall_ms.setter
    def wall_ms(self, wall_ms: int) -> None:
        self.removals.wall_ms = wall_ms

    def _dead_letter(
        self, queue: RuledQueue, entries: Iterable[Entry], reason: Reason, whole: bool
    ) -> tuple[list[Entry], list[Entry]]:
        return self[queue.vhost].dead_letter(queue, entries, reason, whole=whole)

    def _end_queue(self, queue: Queue, reason: Reason, spared: Container[Exchange] = ()) -> None:
        self[queue.vhost]._end_queue(queue, reason, spared)

    # -- automatic deletion

    def decide_again(self) -> None:
        """Decide again: delete the queues whose clients left meanwhile and have not come back."""
        self.deciding = True
        self._restart_expiries()
        left, self.left = self.left, []
        for queue in left:
            if not queue.deleted and not queue.consumers and queue.owner is None:
                self._end_queue(queue, _end_reason(queue))

    def expire(self, now: float) -> int:
        """Once a tick: delete queues unused for their time (`x-expires`), and some of those whose clients
        have left. Returns how many. A queue with pending dead letters is deleted later."""
        ended = 0
        self.producers.expire(self, now)
        for queue, reason in self.leaving.take_turn() if self.deciding and self.leaving.stirred else ():
            if queue.dying:
                self.leaving.add(queue, reason)
            else:
                self._end_queue(queue, reason)
                ended += 1
        for queue in self.expiries.due(now):
            queue.settle()
            if queue.dead_letters_due:
                self.expiries.wait(queue, now)
                continue
            self._end_queue(queue, Reason.QUEUE_EXPIRED)
            ended += 1
        return ended

    def _restart_expiries(self) -> None:
        """Restart the expiry of all queues, since clients may have been unable to use them."""
        for queue in self.queues_by_uuid.values():
            if not follows(queue):
                self.expiries.used(queue)

    def await_clients(self) -> bool:
        """This node begins to serve. Returns whether a queue or exchange waits for its clients; then call
        `delete_abandoned` when their time is over."""
        waiting = bool(self.abandoned_queues() or self.abandoned_exchanges())
        if waiting:
            self.reconnecting.begin()
            for vhost in self:
                vhost._changed()  # so that each name that is published to is looked up once more
        return waiting

    def abandoned_queues(self) -> list[Queue]:
        """Auto-delete queues that had a consumer, and exclusive queues, whose clients have not come back."""
        back = self.reconnecting
        return [
            queue
            for queue in self.queues_by_uuid.values()
            if (queue.auto_delete and queue.consumer_seen and not queue.consumers and queue not in back)
            or (queue.exclusive and queue.owner is None)
        ]

    def abandoned_exchanges(self) -> list[Exchange]:
        """Auto-delete exchanges that were bound, to queues that are not here."""
        exchanges = [exchange for vhost in self for exchange in vhost.exchanges.values()]
        back = self.reconnecting
        return [x for x in exchanges if x.auto_delete and x.bound and not x.bindings and x not in back]

    def delete_abandoned(self) -> int:
        """On the serving node, once: delete the abandoned queues and exchanges after their clients' time to
        return. Returns how many queues."""
        ended = self.abandoned_queues()
        for queue in ended:
            self._end_queue(queue, _end_reason(queue), spared=self.reconnecting)
        for exchange in self.abandoned_exchanges():
            self[exchange.vhost]._end_unbound([exchange])
        self.reconnecting.end()
        return len(ended)

    # -- the tick

    def dispatch(self) -> int:
        """Serve the pending queues once, at the end of a tick and before `history.flush`. Returns the
        messages delivered. Expired and excess messages that no consumer took are removed. Further dead
        letters of dead letters are made in later ticks."""
        sent = 0
        pending, removals = self.pending, self.removals
        removals.expire_due()
        removals.steps = self.steps
        for _ in range(ROUNDS):
            while pending and removals.steps > 0:
                queues = pending[:]
                pending.clear()
                for at, queue in enumerate(queues, 1):
                    sent += queue.dispatch()
                    if removals.steps <= 0:
                        pending[:0] = queues[at:]
                        break
            if not removals.settle():
                break
        removals.behind = bool(pending)
        return sent

    def page_out(self, overflow: Overflow, most: int) -> int:
        """Page out about `most` bytes of messages, from the deepest queues first. Returns the bytes that left
        memory."""
        done = 0
        deep = [queue for queue in self.queues_by_uuid.values() if queue.total_count > queue.window]
        for queue in sorted(deep, key=lambda queue: -queue.total_count):
            if done >= most:
                break
            done += queue.page_out(overflow, most - done)
            self._paging.add(queue)
        return done

    @property
    def paged(self) -> int:
        """Paged-out messages of serving queues."""
        self._paging = {queue for queue in self._paging if not queue.deleted}
        return sum(queue.backlog.paged_out for queue in self._paging)

    @property
    def octets(self) -> int:
        """Approximate memory of queues, exchanges and bindings, without messages and consumers."""
        return sum([vhost.octets for vhost in self])

    # -- virtual hosts, users, permissions, policies

    def change_directory(self, changes: Sequence[EntryPut | EntryDelete]) -> Scope:
        """Apply all changes in one batch, or none. Returns the scope touched; NONE if nothing changed.

        Deleting a user or a virtual host also deletes its permissions and the contents of the virtual host.
        Raises EntryFault, with nothing changed.
        """
        directory = self.directory
        planned = directory.copy()
        records: list[EntryPut | EntryDelete] = []
        for change in changes:
            check_change(planned, change)
            for record in planned.steps(change):
                planned.apply(record)
                records.append(record)
        if records and not self.serving:
            raise InternalError("the directory was changed while not serving")
        for record in records:
            self._change(record)
        if any(record.kind in (POLICY, OPERATOR_POLICY) for record in records):
            for vhost in self:
                apply_to_all(vhost)
        return SCOPE if records else Scope.NONE

    def put_cursor(self, vhost: str, agent: str, cursor: Cursor) -> None:
        """In the batch of the messages that were taken."""
        record = EntryPut(CURSOR, vhost, agent, cursor.value(), SCOPE)
        self.history.append(record)
        self.directory.apply(record)

    def put_seen(self, vhost: str, at: SeenAt, bits: bytes) -> None:
        """In the batch of messages that have come: these are known from now on. No bits: they are
        forgotten."""
        name = seen_name(*at)
        put = EntryPut(SEEN, vhost, name, {"bits": bits}, SCOPE)
        record = put if bits else EntryDelete(SEEN, vhost, name, SCOPE)
        self.history.append(record)
        self.directory.apply(record)

    def delete_cursor(self, vhost: str, agent: str) -> None:
        if (vhost, agent) in self.directory.cursors:
            record = EntryDelete(CURSOR, vhost, agent, SCOPE)
            self.history.append(record)
            self.directory.apply(record)

    def set_home(self, home: Home) -> None:
        """Link queues are those of `home` from now on."""
        record = EntryPut(HOME, "", HOME, home.value(), SCOPE)
        self.history.append(record)
        self.directory.apply(record)

    def _change(self, record: EntryPut | EntryDelete) -> None:
        ending = self.get(record.name) if isinstance(record, EntryDelete) and record.kind == VHOST else None
        if ending is not None:
            self.ending(ending)
            ending.end()
        self.history.append(record)
        self.apply_entry(record)

    def apply_entry(self, record: EntryPut | EntryDelete) -> None:
        """Apply an entry to the directory and the virtual hosts. Makes no history."""
        self.directory.apply(record)
        if record.kind == PRODUCER and isinstance(record, EntryDelete):
            self.producers.drop(record.vhost, record.name)
        if record.kind == VHOST:
            (self.add if isinstance(record, EntryPut) else self.remove)(record.name)
        if record.kind not in PROGRESS:
            self.changed()

    # -- replica and serving mode

    def apply(self, record: Record) -> None:
        """Apply one history record without making history. Idempotent; unknown queues are ignored.

        Raises InternalError while serving.
        """
        if self.serving:
            raise InternalError("virtual hosts that serve follow nobody")
        apply_record(self, record)

    def activate(self, epoch: int) -> int:
        """Begin to serve in `epoch`: positions and ids start again, contents become ready, older messages are
        redelivered. Queue mirrors stay mirrors. Returns how many queues and exchanges of level `unset` got a
        level.

        Raises InternalError, with nothing changed, if a queue's copy is incomplete or of a later epoch.
        """
        if self.serving:
            raise InternalError("already serving")
        own = [queue for queue in self.queues_by_uuid.values() if not follows(queue)]
        for queue in own:
            queue.check_may_serve(epoch)
        self.history.begin_epoch(epoch)
        stamped = stamp_unset(self, self.hooks)
        for record in self.definitions() if stamped else ():
            if not isinstance(record, EntryPut):
                self.history.append(record)
        for vhost in self:
            apply_to_all(vhost)
        self.link_numbers = LinkNumbers(epoch)
        for queue in own:
            queue.activate(epoch)
        self._restart_expiries()
        self.producers.serve(self)
        self.serving = True
        return stamped

    def keep_transient(self, keep: bool) -> None:
        """On the serving node: from now on, or no longer, the store gets transient messages of replicated,
        durable queues too. `unkept` names the queues with older ones."""
        self.transient_kept = keep
        self.unkept.clear()
        for queue in self.queues_by_uuid.values():
            if not keep:
                queue.keep_transient(False)
            elif queue.serves:
                self.keep_in(queue)
        for vhost in self:
            vhost._changed()

    def deactivate(self) -> None:
        """Stop serving: every queue becomes a replica. Flush history before. Consumers are not notified."""
        if self.transient_kept:
            self.keep_transient(False)
        for queue in self.queues_by_uuid.values():
            if queue.mode is Mode.ACTIVE:
                queue.deactivate()
        for vhost in self:
            vhost.forget_owners()
        self.pending.clear()
        self.left.clear()
        self.leaving.clear()
        self.expiries.clear()
        self.reconnecting.end()
        self.removals.clear()
        self.deciding = True
        self.producers.stop()
        self.serving = False

    def history_checkpoint(self, epoch: int) -> None:
        """A history checkpoint: all known members hold what was settled at the last one. Forget that, and
        settle what can be."""
        self.deleted_queues.history_checkpoint()
        for queue in self.queues_by_uuid.values():
            queue.history_checkpoint(epoch)

    def make_history_checkpoint(self) -> bool:
        """On the serving node: record a history checkpoint if there is anything to settle or forget."""
        if not self.serving:
            raise InternalError("a history checkpoint was made while not serving")
        epoch = self.history.epoch
        due = bool(self.deleted_queues) or any(
            queue.history_checkpoint_due() for queue in self.queues_by_uuid.values()
        )
        if due:
            self.history.append(HistoryCheckpoint(epoch, Scope.STORE | Scope.LINK))
            self.history_checkpoint(epoch)
        return due

    # -- reading

    def definitions(self, scope: Scope | None = None) -> list[Record]:
        """Entries, declarations, ConsumerSeen and bindings that rebuild what `scope` sees (all if None), in
        an order that applies."""
        return definitions_of(self, scope)

    def ends(self, scope: Scope) -> list[QueueEnds]:
        """What history ever had in the queues that `scope` sees, and in deleted queues."""
        found = [
            QueueEnds(q.uuid, q.ends() if q.content_scope & scope else {}, False, q.scope)
            for q in self.queues_by_uuid.values()
            if q.scope & scope
        ]
        return found + [
            QueueEnds(uuid, ends, True, Scope.STORE | Scope.LINK) for uuid, ends in self.deleted_queues
        ]

    def stored_marks(self) -> Iterator[QueueMarks]:
        """The marks of each queue, as the store has them: of messages that a restart keeps."""
        for queue in self.queues_by_uuid.values():
            if queue.marks and queue.content_scope & Scope.STORE:
                yield QueueMarks(queue.uuid, after_restart(queue.marks), Scope.STORE)

    def stored_ids(self) -> Iterator[QueueIds]:
        """The ids that each queue knows (`x-dedup-window`), as the store has them."""
        for queue in self.queues_by_uuid.values():
            if queue.recent is not None and queue.content_scope & Scope.STORE:
                yield from records_of(queue.uuid, queue.recent.after_restart(), Scope.STORE)

    def fingerprint(self, scope: Scope | None = None) -> str:
        """Hex hash of entries, queues, exchanges, bindings and message ids that `scope` sees (all if
        None)."""
        return fingerprint_of(self, scope)

    def list_queues(self, begin: int = 0, most: int | None = None) -> list[QueueInfo]:
        """At most `most` queues (None: all), from number `begin` on."""
        every = chain.from_iterable(vhost.queues.values() for vhost in self)
        return _queue_infos(self, list(islice(every, begin, None if most is None else begin + most)))


def _queue_infos(vhosts: VirtualHosts, queues: list[Queue]) -> list[QueueInfo]:
    policies = policy_names(vhosts.directory, queues)
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
            policies.get(q),
            q.vhost,
            q.rules.single_active,
            q.consumers.active if q.rules.single_active else None,
        )
        for q in queues
    ]


def _end_reason(queue: Queue) -> Reason:
    return Reason.OWNER_GONE if queue.exclusive else Reason.QUEUE_UNUSED
