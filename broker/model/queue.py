"""One queue: ready messages, unacknowledged ones, consumers. The hot path of the model.

Owner: `VirtualHost`. Channels call enqueue (through `VirtualHost.publish`), acknowledge, requeue, drop, pop;
the virtual host calls `dispatch` at the end of a tick for every queue that was scheduled. Work is per batch:
what must touch each message does so inside one C call (`extend`, `zip`, `map`).

`ready` is sorted by (epoch, sequence) always. A message handed out and not yet acknowledged still belongs to
the queue's contents (a snapshot includes it), hence `_unacked`: per epoch, sequence -> entry.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from itertools import groupby, repeat
from operator import itemgetter

from broker.errors import InternalError
from broker.model.consumer import Consumer
from broker.model.dispatch import dispatch_to_many
from broker.model.epoch_ends import EpochEnd, EpochEnds, after_milestone
from broker.model.expiries import expires_of
from broker.model.history import History
from broker.model.id_source import IdSource
from broker.model.queue_replica import ReplicaContents
from broker.model.records import Entry, Envelope, QueueDeclare, id_of
from broker.model.replication_id_set import ReplicationIdSet
from broker.model.values import Reason, Scope


class Mode(enum.Enum):
    ACTIVE = "active"
    """Serves: contents are `ready` and unacked."""
    REPLICA = "replica"
    """Follows: contents are in `replica`."""


_seq_of = itemgetter(0)


def _epoch_of(entry: Entry) -> int:
    return entry[1].epoch


class Queue:
    """One queue. Attributes are to be read by all, and written by the model only, save `ids` and `owner`.

    `expires`: seconds without use after which it ends, or None.
    `exclusive`: declared so; `owner`: the connection it belongs to, None until claimed after a promotion.
    `earlier`: how far history got in epochs before the one served.
    `stored`: may the store hold any of its messages? Until then dequeues need not go there. `deleted`: gone;
    messages that channels still hold come back to nothing.
    """

    __slots__ = (
        "_foreign",
        "_leave_scope",
        "_turn",
        "_unacked",
        "arguments",
        "auto_delete",
        "consumer_seen",
        "consumers",
        "content_scope",
        "deleted",
        "durable",
        "earlier",
        "exclusive",
        "expires",
        "history",
        "ids",
        "mode",
        "name",
        "on_schedule",
        "owner",
        "ready",
        "replica",
        "replicate",
        "scheduled",
        "scope",
        "stored",
        "unacked_count",
        "uuid",
    )

    def __init__(
        self,
        declared: QueueDeclare,
        history: History,
        on_schedule: Callable[[Queue], None],
        *,
        mode: Mode,
        epoch: int,
        owner: object = None,
    ) -> None:
        self.name = declared.name
        self.uuid = declared.uuid
        self.durable = declared.durable
        self.exclusive = declared.exclusive
        self.auto_delete = declared.auto_delete
        self.arguments = declared.arguments
        self.expires = expires_of(declared.arguments)
        self.replicate = declared.replicate
        self.scope = declared.scope
        self.content_scope = declared.content_scope
        self.stored = False
        self._leave_scope = self.content_scope & ~Scope.STORE
        self.owner = owner
        self.history = history
        self.on_schedule = on_schedule
        self.mode = mode
        self.ids = IdSource(epoch)
        self.ready: deque[Entry] = deque()
        self.replica = ReplicaContents()
        self.unacked_count = 0
        self.consumers: list[Consumer] = []
        self.consumer_seen = False
        self.deleted = False
        self.scheduled = False
        self.earlier: EpochEnds = {}
        self._turn = 0
        self._unacked: dict[int, dict[int, Entry]] = {}
        self._foreign = 0  # messages held, ready or unacked, whose epoch is not that of `ids`

    # -- looking

    @property
    def message_count(self) -> int:
        """Ready messages (what Declare-Ok and Get-Ok report)."""
        return len(self.ready)

    @property
    def total_count(self) -> int:
        """All messages held, unacked included; also in REPLICA mode."""
        return len(self.ready) + self.unacked_count if self.mode is Mode.ACTIVE else self.replica.count

    @property
    def exclusive_consumer(self) -> bool:
        return any(c.exclusive for c in self.consumers)

    def declaration(self) -> QueueDeclare:
        return QueueDeclare(
            self.uuid,
            self.name,
            self.durable,
            self.exclusive,
            self.auto_delete,
            self.arguments,
            self.replicate,
            self.scope,
        )

    def schedule(self) -> None:
        """Ask for a `dispatch` at the end of this tick: messages, consumers or credit came. Cheap,
        repeatable."""
        if not self.scheduled and self.mode is Mode.ACTIVE and not self.deleted:
            self.scheduled = True
            self.on_schedule(self)

    # -- in

    def enqueue_run(self, envelope: Envelope, raws: list[bytes]) -> int:
        """Append messages; the first one's sequence. Makes no history: `VirtualHost.publish` does."""
        first = self.ids.take(len(raws))
        self.ready.extend(zip(range(first, first + len(raws)), repeat(envelope), raws, strict=False))
        if envelope.persistent and not self.stored:
            self._now_stored()
        if not self.scheduled and self.consumers:
            self.schedule()
        return first

    def _now_stored(self) -> None:
        """The store may hold messages of this queue: from now on it is told of dequeues."""
        self.stored = True
        self._leave_scope = self.content_scope

    # -- out

    def dispatch(self) -> int:
        """Hand ready messages to consumers that have credit, round robin per message; how many went."""
        self.scheduled = False
        ready, consumers = self.ready, self.consumers
        if not ready or not consumers or self.mode is not Mode.ACTIVE:
            return 0
        if len(consumers) > 1:
            sent, self._turn = dispatch_to_many(self, self._turn)
            return sent
        consumer = consumers[0]
        credit = consumer.sink.credit(consumer)
        if credit <= 0:
            return 0
        if credit >= len(ready):
            batch = list(ready)
            ready.clear()
        else:
            batch = self.take_ready(credit)
        self.hand_over(consumer, batch)
        return len(batch)

    def take_ready(self, count: int) -> list[Entry]:
        """The `count` oldest ready messages, removed from `ready`. There must be as many."""
        popleft = self.ready.popleft
        return [popleft() for _ in range(count)]

    def hand_over(self, consumer: Consumer, batch: list[Entry]) -> None:
        """Give messages just taken from `ready` to a consumer: unacked from now on, or gone if it never
        acks."""
        if consumer.no_ack:
            self._leave(batch, Reason.ACKED)
        else:
            self._hold(batch)
        consumer.sink.deliver(consumer, self, batch)

    def pop(self, *, no_ack: bool) -> Entry | None:
        """basic.get: the oldest ready message, unacked from now on unless `no_ack`."""
        if not self.ready:
            return None
        entry = self.ready.popleft()
        if no_ack:
            self._leave([entry], Reason.ACKED)
        else:
            self._hold([entry])
        return entry

    # -- back from consumers

    def acknowledge(self, entries: list[Entry]) -> None:
        """Consumers are done with these (any order, each once): they leave with reason ACKED."""
        self.drop(entries, Reason.ACKED)

    def drop(self, entries: list[Entry], reason: Reason) -> None:
        """Unacked messages leave for `reason`. Raises InternalError if one of them is not unacked."""
        if self.deleted or self.mode is not Mode.ACTIVE or not entries:
            return
        self._unhold(entries)
        self._leave(entries, reason)

    def requeue(self, entries: list[Entry]) -> None:
        """Unacked messages are ready again at their original place by id, redelivered from now on."""
        if self.deleted or self.mode is not Mode.ACTIVE or not entries:
            return
        self._unhold(entries)
        back = [(seq, envelope.as_redelivered(), raw) for seq, envelope, raw in entries]
        back.sort(key=id_of)
        ready = self.ready
        if ready and id_of(ready[0]) < id_of(back[-1]):
            newest = id_of(back[-1])
            while ready and id_of(ready[0]) < newest:
                back.append(ready.popleft())
            back.sort(key=id_of)
        ready.extendleft(reversed(back))
        if self.consumers:
            self.schedule()

    def purge(self) -> int:
        """Ready messages leave with reason PURGED; how many."""
        purged = list(self.ready)
        self.ready.clear()
        if purged:
            self._leave(purged, Reason.PURGED)
        return len(purged)

    def end(self) -> int:
        """The queue is being deleted: all it holds leaves with reason DELETED. How many were ready."""
        count = len(self.ready)
        held = [*self.ready, *self._unacked_entries()]
        if held:
            self._leave(held, Reason.DELETED)
        self.ready.clear()
        self._unacked.clear()
        self.replica.clear()
        self.unacked_count = self._foreign = 0
        self.deleted = True
        return count

    # -- accounts

    def _hold(self, batch: list[Entry]) -> None:
        self.unacked_count += len(batch)
        if self._foreign:
            for epoch, group in groupby(batch, _epoch_of):
                self._unacked.setdefault(epoch, {}).update((entry[0], entry) for entry in group)
            return
        held = self._unacked.get(self.ids.epoch)
        if held is None:
            held = self._unacked[self.ids.epoch] = {}
        held.update(zip(map(_seq_of, batch), batch, strict=True))

    def _unhold(self, entries: list[Entry]) -> None:
        try:
            if self._foreign:
                for seq, envelope, _ in entries:
                    del self._unacked[envelope.epoch][seq]
            else:
                held = self._unacked[self.ids.epoch]
                for entry in entries:
                    del held[entry[0]]
        except KeyError:
            raise InternalError(f"queue '{self.name}': a message was settled that is not unacked") from None
        self.unacked_count -= len(entries)

    def _leave(self, entries: list[Entry], reason: Reason) -> None:
        """Into history, if anybody wants it. `entries` are already out of `ready` and unacked."""
        scope = self._leave_scope
        wanted = scope or self.history.ledger_wanted
        epoch = self.ids.epoch
        if not self._foreign:
            if wanted:
                self.history.dequeue(self.uuid, epoch, map(_seq_of, entries), reason, scope)
            return
        for number, group in groupby(sorted(entries, key=_epoch_of), _epoch_of):
            seqs = [entry[0] for entry in group]
            if number != epoch:
                self._foreign -= len(seqs)
            if wanted:
                self.history.dequeue(self.uuid, number, seqs, reason, scope)

    def _unacked_entries(self) -> list[Entry]:
        return [entry for held in self._unacked.values() for entry in held.values()]

    # -- the whole contents

    def snapshot(self) -> dict[int, ReplicationIdSet]:
        """Ids of all messages held (ready and unacked, or the replica's), by epoch; no empty sets."""
        if self.mode is Mode.REPLICA:
            return self.replica.ids()
        seqs: dict[int, list[int]] = {epoch: list(held) for epoch, held in self._unacked.items() if held}
        for epoch, group in groupby(self.ready, _epoch_of):
            seqs.setdefault(epoch, []).extend(map(_seq_of, group))
        return {epoch: ReplicationIdSet.of(seqs[epoch]) for epoch in sorted(seqs)}

    def held_entries(self) -> list[Entry]:
        """All messages held, sorted by id: a frozen list to cut a snapshot from over many ticks."""
        if self.mode is Mode.REPLICA:
            return self.replica.entries()
        if not self.unacked_count:
            return list(self.ready)
        return sorted([*self._unacked_entries(), *self.ready], key=id_of)

    def entries_for(self, ids: dict[int, ReplicationIdSet]) -> list[Entry]:
        """Those held that are in `ids`, sorted by id."""
        if self.mode is Mode.REPLICA:
            return self.replica.entries_for(ids)
        found: list[Entry] = []
        for epoch, group in groupby(self.held_entries(), _epoch_of):
            wanted = ids.get(epoch)
            if wanted:
                found += [entry for entry in group if entry[0] in wanted]
        return found

    def ends(self) -> EpochEnds:
        """How far each epoch got in this queue."""
        if self.mode is Mode.REPLICA:
            return self.replica.ends()
        if self.ids.next == 1:
            return dict(self.earlier)
        return self.earlier | {self.ids.epoch: EpochEnd(self.ids.next - 1)}

    def milestone(self, epoch: int) -> None:
        """Forget ends of epochs before `epoch` that had settled, and settle those without messages."""
        if self.mode is Mode.REPLICA:
            self.replica.set_ends(after_milestone(self.replica.ends(), self.replica.held_epochs(), epoch))
        else:
            self.earlier = after_milestone(self.earlier, self._held_epochs(), epoch)

    def milestone_due(self) -> bool:
        """While it serves: would one change anything?"""
        if not self.earlier:
            return False
        held = self._held_epochs()
        return any(end.settled or number not in held for number, end in self.earlier.items())

    def _held_epochs(self) -> set[int]:
        """Epochs before the one served of which messages are held; O(log n) each."""
        held = {number for number, some in self._unacked.items() if some}
        for number in self.earlier if self._foreign else ():
            at = bisect_left(self.ready, (number, 0), key=id_of)
            if at < len(self.ready) and _epoch_of(self.ready[at]) == number:
                held.add(number)
        return held

    # -- changing sides

    def set_scope(self, scope: Scope, replicate: str) -> None:
        """A follower is told of another scope. Not for a serving queue: routes remember its scope."""
        self.scope = scope
        self.replicate = replicate
        self.content_scope = content = self.declaration().content_scope
        self._leave_scope = content if self.stored else content & ~Scope.STORE

    def check_may_serve(self, epoch: int) -> None:
        """Raises InternalError while the replica is incomplete, or has seen messages of `epoch` or a later
        one."""
        if self.replica.incomplete:
            raise InternalError(f"queue '{self.name}' cannot serve: its copy is incomplete")
        newest = max(self.replica.ends(), default=0)
        if newest >= epoch:
            raise InternalError(f"queue '{self.name}' has messages of epoch {newest}, not before {epoch}")

    def activate(self, epoch: int) -> None:
        """REPLICA -> ACTIVE: contents become ready; those of earlier epochs are redelivered (invariant 23).

        Raises InternalError as `check_may_serve`.
        """
        self.check_may_serve(epoch)
        self.earlier = self.replica.ends()
        self.ready = deque()
        for entries in self.replica.drain():
            self.ready.extend(entries)
        self._foreign = len(self.ready)
        if self.ready:
            self._now_stored()
        self.replica = ReplicaContents()
        self.ids = IdSource(epoch)
        self._unacked = {}
        self.unacked_count = 0
        self.mode = Mode.ACTIVE

    def deactivate(self) -> None:
        """ACTIVE -> REPLICA: ready and unacked become replica contents; consumers are forgotten untold."""
        contents = ReplicaContents()
        contents.set_ends(self.ends())
        entries = self.held_entries()
        start = 0
        while start < len(entries):
            seq, envelope, _ = entries[start]
            stop = start + 1
            while (
                stop < len(entries)
                and entries[stop][1] is envelope
                and entries[stop][0] == seq + stop - start
            ):
                stop += 1
            contents.add_run(seq, envelope, [raw for _, _, raw in entries[start:stop]])
            start = stop
        self.mode = Mode.REPLICA
        self.replica = contents
        self.ready = deque()
        self._unacked = {}
        self.unacked_count = self._foreign = 0
        self.consumers.clear()
        self.scheduled = False
        self.owner = None
