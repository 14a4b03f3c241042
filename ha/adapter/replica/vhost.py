"""ReplicaVhost: the virtual hosts of a backup and their store, as the core's ReplicaModel sees them. Owner:
Node.

Each change of the model is handed to the store in the same call and the same order, filtered by scope. The
store syncs later; `synced` says how far. Quarantine and the incomplete mark are durable before the drop that
follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.model.history.batch import Batch
from broker.model.history.epoch_ends import EpochEnds, had
from broker.model.history.marks import Marks, after_restart, merged
from broker.model.history.recent_ids import RecentIds
from broker.model.history.record_codec import CorruptRecord, decode_records, encode_record, split_records
from broker.model.history.records import (
    Dequeue,
    EnqueueRun,
    EntryDelete,
    ExchangeDelete,
    MessageId,
    QueueDeclare,
    QueueDelete,
    QueueEnds,
    QueueIds,
    QueueMarks,
    Record,
)
from broker.model.queue.replica import ReplicaContents
from broker.model.values import ORIGIN, ROOT, Position, Reason, Scope
from broker.model.vhost.directory import VHOST
from broker.model.vhost.vhosts import VirtualHosts
from broker.model.vhost.windows import records_of, take_ids
from ha.adapter.ledger_port import BACKUP, LedgerPort
from ha.adapter.quarantine import Quarantine
from ha.adapter.recovery import Bases
from ha.adapter.replica.bad_events import bad_events, not_taken, out_of_line
from ha.adapter.replica.pending_drops import PendingDrops
from ha.adapter.replica.queue_words import gone_words
from ha.adapter.replica.still_to_come import StillToCome
from ha.adapter.replica.told_definitions import ToldDefinitions
from ha.core.errors import LinkError
from ha.core.ports import BadEvent, Dropped, IdsByEpoch
from ha.core.record.in_sync_record import InSyncRecord
from ha.core.wire.queue_snapshot import minus, total
from understudy.shared.codes import Coded

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue
    from broker.store.store import Store


class ReplicaVhost:
    """See `ha.core.ports.ReplicaModel`. `save_incomplete` is the node's: it writes the record file."""

    def __init__(
        self, vhosts: VirtualHosts, store: Store, bases: Bases, ledger: LedgerPort, quarantine: Quarantine,
        save_incomplete: Callable[[InSyncRecord], None],
    ) -> None:  # fmt: skip
        self._vhosts = vhosts
        self._store = store
        self._bases = bases
        self._ledger = ledger
        self._quarantine = quarantine
        self._save_incomplete = save_incomplete
        self._serial = 0
        self._aside: dict[bytes, ReplicaContents] = {}
        """Copies of queues that come anew, until those are whole."""
        self._lacking: set[bytes] = set()
        """Queues of which messages were still to come when the store was last told of their ends."""
        self._told_marks: dict[bytes, Marks] = {}
        """Which numbers of producers the primary's queues had, until all messages of the queue are here: no
        message is taken for a duplicate of one that this node does not hold."""
        self._told_ids: dict[bytes, RecentIds] = {}
        """The same for message ids (`x-dedup-window`)."""
        self._forgotten: dict[bytes, None] = {}
        """Queues of which the primary told such numbers or ids that this node does not know."""
        self._still_to_come = StillToCome()
        self._told = ToldDefinitions()
        self._pending_drops: PendingDrops | None = None
        """While a primary that expects this node has not yet told it everything."""
        self.position = ORIGIN
        """The newest batch, or definitions, that went into the model and to the store."""

    def held(self) -> dict[bytes, IdsByEpoch]:
        return {q.uuid: q.snapshot() for q in self._vhosts.queues_by_uuid.values() if q.scope & Scope.LINK}

    def held_in(self, queue: bytes) -> IdsByEpoch:
        found = self._vhosts.queues_by_uuid.get(queue)
        return {} if found is None or not found.scope & Scope.LINK else found.snapshot()

    def save_incomplete(self, record: InSyncRecord) -> None:
        self._save_incomplete(record)

    def begin_epoch(self, epoch: int) -> None:
        self._ledger.view = epoch

    # -- going back

    def keep_what_is_here(self, epoch: int | None) -> None:
        if epoch is None:
            self._pending_drops = None
        elif self._pending_drops is None:
            before: dict[bytes, tuple[IdsByEpoch, EpochEnds]] = {}
            for uuid, ends in self._vhosts.deleted_queues:
                before[uuid] = {}, ends  # the primary may have it yet, and declare it here again
            for queue in self._vhosts.queues_by_uuid.values():
                before[queue.uuid] = queue.replica.ids(), queue.replica.ends()
            marks = {uuid: dict(queue.marks) for uuid, queue in self._vhosts.queues_by_uuid.items()}
            queues = self._vhosts.queues_by_uuid.values()
            recent = {queue.uuid: queue.recent.copy() for queue in queues if queue.recent is not None}
            self._pending_drops = PendingDrops(epoch, before, marks, recent)
        else:
            self._pending_drops.begin_again()

    @property
    def no_way_back(self) -> frozenset[bytes]:
        return frozenset(self._pending_drops.ended if self._pending_drops is not None else ())

    def let_go(self) -> None:
        pending, self._pending_drops = self._pending_drops, None
        gone = self._still_to_come.all_here(self._vhosts.deleted_queues)
        if pending is not None:
            for uuid, beyond in pending.beyond.items():
                if (queue := self._vhosts.queues_by_uuid.get(uuid)) is not None:
                    self._export(queue, beyond)
            gone += [*pending.told, *pending.dropped]
        for record in gone:
            self._apply(record)
        if gone:
            self._append(self.position, gone)
        if pending is not None and gone:
            self._ledger.batch(Batch(self.position, 0, list(pending.told)), BACKUP)

    def go_back(self) -> None:
        pending, self._pending_drops = self._pending_drops, None
        if pending is None:
            return
        for queue in self._vhosts.queues_by_uuid.values():
            held, ends = pending.before.get(queue.uuid, ({}, {}))
            if came := minus(queue.replica.ids(), held):
                self._export(queue, minus(came, had(ends)))
                for epoch, ids in came.items():
                    queue.replica.drop(epoch, ids.ranges())
                self._drop(queue.uuid, came)
            if queue.replica.ends() != ends:
                queue.replica.set_ends(ends)
                self._note_ends(queue)
            if queue.marks != (marks := pending.marks.get(queue.uuid, {})):
                self._append(self.position, self._mark(queue.uuid, marks))
            recent = pending.recent.get(queue.uuid)
            if (queue.recent and queue.recent.state()) != (recent and recent.state()):
                self._append(self.position, self._know(queue.uuid, recent))
        self._lacking.clear()
        self._forgotten.clear()

    # -- the flow

    def apply_batch(self, position: Position, wall_ms: int, payload: bytes) -> tuple[list[BadEvent], bool]:
        records = self._decode(payload)
        if self._pending_drops is not None:
            records, payload = self._pending_drops.split(records), b""
        apply = self._vhosts.apply
        bad: list[BadEvent] = []
        own: list[Record] = []
        stored: list[Record] = []
        for record in records:
            try:
                if type(record) is EnqueueRun:
                    bad += out_of_line(self._vhosts, record)
                elif type(record) is QueueDelete:
                    self._export_beyond(record.uuid)
                elif type(record) is EntryDelete:
                    own += self._ends_with(record)
                elif type(record) is QueueDeclare:
                    own += self._gives_way_to(record)
                apply(record)
            except Exception as error:
                if not isinstance(record, EnqueueRun | Dequeue):
                    raise
                bad += bad_events(self._vhosts, record, f"{type(error).__name__}: {error}")
                if isinstance(record, Dequeue):
                    continue
                own += not_taken(self._vhosts, record)
            stored.append(record)
        framed = payload if len(stored) == len(records) else b""
        self._append(position, stored, framed=framed, own=own)
        self._ledger.batch(Batch(position, wall_ms, records), BACKUP)
        return bad, any(not record.scope & Scope.STORE for record in records)

    def _export_beyond(self, queue: bytes) -> None:
        """The queue is about to be deleted, perhaps before its snapshot has come: keep the messages that its
        history never had."""
        found = self._vhosts.queues_by_uuid.get(queue)
        if found is not None:
            self._export(found, minus(found.snapshot(), had(found.replica.ends())))
            if self._pending_drops is not None:
                self._pending_drops.end(queue)

    def _ends_with(self, entry: EntryDelete) -> list[Record]:
        """Queues of this node alone, which the link does not know, end with their virtual host: keep their
        messages, and tell the store."""
        vhost = self._vhosts.get(entry.name) if entry.kind == VHOST else None
        if vhost is None or entry.name == ROOT:
            return []
        for queue in vhost.queues.values():
            self._export(queue, queue.snapshot())
        return [QueueDelete(queue.uuid, queue.name, Scope.STORE) for queue in vhost.queues.values()]

    def _gives_way_to(self, declared: QueueDeclare) -> list[Record]:
        """A queue of this node alone ends when the primary declares one of its name."""
        vhost = self._vhosts.get(declared.vhost)
        queue = vhost.queues.get(declared.name) if vhost is not None else None
        if queue is None or queue.uuid == declared.uuid:
            return []
        self._export(queue, queue.snapshot())
        return [QueueDelete(queue.uuid, queue.name, Scope.STORE)]

    def name_of(self, queue: bytes) -> str | None:
        found = self._vhosts.queues_by_uuid.get(queue)
        return found.title if found is not None else None

    def renew_queue(self, queue: bytes) -> None:
        found = self._queue(queue)
        fresh = ReplicaContents()
        fresh.set_ends(found.replica.ends())
        fresh.unsure = True
        self._aside.setdefault(queue, found.replica)
        found.replica = fresh

    def abandon(self) -> None:
        self._write_told()
        for queue, old in self._aside.items():
            found = self._vhosts.queues_by_uuid.get(queue)
            if found is not None:
                # The store has both; and whoever joins anew says what is held, so that the rest of it may go.
                old.take_over(found.replica)
                found.replica = old
                # It may lack messages whose numbers are marked. One that comes twice is better than none.
                if found.marks or found.recent is not None:
                    self._forgotten[queue] = None
                self._append(self.position, [*self._mark(queue, {}), *self._know(queue, None)])
                if queue in self._lacking:
                    self._note_ends(found)
        self._aside.clear()
        self._forgotten |= dict.fromkeys([*self._told_marks, *self._told_ids])
        self._told_marks.clear()
        self._told_ids.clear()

    def claim(self) -> list[str]:
        """This node serves. Returns the queues that may take a message again, because it does not know all
        numbers of producers, or ids, that they had."""
        forgotten, self._forgotten = self._forgotten, {}
        for queue in self._vhosts.queues_by_uuid.values():
            queue.replica.complete()
            if queue.replica.claim():
                self._note_ends(queue)
        queues = self._vhosts.queues_by_uuid
        return [queues[uuid].title for uuid in forgotten if uuid in queues]

    def mark(self) -> int:
        return self._serial

    @property
    def synced(self) -> int:
        return self._store.synced

    @property
    def durable(self) -> Position:
        return self._store.durable

    # -- becoming equal

    def begin_definitions(self) -> None:
        self._told = ToldDefinitions()
        self._still_to_come.begin()
        self._lacking.clear()
        self._told_marks.clear()
        self._told_ids.clear()
        self._forgotten.clear()
        temporary = self._temporary()
        for record in temporary:
            self._apply(record)
        self._append(self.position, temporary)

    def take_definitions(self, position: Position, payload: bytes) -> None:
        wanted = self._decode(payload)
        stored: list[Record] = []
        for record in wanted:
            self._told.note(record)
            if isinstance(record, QueueMarks):
                self._told_marks[record.queue] = record.marks
                continue
            if isinstance(record, QueueIds):
                if (told := take_ids(self._told_ids.get(record.queue), record)) is not None:
                    self._told_ids[record.queue] = told
                continue
            if self._told.defers(record):
                continue
            changes = [*self._namesake_of(record), record]
            for change in changes:
                self._apply(change)
            stored += changes
            if isinstance(record, QueueEnds) and not record.deleted:
                stored += self._await_all(record.queue)
                stored += [*self._mark(record.queue, {}), *self._know(record.queue, None)]
        self._write_told()
        self._told.unwritten = stored
        self._ledger.batch(Batch(position, 0, wanted), BACKUP)

    def end_definitions(self, position: Position) -> list[Coded]:
        told, self._told = self._told, ToldDefinitions()
        stale: list[Record] = [*told.unbound(self._vhosts)]
        for queue in list(self._vhosts.queues_by_uuid.values()):
            gone = told.lacks_vhost(queue.vhost)
            taken = gone or (queue.vhost, queue.name) in told.names
            if queue.uuid not in told.queues and (queue.scope & Scope.LINK or taken):
                stale += self._stale(queue, told, there=not gone and taken)
        stale += told.others(self._vhosts)
        for record in [*told.deferred, *stale]:
            self._apply(record)
        self._append(position, [*told.unwritten, *told.deferred, *stale])
        return told.dropped

    def _write_told(self) -> None:
        """The last part goes to the store at the previous position. The end of all parts goes there with the
        new position: so a start from this disk has all definitions of its position."""
        if unwritten := self._told.unwritten:
            self._told.unwritten = []
            self._append(self.position, unwritten)

    def _namesake_of(self, declared: Record) -> list[Record]:
        """The primary has another queue of that name: the one here goes at once."""
        if not isinstance(declared, QueueDeclare):
            return []
        vhost = self._vhosts.get(declared.vhost)
        queue = vhost.queues.get(declared.name) if vhost is not None else None
        if queue is None or queue.uuid == declared.uuid:
            return []
        return self._stale(queue, self._told, there=True)

    def _stale(self, queue: Queue, told: ToldDefinitions, *, there: bool) -> list[Record]:
        """Delete a queue that the primary does not have. Messages that its history never had are exported."""
        deleted = told.deleted_queues.get(queue.uuid)
        beyond = minus(queue.snapshot(), had(deleted.ends if deleted is not None else {}))
        count = self._export(queue, beyond)
        if self._pending_drops is not None and queue.scope & Scope.LINK:
            self._pending_drops.end(queue.uuid)
        told.dropped.append(gone_words(queue.title, count, there=there, ended=deleted is not None))
        return [
            QueueDelete(queue.uuid, queue.name, queue.scope | Scope.STORE),
            deleted if deleted is not None else QueueEnds(queue.uuid, {}, True, Scope.STORE),
        ]

    def _await_all(self, queue: bytes) -> list[Record]:
        """Its snapshot has not begun: a node that is promoted by force from here lacks what history had and
        is not here. The store notes that, too."""
        found = self._vhosts.queues_by_uuid.get(queue)
        if found is None:
            return []
        self._still_to_come.add(found)
        if not found.replica.await_all():
            return []
        self._lacking.add(queue)
        return [self._ends_of(found)] if found.scope & Scope.STORE else []

    def _mark(self, queue: bytes, marks: Marks) -> list[Record]:
        """The queue has had these numbers of producers, and no others: the records for the store."""
        found = self._vhosts.queues_by_uuid.get(queue)
        if found is None or (not marks and not found.marks):
            return []
        self._vhosts.producers.set_marks(found, marks)
        return [QueueMarks(queue, after_restart(marks), Scope.STORE)] if found.scope & Scope.STORE else []

    def _know(self, queue: bytes, recent: RecentIds | None) -> list[Record]:
        """The queue knows these message ids, and no others: the records for the store."""
        found = self._vhosts.queues_by_uuid.get(queue)
        if found is None or (recent is None and found.recent is None):
            return []
        found.recent = recent
        if not found.scope & Scope.STORE:
            return []
        return [*records_of(queue, recent and recent.after_restart(), Scope.STORE)]

    def _temporary(self) -> list[Record]:
        """Delete what is neither stored nor replicated: it is left from when this node served, and has no
        owner any more. It ends here as it would with the process; the ledger notes its messages."""
        exchanges = [x for vhost in self._vhosts for x in vhost.exchanges.values() if not x.built_in]
        queues = [queue for queue in self._vhosts.queues_by_uuid.values() if not queue.scope]
        for queue in queues:
            reason = (Reason.OWNER_GONE if queue.exclusive else Reason.QUEUE_UNUSED).ledger_name
            for epoch, ids in queue.snapshot().items():
                for first, last in ids.ranges():
                    self._ledger.record(
                        "dequeue", queue=queue.uuid.hex(), epoch=epoch, first=first, last=last, reason=reason
                    )
        return [
            *(QueueDelete(queue.uuid, queue.name, queue.scope) for queue in queues),
            *(ExchangeDelete(x.name, x.scope, x.vhost) for x in exchanges if not x.scope),
        ]

    def begin_queue(self, queue: bytes, end: MessageId) -> str:
        found = self._queue(queue)
        self._still_to_come.add(found)
        found.replica.begin_incomplete(end)
        if found.replica.awaits and queue not in self._lacking:
            self._note_ends(found)
            self._lacking.add(queue)
        return found.title

    def take_piece(
        self, queue: bytes, after: MessageId, upto: MessageId, ids: IdsByEpoch, payload: bytes
    ) -> Dropped:
        found = self._vhosts.queues_by_uuid.get(queue)
        if found is None:
            return Dropped()  # begun, and deleted since
        extra = minus(found.replica.ids_within(after, upto), ids)
        quarantined = 0
        if extra:
            now, beyond = extra, minus(extra, had(found.replica.ends()))
            quarantined = total(beyond)
            if self._pending_drops is not None:
                later = self._pending_drops.drop(queue, extra, beyond)
                now, beyond = minus(extra, later), minus(beyond, later)
            self._export(found, beyond)
            for epoch, gone in now.items():
                found.replica.drop(epoch, gone.ranges())
            self._drop(queue, now)
        if payload:
            self._take_runs(found, payload)
        found.replica.settle(after, upto)
        return Dropped(total(extra), quarantined)

    def _take_runs(self, queue: Queue, payload: bytes) -> None:
        records = self._decode(payload)
        swallowed: list[Record] = []
        for record in records:
            if not isinstance(record, EnqueueRun) or record.queues != [queue.uuid]:
                raise LinkError("a snapshot piece with anything but runs of its queue")
            self._apply(record)
            # The store has their dequeues, but from before: it would bring them back at the next start.
            swallowed += [
                Dequeue(queue.uuid, epoch, Reason.DROPPED, ranges, Scope.STORE)
                for epoch, ranges in queue.replica.entombed(record).items()
            ]
        self._append(self.position, records, framed=payload, own=swallowed)
        self._ledger.batch(Batch(self.position, 0, records), BACKUP)

    def end_queue(self, queue: bytes) -> None:
        found = self._vhosts.queues_by_uuid.get(queue)
        if found is not None:
            found.replica.complete()
            if queue in self._lacking:
                self._note_ends(found)
            if queue in self._aside:
                self._drop(queue, minus(self._aside[queue].ids(), found.replica.ids()))
            if queue in self._told_marks:
                self._append(self.position, self._mark(queue, merged(self._told_marks[queue], found.marks)))
            if queue in self._told_ids:
                whole = self._told_ids[queue].with_newer(found.recent)
                self._append(self.position, self._know(queue, whole))
        self._told_marks.pop(queue, None)
        self._told_ids.pop(queue, None)
        self._lacking.discard(queue)
        self._aside.pop(queue, None)

    # -- inside

    def _note_ends(self, queue: Queue) -> None:
        """On disk too: a node that is promoted by force from here, perhaps after a restart, knows what it
        lacks."""
        if queue.scope & Scope.STORE:
            self._append(self.position, [self._ends_of(queue)])

    def _ends_of(self, queue: Queue) -> QueueEnds:
        return QueueEnds(queue.uuid, queue.replica.ends(), False, Scope.STORE)

    def _drop(self, queue: bytes, ids: IdsByEpoch) -> None:
        """From the store too."""
        self._append(
            self.position,
            [
                Dequeue(queue, epoch, Reason.DROPPED, gone.ranges(), Scope.STORE)
                for epoch, gone in ids.items()
            ],
        )

    def _append(
        self, position: Position, records: list[Record], *, framed: bytes = b"", own: Sequence[Record] = ()
    ) -> None:
        """Give the store the records that it sees: `records`, as they came in `framed` or to be encoded, then
        `own`."""
        encoded = _stored(framed)
        fresh = own if framed else [*records, *own]
        encoded += [encode_record(r) for r in fresh if r.scope & Scope.STORE]
        self._serial = self._store.append(position, encoded, [*records, *own])
        self.position = position
        if self._store.roll_due:
            self._store.roll(self._bases())

    def _export(self, queue: Queue, ids: IdsByEpoch) -> int:
        """Export to quarantine, fsynced, and note it in the ledger. Returns how many."""
        entries = queue.entries_for(ids) if ids else []
        if entries:
            self._quarantine.export(queue.uuid, queue.name, entries, queue.vhost)
            for epoch, gone in ids.items():
                for first, end in gone.ranges():
                    self._ledger.record(
                        "quarantine", queue=queue.uuid.hex(), epoch=epoch, first=first, last=end
                    )
        return len(entries)

    def _queue(self, queue: bytes) -> Queue:
        found = self._vhosts.queues_by_uuid.get(queue)
        if found is None:
            raise LinkError(f"a snapshot of queue {queue.hex()}, which is not defined")
        return found

    def _apply(self, record: Record) -> None:
        """Apply a record that makes the copy equal. A failure costs the link, and not the node."""
        try:
            self._vhosts.apply(record)
        except Exception as error:
            what = type(record).__name__
            raise LinkError(f"a {what} that cannot be applied ({type(error).__name__}: {error})") from error

    def _decode(self, payload: bytes) -> list[Record]:
        try:
            return decode_records(payload)
        except CorruptRecord as error:
            raise LinkError(f"history that cannot be read: {error}") from error


def _stored(payload: bytes) -> list[bytes]:
    """The records that the store sees, still encoded. A large message is most often alone, and not copied."""
    found = []
    for _, scope, framed in split_records(payload):
        if scope & Scope.STORE:
            found.append(payload if len(framed) == len(payload) else bytes(framed))
    return found
