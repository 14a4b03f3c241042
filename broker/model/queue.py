"""One queue: ready messages, unacknowledged ones, consumers. The hot path of the model.

Owner: `VirtualHost`. Channels call enqueue (through `VirtualHost.publish`), acknowledge, requeue, drop, pop;
the virtual host calls `dispatch` at the end of a tick for every queue that was scheduled. Work is per batch:
what must touch each message does so inside one C call (`extend`, `zip`, `map`). What a queue is as a whole is
in its base, `QueueContents`.
"""

from __future__ import annotations

from itertools import groupby, repeat

from broker.errors import InternalError
from broker.model.consumer import Consumer
from broker.model.dispatch import dispatch_to_many
from broker.model.priority_ready import PriorityReady
from broker.model.put_back import put_back
from broker.model.queue_arguments import OverflowRule
from broker.model.queue_contents import Mode, QueueContents, epoch_of, seq_of
from broker.model.records import Dequeue, Entry, Envelope, id_of
from broker.model.removals import AT_ONCE, DROPPED_AT_ONCE, OCTETS_AT_ONCE
from broker.model.replication_id_set import Range, ReplicationIdSet
from broker.model.values import DYING, Reason

__all__ = ["Mode", "Queue"]


class Queue(QueueContents):
    """A queue, and what happens to its messages. Attributes are those of `QueueContents`."""

    __slots__ = ()

    # -- looking

    @property
    def exclusive_consumer(self) -> bool:
        return any(c.exclusive for c in self.consumers)

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
        back = self.back
        back.extend(zip(range(first, first + len(raws)), repeat(envelope), raws, strict=False))
        if back is not self.ready:
            self.backlog.count += len(raws)
        if envelope.persistent and not self.stored:
            self._now_stored()
        if envelope.expiration is not None:
            self.timed = self.watched = True
        if self.watched:
            self._came(raws)
        if not self.scheduled and self.consumers:
            self.schedule()
        return first

    # -- out

    def dispatch(self) -> int:
        """Hand ready messages to consumers that have credit, round robin per message; how many went."""
        self.scheduled = False
        if self.watched:
            self.removals.touch(self)
        ready, consumers = self.ready, self.consumers
        if not ready or not consumers or self.mode is not Mode.ACTIVE:
            return 0
        if len(consumers) > 1:
            sent, self._turn = dispatch_to_many(self, self._turn)
        else:
            consumer = consumers[0]
            sent = min(consumer.sink.credit(consumer), len(ready))
            if sent <= 0:
                return 0
            if sent == len(ready) and not self.timed:
                batch = list(ready)
                ready.clear()
            else:
                batch = self.take_ready(sent)
                sent = len(batch)
            if batch:
                self.hand_over(consumer, batch)
        if self.backlog.count:
            emptied = not ready
            self._refill()
            if emptied and sent:
                self.schedule()
            elif emptied:
                self.removals.resume(self)
        return sent

    def _refill(self) -> None:
        """What was taken comes from the backlog."""
        if len(self.ready) * 2 <= self.window:
            self.backlog.refill(self.ready, self.window)
            if not self.backlog.count:
                self.back = self.ready

    def take_ready(self, count: int) -> list[Entry]:
        """The `count` oldest ready messages, removed from `ready`. There must be as many; those whose time is
        over leave instead, and then there may be fewer: also if they are many, and the others' turn is later.
        """
        popleft = self.ready.popleft
        if not self.timed:
            return [popleft() for _ in range(count)]
        fresh: list[Entry] = []
        over: list[Entry] = []
        now, most = self.removals.fresh, AT_ONCE
        while self.ready and len(fresh) < count and len(over) < most:
            entry = popleft()
            until = self._until(entry[1])
            if until is None or until >= now:
                fresh.append(entry)
                continue
            most = most if over else self.removals.portion(self)
            over.append(entry)
        if len(over) == most:
            self.removals.resume(self)
        self._left(over, Reason.EXPIRED)
        return fresh

    def hand_over(self, consumer: Consumer, batch: list[Entry]) -> None:
        """Give messages just taken from `ready` to a consumer: unacked from now on, or gone if it never
        acks."""
        if self.sized:
            self.ready_octets -= self._octets(batch)
        if consumer.no_ack:
            self._leave(batch, Reason.ACKED)
        else:
            self._hold(batch)
        consumer.sink.deliver(consumer, self, batch)

    def pop(self, *, no_ack: bool) -> Entry | None:
        """basic.get: the oldest ready message, unacked from now on unless `no_ack`."""
        self.settle()
        taken: list[Entry] = []
        while self.ready and not taken:
            taken = self.take_ready(1)
            if self.backlog.count:
                self._refill()
        if self.watched:
            self.removals.touch(self)
        if not taken:
            return None
        (entry,) = taken
        if self.sized:
            self.ready_octets -= self._octets(taken)
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
        if isinstance(ready, PriorityReady):
            ready.put_back(back)
        else:
            if self.backlog.count:
                back = self.backlog.put_back(back)
            put_back(ready, back)
        if self.watched:
            self._came([raw for _, _, raw in entries])
        if self.consumers:
            self.schedule()

    def purge(self) -> int:
        """Ready messages leave with reason PURGED; how many."""
        count = self.message_count
        purged = list(self.ready)
        self.ready.clear()
        if purged:
            self._leave(purged, Reason.PURGED)
        self._leave_backlog(Reason.PURGED)
        self.ready_octets = 0
        return count

    def end(self, reason: Reason = Reason.DELETED) -> int:
        """The queue is being deleted: all it holds leaves with `reason`. How many were ready."""
        count = self.message_count
        held = [*self.ready, *self._unacked_entries()]
        if held:
            self._leave(held, reason)
        self._leave_backlog(reason)
        self.ready.clear()
        self._unacked.clear()
        self.replica.clear()
        self.unacked_count = self._foreign = 0
        self.deleted = True
        return count

    # -- by rule

    def _came(self, raws: list[bytes]) -> None:
        if self.sized:
            size = self.removals.format.body_size
            self.ready_octets += sum(map(size, raws))
        self.removals.touch(self)

    def _until(self, envelope: Envelope) -> int | None:
        """The wall clock at which the time of its messages is over; None: never."""
        limit, own = self.rules.message_ttl, envelope.expiration
        if own is not None and (limit is None or own < limit):
            limit = own
        return None if limit is None else envelope.wall_ms + limit

    def head_expiry(self) -> int | None:
        """When the oldest ready message is over; those behind it wait until they are the oldest."""
        return self._until(self.ready[0][1]) if self.timed and self.ready else None

    @property
    def owes_letters(self) -> bool:
        """The oldest ready message is over, and has not been dead-lettered yet."""
        until = self.head_expiry() if self.rules.dead_letters else None
        return until is not None and until <= self.removals.wall_ms

    def remove_expired(self, upto: int) -> None:
        """Messages at the head whose time is over by `upto` leave, some of them at once."""
        over: list[Entry] = []
        most = AT_ONCE
        while self.timed and self.ready and len(over) < most:
            until = self._until(self.ready[0][1])
            if until is None or until > upto:
                break
            most = most if over else self.removals.portion(self)
            over.append(self.ready.popleft())
            if self.backlog.count:
                self._refill()
        self._left(over, Reason.EXPIRED)

    def remove_excess(self) -> None:
        """Over a limit, the oldest ready messages leave (`drop-head`); if they are many, some at once, the
        others soon."""
        rules = self.rules
        if not rules.limited or rules.overflow is not OverflowRule.DROP_HEAD:
            return
        over: list[Entry] = []
        excess = 0 if rules.max_length is None else self.message_count - rules.max_length
        octets = 0 if rules.max_length_bytes is None else self.ready_octets - rules.max_length_bytes
        if excess <= 0 and octets <= 0:
            return
        most = self.removals.portion(self) if rules.dead_letters else DROPPED_AT_ONCE
        room = OCTETS_AT_ONCE
        while self.ready and (excess > 0 or octets > 0):
            if len(over) == most or room <= 0:
                self.removals.touch(self)
                break
            entry = self.ready.popleft()
            over.append(entry)
            room -= len(entry[2])
            excess -= 1
            if self.sized:
                octets -= self.removals.format.body_size(entry[2])
            if self.backlog.count:
                self._refill()
        self._left(over, Reason.DROPPED)

    def _left(self, entries: list[Entry], reason: Reason) -> None:
        """Ready messages, just taken from `ready`, leave by rule."""
        if not entries:
            return
        if self.sized:
            self.ready_octets -= self._octets(entries)
        self._leave(entries, reason)

    def settle(self) -> None:
        """Before its head or its length is told, or it is emptied: what is over or too much, and no consumer
        is about to take, leaves now and not at the end of the tick."""
        if self.watched and self.serves and not self._wanted():
            self.remove_expired(self.removals.wall_ms)
            self.remove_excess()

    def _wanted(self) -> int:
        """Messages that consumers can take at once."""
        return sum(max(0, consumer.sink.credit(consumer)) for consumer in self.consumers)

    def room(self, raws: list[bytes]) -> int:
        """How many of these, the first ones, the queue takes before it is full (`reject-publish`)."""
        rules, most = self.rules, len(raws)
        waiting = self._wanted() - self.message_count
        if rules.max_length is not None:
            most = min(most, max(0, rules.max_length + waiting))
        if rules.max_length_bytes is not None:
            octets = self.ready_octets
            for count, raw in enumerate(raws[:most]):
                octets += self.removals.format.body_size(raw)
                if octets > rules.max_length_bytes and count >= waiting:
                    return count
        return most

    # -- accounts

    def _hold(self, batch: list[Entry]) -> None:
        self.unacked_count += len(batch)
        if self._foreign:
            for epoch, group in groupby(batch, epoch_of):
                self._unacked.setdefault(epoch, {}).update((entry[0], entry) for entry in group)
            return
        held = self._unacked.get(self.ids.epoch)
        if held is None:
            held = self._unacked[self.ids.epoch] = {}
        held.update(zip(map(seq_of, batch), batch, strict=True))

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
        """Into history, or to the dead letter exchange. `entries` are already out of `ready` and unacked.

        With a dead letter exchange it is one step with the copies: also for what stayed, since of two queues
        one may have taken it, or a full one may have sent it on.
        """
        dies = reason in DYING and self.rules.dead_letters
        if dies:
            moved, entries = self.removals.move(self, entries, reason)
            if moved:
                self._note(moved, Reason.DEAD_LETTERED)
        if entries:
            self._note(entries, reason)
        if dies:
            self.history.gather()

    def _note(self, entries: list[Entry], reason: Reason) -> None:
        """Into history, if anybody wants it."""
        scope = self._leave_scope
        wanted = scope or self.history.ledger_wanted
        epoch = self.ids.epoch
        if not self._foreign:
            if wanted:
                self.history.dequeue(self.uuid, epoch, map(seq_of, entries), reason, scope)
            return
        for number, group in groupby(sorted(entries, key=epoch_of), epoch_of):
            seqs = [entry[0] for entry in group]
            if number != epoch:
                self._foreign -= len(seqs)
            if wanted:
                self.history.dequeue(self.uuid, number, seqs, reason, scope)

    def _leave_backlog(self, reason: Reason) -> None:
        """All of it, by ranges: it may be more than fits into memory."""
        ranges: dict[int, list[Range]] = {}
        for run in self.backlog.runs():
            ranges.setdefault(run.epoch, []).extend(run.live_ranges())
            if run.epoch != self.ids.epoch:
                self._foreign -= run.left
        self.backlog.clear()
        self.back = self.ready
        if self._leave_scope or self.history.ledger_wanted:
            for epoch, gone in ranges.items():
                joined = ReplicationIdSet(gone).ranges()
                self.history.left[reason] += sum(last - first + 1 for first, last in joined)
                self.history.append(Dequeue(self.uuid, epoch, reason, joined, self._leave_scope))
