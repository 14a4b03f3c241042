"""One queue: ready messages, unacknowledged messages and consumers. The hot path of the model.

Owner: `VirtualHost`. Channels call `acknowledge`, `requeue`, `drop` and `pop`, and enqueue through
`VirtualHost.publish`. At the end of a tick the virtual host calls `dispatch` for every scheduled queue. Work
is per batch; what must touch each message does so inside one C call (`extend`, `zip`, `map`). The base class
`QueueContents` holds the state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, repeat

from broker.errors import InternalError
from broker.model.history.records import Dequeue, Entry, Envelope, id_of
from broker.model.history.replication_id_set import Range, ReplicationIdSet
from broker.model.queue.arguments import OverflowRule, QueueRules
from broker.model.queue.browsing import browse
from broker.model.queue.consumer import Consumer
from broker.model.queue.contents import Dying, Mode, QueueContents, epoch_of, seq_of
from broker.model.queue.delays.due_ready import RETRY, DueReady
from broker.model.queue.dispatch import dispatch_to_many
from broker.model.queue.freeing import PIECE, stretches
from broker.model.queue.keyed.group_dispatch import dispatch_groups
from broker.model.queue.keyed.last_value import LastValueReady
from broker.model.queue.keyed.message_groups import GroupedReady
from broker.model.queue.put_back import put_back
from broker.model.queue.removals import AT_ONCE, DROPPED_AT_ONCE, HAND, OCTETS_AT_ONCE
from broker.model.queue.returns import Returns
from broker.model.statistics import Shares
from broker.model.values import DYING, Reason

__all__ = ["Mode", "Queue"]

_JOINED = 256
"""Refused messages joined into one group, whose clients are answered together."""


class Queue(QueueContents):
    """A queue and the operations on its messages. `QueueContents` describes the attributes."""

    __slots__ = ()

    # -- reading

    @property
    def exclusive_consumer(self) -> bool:
        return self.consumers.exclusive

    @property
    def served(self) -> list[Consumer]:
        """The consumers that get messages: all, or only one with `x-single-active-consumer`."""
        if not self.rules.single_active:
            return self.consumers.in_order()
        active = self.consumers.active
        return [] if active is None else [active]

    def schedule(self) -> None:
        """Request a `dispatch` at the end of this tick, after messages, consumers or credit arrived. Cheap
        and idempotent."""
        if not self.scheduled and self.mode is Mode.ACTIVE and not self.deleted:
            self.scheduled = True
            self.on_schedule(self)

    def credit_came(self) -> None:
        """A consumer may get more: request a `dispatch`, if there may be anything for it."""
        if self.ready or self.backlog.count or self.browsers or self.watched:
            self.schedule()

    # -- in

    def enqueue_run(self, envelope: Envelope, raws: list[bytes]) -> int:
        """Append messages. Returns the first sequence. Makes no history; `VirtualHost.publish` does that."""
        first = self.ids.take(len(raws))
        came = self.came
        if came is None or envelope.exchange is not came.name:
            self._came_from(envelope.exchange)
        self.counts.publish += len(raws)
        back = self.back
        back.extend(zip(range(first, first + len(raws)), repeat(envelope), raws, strict=False))
        if back is not self.ready:
            self.backlog.count += len(raws)
        if envelope.persistent and not self.stored:
            self._now_stored()
        if envelope.expiration is not None:
            self.timed = self.watched = True
        if self.watched:
            self._arrived(raws)
        if not self.scheduled and (self.consumers or self.browsers):
            self.schedule()
        return first

    def _came_from(self, exchange: str) -> None:
        if self.came is None:
            self.came = Shares()
        self.came.turn(exchange, self.counts.publish)

    def hold_refused(self, envelope: Envelope, raws: list[bytes]) -> int:
        """Hold messages that the full queue rejects until each has become a dead letter. Returns the first
        sequence. Makes no history, like `enqueue_run`."""
        first = self.ids.take(len(raws))
        entries = [(first + at, envelope, raw) for at, raw in enumerate(raws)]
        if envelope.persistent and not self.stored:
            self._now_stored()
        self._hold(entries)
        self._add_dying(entries, Reason.DROPPED)
        self.removals.touch(self)
        return first

    # -- out

    def dispatch(self) -> int:
        """Hand ready messages to consumers with credit, round robin per message. Returns how many."""
        self.scheduled = False
        if self.watched:
            self.removals.touch(self)
        if self.browsers and self.serves and self.returning is None:
            browse(self)
        ready, consumers = self.ready, self.consumers
        if not ready or not consumers or self.mode is not Mode.ACTIVE or self.returning is not None:
            return 0
        sole = self.rules.single_active
        if not sole and isinstance(ready, GroupedReady):
            sent, self._turn = dispatch_groups(self, ready, consumers, self._turn)
            return sent
        if not sole and len(consumers) > 1:
            sent, self._turn = dispatch_to_many(self, consumers, self._turn)
        else:
            consumer = self.served[0] if sole else consumers.in_order()[0]
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

    def set_aside_expired(self, entry: Entry) -> bool:
        """A message just taken from `ready` whose time is over is not delivered, but removed. Returns whether
        it is one."""
        if not self.timed or not self.is_over(entry):
            return False
        if self.sized:
            self.ready_octets -= self._octets([entry])
        self._hold([entry])
        self._add_dying([entry], Reason.EXPIRED)
        self.removals.touch(self)
        return True

    def _refill(self) -> None:
        """Refill `ready` from the backlog."""
        if len(self.ready) * 2 <= self.window:
            self.backlog.refill(self.ready, self.window)
            if not self.backlog.count:
                self.back = self.ready

    def take_ready(self, count: int) -> list[Entry]:
        """Remove and return the `count` oldest ready messages. There must be as many. Expired messages are
        removed instead, so the result may be shorter. If many have expired, the rest is left for later."""
        popleft = self.ready.popleft
        if not self.timed:
            return [popleft() for _ in range(count)]
        fresh: list[Entry] = []
        now, gone = self.removals.fresh, 0
        while self.ready and len(fresh) < count:
            until = self._expires_at(self.ready[0][1])
            if until is None or until >= now:
                fresh.append(popleft())
                continue
            left = self.remove_expired(now - 1)
            gone += left
            if not left or gone >= AT_ONCE:
                self.removals.resume(self)
                break
        return fresh

    def hand_over(self, consumer: Consumer, batch: list[Entry]) -> None:
        """Give messages just taken from `ready` to a consumer. They are unacknowledged now, or gone with
        `no_ack`."""
        if self.sized:
            self.ready_octets -= self._octets(batch)
        self.removals.steps -= HAND + len(batch)
        if consumer.no_ack:
            self._leave(batch, Reason.ACKED)
        else:
            self._hold(batch)
        consumer.sink.deliver(consumer, batch)

    def pop(self, *, no_ack: bool) -> Entry | None:
        """basic.get: the oldest ready message, unacknowledged from now on unless `no_ack`. Returns None if no
        message is ready, while messages are `returning`, or if more dead letters than this tick allows must
        be made first."""
        if self.returning is not None:
            return None
        self.settle()
        if isinstance(self.ready, GroupedReady):
            return self._pop_of_group(self.ready, no_ack=no_ack)
        taken: list[Entry] = []
        while self.ready and not taken:
            taken = self.take_ready(1)
            if self.backlog.count:
                self._refill()
            if not taken and not self.removals.one_more(self, 0):
                break
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

    def _pop_of_group(self, ready: GroupedReady, *, no_ack: bool) -> Entry | None:
        """basic.get: the oldest message of a group that no consumer has."""
        while (entry := ready.take_for(None, no_ack=no_ack)) is not None:
            if not self.set_aside_expired(entry):
                break
        if self.watched:
            self.removals.touch(self)
        if entry is None:
            return None
        if self.sized:
            self.ready_octets -= self._octets([entry])
        if no_ack:
            self._leave([entry], Reason.ACKED)
        else:
            self._hold([entry])
        return entry

    # -- settled by consumers

    def acknowledge(self, entries: list[Entry]) -> None:
        """Remove messages that consumers acknowledged. Any order, each once."""
        self.drop(entries, Reason.ACKED)

    def drop(
        self,
        entries: list[Entry],
        reason: Reason,
        *,
        whole: bool = False,
        after: Callable[[], None] | None = None,
    ) -> bool:
        """Remove unacknowledged messages for `reason`. Raises InternalError if one is not unacknowledged.

        Dead letters are made in the order of these calls. If there are many, later ticks make the rest,
        unless `whole` is set. Returns False if some are left; then `after` is called once all are made.
        """
        if self.deleted or self.mode is not Mode.ACTIVE or not entries:
            return True
        if reason in DYING and self.rules.dead_letters:
            return self._refuse(entries, reason, whole=whole, after=after)
        self._unhold(entries)
        self._leave(entries, reason)
        return True

    def requeue(self, entries: list[Entry], *, failed: bool = True) -> None:
        """Make unacknowledged messages ready again at their places by id, marked as redelivered. `failed`:
        count this against the delivery limit. Messages over the limit are removed."""
        if self.deleted or self.mode is not Mode.ACTIVE or not entries:
            return
        if failed and self.returns is not None:
            entries = self._within_limit(self.returns, entries)
        self._unhold(entries)
        back = [(seq, envelope.as_redelivered(), raw) for seq, envelope, raw in entries]
        back.sort(key=id_of)
        ready = self.ready
        if not isinstance(ready, deque):
            ready.put_back(back)
        else:
            if self.backlog.count:
                back = self.backlog.put_back(back)
            put_back(ready, back)
        if self.watched:
            self._arrived([raw for _, _, raw in entries])
        if isinstance(ready, LastValueReady):
            self.drop_replaced()
        if self.consumers or self.browsers:
            self.schedule()

    def consumer_left(self, consumer: Consumer) -> None:
        """One of the consumers has ended."""
        if isinstance(self.ready, GroupedReady):
            self.ready.leave(consumer)

    def resume_delivery(self) -> None:
        """All `returning` messages are ready again: resume delivery."""
        self.returning = None
        if self.watched or self.dying:
            self.removals.touch(self)
        if self.consumers or self.browsers:
            self.schedule()

    def _within_limit(self, returns: Returns, entries: list[Entry]) -> list[Entry]:
        """The messages within the delivery limit. Removes the others."""
        over = returns.note(entries, self.rules.delivery_limit)
        if not over:
            return entries
        gone = set(map(id_of, over))
        if self.returning is not None and self.rules.dead_letters:
            # The newest come back first. Dead letters are made in order once the oldest have come back too.
            self.dying.insert(0, Dying(deque(over), Reason.DELIVERY_LIMIT, []))
            self.removals.touch(self)
        else:
            self.drop(over, Reason.DELIVERY_LIMIT)
        return [entry for entry in entries if id_of(entry) not in gone]

    def purge(self) -> int:
        """Remove all ready messages with reason PURGED. Returns how many."""
        count = self.message_count
        self._leave_ready(Reason.PURGED)
        self._leave_backlog(Reason.PURGED)
        self.ready_octets = 0
        return count

    def end(self, reason: Reason = Reason.DELETED) -> int:
        """Delete the queue: remove all messages with `reason`. Returns how many were ready."""
        count = self.message_count
        if self.dying:
            self.make_dead_letters(whole=True)
        if held := self._unacked_entries():
            self._leave(held, reason)
        self._leave_ready(reason)
        self._leave_backlog(reason)
        for unacked in self._unacked.values():
            self.removals.freeing.add(unacked)
        self._unacked = {}
        self.replaced = []
        self.replica.clear()
        self.unacked_count = self._other_epochs = 0
        self.deleted = True
        return count

    # -- removal by rules

    def set_rules(self, rules: QueueRules) -> None:
        """Apply other rules, from this tick on also to the messages already held.

        Counts the bodies if the new rules need it; this reads paged-out messages back. `max_priority` never
        changes, since no policy sets it.
        """
        counted, serves = self.sized, self.mode is Mode.ACTIVE
        self.timed = self.timed and serves  # messages with their own expiration; `activate` looks for them
        self._take_rules(rules)
        if serves and self.sized is not counted:
            self.ready_octets = 0
            if self.sized:
                self._count_octets()
        if serves:
            self.removals.touch(self)

    def _apply_rules_again(self) -> None:
        super()._apply_rules_again()
        if self.watched:
            self.removals.touch(self)

    def _arrived(self, raws: list[bytes]) -> None:
        if self.sized:
            size = self.removals.format.body_size
            self.ready_octets += sum(map(size, raws))
        self.removals.touch(self)

    def _expires_at(self, envelope: Envelope) -> int | None:
        """Wall-clock milliseconds at which messages of this envelope expire, or None."""
        limit, own = self.rules.message_ttl, envelope.expiration
        if own is not None and (limit is None or own < limit):
            limit = own
        return None if limit is None else envelope.wall_ms + limit

    def is_over(self, entry: Entry) -> bool:
        """Whether the message's time is over, and it only waits to leave."""
        until = self._expires_at(entry[1])
        return until is not None and until < self.removals.fresh

    def head_expiry(self) -> int | None:
        """When the oldest ready message expires, or None. Later messages only expire at the head."""
        ready = self.ready
        if isinstance(ready, DueReady):
            return ready.next_due()
        return self._expires_at(self.ready[0][1]) if self.timed and self.ready else None

    def drop_replaced(self) -> None:
        """Remove messages for which there is a newer one with the same key (`x-last-value-key`). They make no
        dead letters."""
        if self.replaced:
            before, self.replaced = self.replaced, []
            self._unhold(before)
            self._leave(before, Reason.DROPPED)
        if isinstance(self.ready, LastValueReady) and self.ready.replaced:
            gone = self.ready.take_replaced()
            if self.sized:
                self.ready_octets -= self._octets(gone)
            self._leave(gone, Reason.DROPPED)

    def remove_due(self, wall_ms: int) -> int | None:
        """Remove refused, expired and excess messages, as many as this tick allows. Returns when to look
        again, if at all."""
        ready = self.ready
        if isinstance(ready, DueReady) and ready.waits:
            ready.look_again(AT_ONCE)
        if self.dying:
            self.make_dead_letters()
        if self.replaced:
            self.drop_replaced()
        if self.timed:
            self.remove_expired(wall_ms)
        if self.rules.limited:
            self.remove_excess()
        until = self.head_expiry() if self.timed else None
        if isinstance(ready, DueReady) and ready.waits:
            return wall_ms + RETRY if until is None else min(until, wall_ms + RETRY)
        return until

    def wait_for_room(self, entry: Entry, targets: Iterable[Queue], raw: bytes) -> bool:
        """Of a delay queue: if one of `targets` would refuse the due message now, let it wait until there is
        room. Returns whether it waits."""
        ready = self.ready
        if not isinstance(ready, DueReady):
            return False
        for target in targets:
            if target.refuses and (ready.is_behind(entry, target) or not target.room([raw])):
                ready.postpone(entry, target)
                return True
        return False

    @property
    def dead_letters_due(self) -> bool:
        """True if refused messages, or an expired one at the head, must still become dead letters."""
        if self.dying:
            return True
        until = self.head_expiry() if self.rules.dead_letters else None
        return until is not None and until <= self.removals.wall_ms

    def remove_expired(self, upto: int) -> int:
        """Remove messages at the head that expired by `upto`, as many as this tick allows. Returns how
        many."""
        if not self.timed or not self.ready:
            return 0
        return self._remove_in_pieces(self._expired(upto), Reason.EXPIRED)

    def _expired(self, upto: int) -> Iterator[Entry]:
        taken, by_due = 0, self.rules.by_due
        while self.ready and self.removals.one_more(self, taken):
            until = self.head_expiry()
            if until is None or until > upto:
                break
            taken += 1
            entry = self.ready[0]
            yield entry
            if by_due and (self.head_expiry() is None or id_of(self.ready[0]) != id_of(entry)):
                continue  # it waits for room
            self._pop_ready()

    def remove_excess(self) -> None:
        """Over a limit, remove the oldest ready messages (`drop-head`), as many as this tick allows."""
        rules = self.rules
        if not rules.limited or rules.overflow is not OverflowRule.DROP_HEAD or not self._is_over():
            return
        if rules.max_length is not None and rules.max_length_bytes is None and not rules.dead_letters:
            count = min(self.message_count - rules.max_length, len(self.ready), DROPPED_AT_ONCE)
            if count:
                self._leave([self._pop_ready() for _ in range(count)], Reason.DROPPED)
        else:
            self._remove_in_pieces(self._excess(), Reason.DROPPED)
        if self.ready and self._is_over():
            self.removals.touch(self)

    def _is_over(self) -> bool:
        most, octets = self.rules.max_length, self.rules.max_length_bytes
        if most is not None and self.message_count > most:
            return True
        return octets is not None and self.ready_octets > octets

    def _excess(self) -> Iterator[Entry]:
        taken, room = 0, OCTETS_AT_ONCE
        dies = self.rules.dead_letters
        while self.ready and room > 0 and self._is_over():
            if not (self.removals.one_more(self, taken) if dies else taken < DROPPED_AT_ONCE):
                break
            taken += 1
            entry = self.ready[0]
            room -= len(entry[2])
            yield entry
            self._pop_ready()

    def _pop_ready(self) -> Entry:
        """Take the oldest ready message, for removal by a rule."""
        entry = self.ready.popleft()
        if self.sized:
            self.ready_octets -= self.removals.format.body_size(entry[2])
        if self.backlog.count:
            self._refill()
        return entry

    # -- dead letters

    def _refuse(
        self, entries: list[Entry], reason: Reason, *, whole: bool, after: Callable[[], None] | None
    ) -> bool:
        if whole:  # before the waiting ones, which are not part of this step
            self._remove_in_pieces(self._take_dying(deque(entries), whole=True), reason, whole=True)
            return True
        self._add_dying(entries, reason)
        self.make_dead_letters(spared=self.removals.spared)
        if self.dying and after is not None:
            self.dying[-1].afters.append(after)
        return not self.dying

    def _add_dying(self, entries: list[Entry], reason: Reason) -> None:
        last = self.dying[-1] if self.dying else None
        if last is not None and last.reason is reason and len(last.entries) < _JOINED:
            last.entries.extend(entries)
        else:
            self.dying.append(Dying(deque(entries), reason, []))

    def after_dying(self, after: Callable[[], None]) -> None:
        """Call `after` when everything dying now has become dead letters. There must be some."""
        self.dying[-1].afters.append(after)

    def make_dead_letters(self, *, whole: bool = False, spared: int = 0) -> None:
        """Turn dying messages into dead letters, as many as allowed, or all of them if `whole`. `spared`:
        steps to leave for others."""
        while self.dying and (whole or self.removals.one_more(self, 0, spared)):
            entries, reason, afters = self.dying[0]
            self._remove_in_pieces(self._take_dying(entries, whole=whole, spared=spared), reason, whole=whole)
            if not entries:
                del self.dying[0]
                for after in afters:
                    after()
        if self.dying:
            self.removals.touch(self)

    def _take_dying(self, entries: deque[Entry], *, whole: bool, spared: int = 0) -> Iterator[Entry]:
        taken = 0
        while entries and (whole or self.removals.one_more(self, taken, spared)):
            taken += 1
            yield entries[0]
            self._unhold([entries.popleft()])

    def _remove_in_pieces(self, entries: Iterable[Entry], reason: Reason, *, whole: bool = False) -> int:
        """Remove messages for a reason that makes dead letters, one as each is asked for. Returns how many.

        With a dead-letter exchange, the removal and the copies are one batch. That includes messages that
        stayed, because one of two target queues may have taken a copy, or a full one may have sent it on.
        """
        if not self.rules.dead_letters:
            gone = list(entries)
            if gone:
                self._leave(gone, reason)
            return len(gone)
        moved, stayed = self.removals.move(self, entries, reason, whole)
        if moved:
            said, dead = DYING[reason], self.removals.dead_lettered
            dead[said] = dead.get(said, 0) + len(moved)
            self._leave(moved, Reason.DEAD_LETTERED)
        if stayed:
            self._leave(stayed, reason)
        if moved or stayed:
            self.history.gather()
        return len(moved) + len(stayed)

    def settle(self) -> None:
        """Remove expired and excess messages now that no consumer is about to take. Called before the head or
        the length is reported, or the queue is purged."""
        if self.watched and self.serves and self.returning is None and not self._wanted():
            self.remove_expired(self.removals.wall_ms)
            self.remove_excess()

    def _wanted(self) -> int:
        """Messages that consumers can take now."""
        return sum(max(0, consumer.sink.credit(consumer)) for consumer in self.served)

    @property
    def refuses(self) -> bool:
        """Whether a message is lost that the queue refuses when it is full."""
        rules = self.rules
        if self.deleted or not rules.limited or rules.overflow is OverflowRule.DROP_HEAD:
            return False
        return rules.overflow is OverflowRule.REJECT_PUBLISH or not rules.dead_letters

    def room(self, raws: list[bytes]) -> int:
        """How many of the first `raws` fit before the queue is full (`reject-publish`)."""
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

    # -- bookkeeping

    def _hold(self, batch: list[Entry]) -> None:
        self.unacked_count += len(batch)
        if self._other_epochs:
            for epoch, group in groupby(batch, epoch_of):
                self._unacked.setdefault(epoch, {}).update((entry[0], entry) for entry in group)
            return
        held = self._unacked.get(self.ids.epoch)
        if held is None:
            held = self._unacked[self.ids.epoch] = {}
        held.update(zip(map(seq_of, batch), batch, strict=True))

    def _unhold(self, entries: list[Entry]) -> None:
        try:
            if self._other_epochs:
                for seq, envelope, _ in entries:
                    del self._unacked[envelope.epoch][seq]
            else:
                held = self._unacked[self.ids.epoch]
                for entry in entries:
                    del held[entry[0]]
        except KeyError:
            raise InternalError(f"queue '{self.name}': a message was settled that is not unacked") from None
        self.unacked_count -= len(entries)
        if isinstance(self.ready, GroupedReady) and self.ready.settled(entries):
            self.schedule()

    def _leave(self, entries: list[Entry], reason: Reason) -> None:
        """Record a removal in history. `entries` are no longer in `ready` or `_unacked`."""
        if self.returns:
            self.returns.forget(entries)
        self._note(entries, reason)

    def _note(self, entries: list[Entry], reason: Reason) -> None:
        """Record dequeues in history if a scope or the ledger wants them."""
        scope = self._leave_scope
        wanted = scope or self.history.ledger_wanted
        epoch = self.ids.epoch
        if not self._other_epochs:
            if wanted:
                self.history.dequeue(self.uuid, epoch, map(seq_of, entries), reason, scope)
            return
        for number, group in groupby(sorted(entries, key=epoch_of), epoch_of):
            seqs = [entry[0] for entry in group]
            if number != epoch:
                self._other_epochs -= len(seqs)
            if wanted:
                self.history.dequeue(self.uuid, number, seqs, reason, scope)

    def _leave_ready(self, reason: Reason) -> None:
        """Remove everything in `ready`, but not the backlog. Large containers are freed in later ticks."""
        ready, self.ready = self.ready, self._nothing_ready()
        levels = [ready] if isinstance(ready, deque) else ready.levels
        if isinstance(ready, GroupedReady):
            ready.clear()
            self.ready = ready
        for level in filter(None, levels):
            much = len(level) > PIECE and not (self._other_epochs or self.returns)
            if not much or (ranges := stretches(level)) is None:
                self._leave(list(level), reason)
            elif self._leave_scope or self.history.ledger_wanted:
                self.history.left[reason] += len(level)
                self.history.append(Dequeue(self.uuid, self.ids.epoch, reason, ranges, self._leave_scope))
            self.removals.freeing.add(level)

    def _leave_backlog(self, reason: Reason) -> None:
        """Remove the backlog by ranges of ids, because it may not fit into memory."""
        ranges: dict[int, list[Range]] = {}
        for run in self.backlog.runs():
            ranges.setdefault(run.epoch, []).extend(run.live_ranges())
            if run.epoch != self.ids.epoch:
                self._other_epochs -= run.left
        self.backlog.clear()
        self.back = self.ready
        if self.returns and not self.unacked_count:
            self.returns.clear()
        if self._leave_scope or self.history.ledger_wanted:
            for epoch, gone in ranges.items():
                joined = ReplicationIdSet(gone).ranges()
                self.history.left[reason] += sum(last - first + 1 for first, last in joined)
                self.history.append(Dequeue(self.uuid, epoch, reason, joined, self._leave_scope))
