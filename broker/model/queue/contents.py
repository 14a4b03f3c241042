"""The contents of one queue, as a serving queue or as a replica, and the change between the two modes.

Base of `Queue`, which adds the operations on single messages. `ready` is sorted by (epoch, sequence). All ids
in `backlog` are above those in `ready`. A message that a consumer holds unacknowledged still belongs to the
contents, and snapshots include it. `_unacked` therefore maps epoch -> sequence -> entry.
"""

from __future__ import annotations

import enum
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.errors import InternalError
from broker.model.definition_octets import QUEUE, of_table, of_text
from broker.model.history.epoch_ends import EpochEnd, EpochEnds, after_history_checkpoint
from broker.model.history.history import History
from broker.model.history.id_source import Ids, IdSource
from broker.model.history.marks import Marks
from broker.model.history.recent_ids import RecentIds
from broker.model.history.records import Entry, QueueDeclare, id_of
from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.queue.arguments import QueueRules, rules_of
from broker.model.queue.backlog import WINDOW, Backlog
from broker.model.queue.consumer import Browsers, Consumers
from broker.model.queue.delays.due_ready import DueReady
from broker.model.queue.keyed.last_value import LastValueReady
from broker.model.queue.keyed.message_groups import GroupedReady
from broker.model.queue.message_run import Overflow, as_runs
from broker.model.queue.priority_ready import PriorityReady
from broker.model.queue.ready_after import Ready
from broker.model.queue.removals import MessageFormat, Removals
from broker.model.queue.replica import ReplicaContents
from broker.model.queue.requeueing import Returning
from broker.model.queue.returns import Returns
from broker.model.statistics import Counts, Shares
from broker.model.values import Reason, Scope, titled

if TYPE_CHECKING:
    from broker.model.policy import Policy


class Mode(enum.Enum):
    ACTIVE = "active"
    """Serves clients: the contents are `ready`, `backlog` and `_unacked`."""
    REPLICA = "replica"
    """Follows a primary: the contents are in `replica`."""


class Dying(NamedTuple):
    """Messages that wait to become dead letters, oldest first.

    `afters`: callbacks for the moment when the last of them has become one, before that tick's history is
    flushed.
    """

    entries: deque[Entry]
    reason: Reason
    afters: list[Callable[[], None]]


seq_of = itemgetter(0)


def epoch_of(entry: Entry) -> int:
    return entry[1].epoch


def _value(form: MessageFormat, name: str, raw: bytes) -> object:
    return form.value(raw, name)


class QueueContents:
    """One queue. Anybody may read the attributes. Only the model writes them, except `ids` and `owner`.

    - `expires`: seconds without use after which the queue is deleted, or None.
    - `exclusive`: declared as exclusive.
    - `owner`: the connection that owns the queue; None until one claims it after a promotion.
    - `earlier`: the last sequence of each epoch before the one served.
    - `rules`: limits, expiry, dead-lettering and order, from the arguments, the policy `ruled_by` and the
      operator policy `operated_by`.
    - `watched`: `removals` must know when the head or the length changes.
    - `timed`: the queue holds, or once held, messages that expire.
    - `returns`: how often messages have come back, if a delivery limit needs it.
    - `ready_octets`: body bytes of ready messages; only counted if such a limit applies (`sized`).
    - `came`: `counts.publish` by exchange; None before the first message.
    - `counts`: messages in and out, for statistics.
    - `marks`: which numbers of each producer the queue had. Only `Producers` changes them.
    - `recent`: the ids of messages that the queue took, if it has a window for them. None: of none.
    - `stored`: the store may hold some of its messages. Until then the store needs no dequeues.
    - `transient_scope`: which sinks see its transient messages: no store, unless `keep_transient` says so.
    - `deleted`: the queue is gone. Messages that channels still hold are ignored when they come back.
    - `dying`: refused, unacknowledged messages that no channel holds, without their dead letters yet.
    - `replaced`: unacknowledged messages that no channel holds, since newer ones replace them.
    - `returning`: unacknowledged messages on their way back to `ready`, or None. Nothing is delivered
      until they are back.
    """

    __slots__ = (
        "_leave_scope",
        "_other_epochs",
        "_turn",
        "_unacked",
        "arguments",
        "auto_delete",
        "back",
        "backlog",
        "browsers",
        "came",
        "consumer_seen",
        "consumers",
        "content_scope",
        "counts",
        "deleted",
        "durable",
        "dying",
        "earlier",
        "exclusive",
        "expires",
        "history",
        "ids",
        "marks",
        "mode",
        "name",
        "on_schedule",
        "operated_by",
        "owner",
        "ready",
        "ready_octets",
        "recent",
        "removals",
        "replaced",
        "replica",
        "replicate",
        "returning",
        "returns",
        "ruled_by",
        "rules",
        "scheduled",
        "scope",
        "sized",
        "stored",
        "timed",
        "transient_scope",
        "unacked_count",
        "uuid",
        "vhost",
        "watched",
        "window",
    )

    def __init__(
        self,
        declared: QueueDeclare,
        history: History,
        on_schedule: Callable[[Any], None],
        *,
        mode: Mode,
        epoch: int,
        owner: object = None,
        removals: Removals | None = None,
    ) -> None:
        self.name = declared.name
        self.vhost = declared.vhost
        self.uuid = declared.uuid
        self.durable = declared.durable
        self.exclusive = declared.exclusive
        self.auto_delete = declared.auto_delete
        self.arguments = declared.arguments
        self.ruled_by: Policy | None = None
        self.operated_by: Policy | None = None
        self.removals = removals or Removals()
        self.timed = False
        self.returns: Returns | None = None
        self._take_rules(rules_of(declared.arguments))
        self.ready_octets = 0
        self.replicate = declared.replicate
        self.scope = declared.scope
        self.content_scope = declared.content_scope
        self.stored = False
        self.transient_scope = self._leave_scope = self.content_scope & ~Scope.STORE
        self.owner = owner
        self.history = history
        self.on_schedule = on_schedule
        self.mode = mode
        self.ids: Ids = IdSource(epoch)
        self.ready = self._nothing_ready()
        self.backlog = Backlog()
        self.back = self.ready
        """The container that takes the newest messages: the backlog's tail if there is a backlog, else
        `ready`."""
        self.window = WINDOW
        self.replica = ReplicaContents()
        self.unacked_count = 0
        self.consumers = Consumers()
        self.browsers: Browsers = {}
        self.consumer_seen = False
        self.counts = Counts()
        self.came: Shares | None = None
        self.marks: Marks = {}
        self.recent: RecentIds | None = None
        self.deleted = False
        self.scheduled = False
        self.earlier: EpochEnds = {}
        self._turn = 0
        self._unacked: dict[int, dict[int, Entry]] = {}
        self.dying: list[Dying] = []
        self.replaced: list[Entry] = []
        self.returning: Returning | None = None
        self._other_epochs = 0  # messages held, ready or unacked, whose epoch is not that of `ids`

    def _nothing_ready(self) -> Ready:
        if self.rules.max_priority is not None:
            return PriorityReady(self.rules.max_priority)
        if self.rules.by_due:
            return DueReady()
        form, key, group = self.removals.format, self.rules.last_value_key, self.rules.group
        if key is not None:
            return LastValueReady(partial(_value, form, key))
        if group is not None:
            return GroupedReady(partial(_value, form, group), shared=self.rules.shared_groups)
        return deque()

    # -- rules

    def _take_rules(self, rules: QueueRules) -> None:
        self.rules = rules
        self.expires = None if rules.expires is None else rules.expires / 1000
        self.timed = self.timed or rules.message_ttl is not None
        self.sized = rules.max_length_bytes is not None
        self.watched = self.timed or rules.limited or rules.last_value_key is not None
        if rules.consumer_timeout:
            shortest = self.removals.shortest_ack
            self.removals.shortest_ack = min(shortest or rules.consumer_timeout, rules.consumer_timeout)
        if rules.delivery_limit is None:
            self.returns = None
        elif self.returns is None:
            self.returns = Returns()

    def _count_octets(self) -> None:
        self.ready_octets = self._octets(chain(self.ready, self.backlog.entries()))

    # -- reading

    @property
    def policy(self) -> str | None:
        """The name of the policy that applies. None without one, and on a replica."""
        return None if self.ruled_by is None else self.ruled_by.name

    @property
    def serves(self) -> bool:
        """True unless the queue is a replica or deleted."""
        return self.mode is Mode.ACTIVE and not self.deleted

    @property
    def message_count(self) -> int:
        """Ready messages, as Declare-Ok and Get-Ok report them."""
        return len(self.ready) + self.backlog.count

    @property
    def total_count(self) -> int:
        """All messages in either mode, unacknowledged ones included."""
        return self.message_count + self.unacked_count if self.mode is Mode.ACTIVE else self.replica.count

    def some_unacked(self, most: int) -> list[Entry]:
        """Up to `most` unacknowledged messages from each end of each epoch."""
        ends = [end for held in self._unacked.values() for end in (held.values(), reversed(held.values()))]
        return [entry for end in ends for entry in islice(end, most)]

    @property
    def octets(self) -> int:
        """Approximate memory of the queue, without messages, consumers and bindings."""
        return QUEUE + of_text(self.name) + of_table(self.arguments)

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
            self.vhost,
        )

    @property
    def title(self) -> str:
        return titled(self.vhost, self.name)

    # -- the whole contents

    def snapshot(self) -> dict[int, ReplicationIdSet]:
        """Ids of all messages in either mode, unacknowledged ones included, by epoch. No empty sets."""
        if self.mode is Mode.REPLICA:
            return self.replica.ids()
        seqs: dict[int, list[int]] = {epoch: list(held) for epoch, held in self._unacked.items() if held}
        for epoch, group in groupby(self.ready, epoch_of):
            seqs.setdefault(epoch, []).extend(map(seq_of, group))
        found = {epoch: ReplicationIdSet.of(some) for epoch, some in seqs.items()}
        for run in self.backlog.runs() if self.backlog.count else ():
            ids = found.setdefault(run.epoch, ReplicationIdSet())
            for first, last in run.live_ranges():
                ids.add_range(first, last)
        return {epoch: found[epoch] for epoch in sorted(found)}

    def held_entries(self) -> list[Entry]:
        """All messages, sorted by id, as a list that does not change while the queue serves."""
        if self.mode is Mode.REPLICA:
            return self.replica.entries()
        if not self.unacked_count:
            ready = self.ready
            return [*ready, *self.backlog.entries()] if isinstance(ready, deque) else ready.by_id()
        return sorted([*self._unacked_entries(), *self.ready, *self.backlog.entries()], key=id_of)

    def entries_for(self, ids: dict[int, ReplicationIdSet]) -> list[Entry]:
        """The messages whose ids are in `ids`, sorted by id."""
        if self.mode is Mode.REPLICA:
            return self.replica.entries_for(ids)
        found: list[Entry] = []
        for epoch, group in groupby(self.held_entries(), epoch_of):
            wanted = ids.get(epoch)
            if wanted:
                found += [entry for entry in group if entry[0] in wanted]
        return found

    def _unacked_entries(self) -> list[Entry]:
        return [entry for held in self._unacked.values() for entry in held.values()]

    def page_out(self, overflow: Overflow, most: int) -> int:
        """Page out about `most` bytes, but never the oldest messages. Returns the bytes that left memory. A
        serving queue with priorities, of last values or of delays pages out nothing: any of its messages may
        be the next, or be replaced."""
        if self.mode is Mode.REPLICA:
            return self.replica.page_out(overflow, most)
        ready, backlog = self.ready, self.backlog
        if not isinstance(ready, deque):
            return 0
        if not backlog.count and len(ready) > self.window:
            backlog.tail.extend(islice(ready, self.window, None))
            backlog.count = len(backlog.tail)
            self.ready = self.back = deque(islice(ready, self.window))
        if backlog.count:
            self.back = backlog.tail
        return backlog.page_out(overflow, most)

    # -- ends of epochs

    def ends(self) -> EpochEnds:
        """The last sequence and the gaps of each epoch in this queue."""
        return self.replica.ends() if self.mode is Mode.REPLICA else self.ends_before(self.ids.next)

    def ends_before(self, sequence: int) -> EpochEnds:
        """The `ends` of a serving queue at the time when `sequence` was its next one."""
        if sequence == 1:
            return dict(self.earlier)
        return self.earlier | {self.ids.epoch: EpochEnd(sequence - 1)}

    def history_checkpoint(self, epoch: int) -> None:
        """Forget ends of epochs before `epoch` that are settled. Mark the ends of epochs without messages as
        settled."""
        if self.mode is Mode.REPLICA:
            self.replica.set_ends(
                after_history_checkpoint(self.replica.ends(), self.replica.held_epochs(), epoch)
            )
        else:
            self.earlier = after_history_checkpoint(self.earlier, self._held_epochs(), epoch)

    def history_checkpoint_due(self) -> bool:
        """True if a history checkpoint would change anything. For a serving queue."""
        if not self.earlier:
            return False
        held = self._held_epochs()
        return any(end.settled or number not in held for number, end in self.earlier.items())

    def _held_epochs(self) -> set[int]:
        """Epochs with messages, including all such epochs before the one served. O(log n) for each epoch, and
        one pass over the runs of the backlog."""
        held = {number for number, some in self._unacked.items() if some}
        ready = self.ready
        if not isinstance(ready, deque):
            return held | {number for number in self.earlier if ready.holds_epoch(number)}
        for number in self.earlier if self._other_epochs else ():
            at = bisect_left(self.ready, (number, 0), key=id_of)
            if at < len(self.ready) and epoch_of(self.ready[at]) == number:
                held.add(number)
        return held | self.backlog.epochs() if self.backlog.count else held

    # -- replica and serving mode

    def set_scope(self, scope: Scope, replicate: str) -> None:
        """Set the scope on a replica. Not for a serving queue: routes cache its scope."""
        self.scope = scope
        self.replicate = replicate
        self.content_scope = content = self.declaration().content_scope
        self.transient_scope = content & ~Scope.STORE
        self._leave_scope = content if self.stored else content & ~Scope.STORE

    def keep_transient(self, keep: bool) -> bool:
        """From now on, or no longer, the store gets transient messages too, if the queue is replicated and
        durable. What the store then holds leaves it as it leaves the queue. Returns whether it gets them.
        Routes cache the answer."""
        content = self.content_scope
        kept = keep and bool(content & Scope.STORE) and bool(content & Scope.LINK)
        self.transient_scope = content if kept else content & ~Scope.STORE
        if kept:
            self._now_stored()
        return kept

    def check_may_serve(self, epoch: int) -> None:
        """Raises InternalError if the replica is incomplete, or has messages of `epoch` or a later epoch."""
        if self.replica.incomplete:
            raise InternalError(f"queue '{self.name}' cannot serve: its copy is incomplete")
        newest = max(self.replica.ends(), default=0)
        if newest >= epoch:
            raise InternalError(f"queue '{self.name}' has messages of epoch {newest}, not before {epoch}")

    def activate(self, epoch: int) -> None:
        """REPLICA -> ACTIVE: the contents become ready. Messages of earlier epochs are redelivered (invariant
        23).

        Raises InternalError as `check_may_serve` does.
        """
        self.check_may_serve(epoch)
        self.earlier = self.replica.ends()
        self.ready, self.backlog = self._nothing_ready(), Backlog()
        window = self.window if isinstance(self.ready, deque) else sys.maxsize
        for run in self.replica.drain():
            if run.envelope is not None and run.envelope.expiration is not None:
                self.timed = self.watched = True
            if len(self.ready) < window:
                self.ready.extend(run.take())
            else:
                self.backlog.append(run)
        self.back = self.backlog.tail if self.backlog.count else self.ready
        self._other_epochs = self.message_count
        replaced = self.ready.take_replaced() if isinstance(self.ready, LastValueReady) else []
        if self.ready:
            self._now_stored()
        self.replica = ReplicaContents()
        self.ids = IdSource(epoch)
        self._unacked = {}
        self.unacked_count = 0
        self.mode = Mode.ACTIVE
        self._keep_replaced(replaced)
        self._apply_rules_again()

    def _keep_replaced(self, entries: list[Entry]) -> None:
        """Messages that a newer one replaces, from before this queue served: held until they leave."""
        self.replaced = entries
        for entry in entries:
            self._unacked.setdefault(epoch_of(entry), {})[entry[0]] = entry
        self.unacked_count += len(entries)
        self._other_epochs += len(entries)

    def deactivate(self) -> None:
        """ACTIVE -> REPLICA: all messages become replica contents. Consumers are dropped without a
        basic.cancel."""
        contents = ReplicaContents()
        contents.set_ends(self.ends())
        near = sorted([*self._unacked_entries(), *self.ready], key=id_of)
        contents.take_runs([*as_runs(near), *self.backlog.runs()])
        self.mode = Mode.REPLICA
        self.replica = contents
        self.ready = self.back = self._nothing_ready()
        self.backlog = Backlog()
        self.ready_octets = 0
        self._unacked = {}
        self.dying.clear()
        self.replaced = []
        self.returning = None
        self.unacked_count = self._other_epochs = 0
        if self.returns is not None:
            self.returns.clear()
        self.consumers.clear()
        self.browsers.clear()
        self.scheduled = False
        self.owner = None

    def _apply_rules_again(self) -> None:
        """Apply the rules to the contents after the queue has begun to serve."""
        if self.sized:
            self._count_octets()

    def _octets(self, entries: Iterable[Entry]) -> int:
        size = self.removals.format.body_size
        return sum([size(entry[2]) for entry in entries])

    def _now_stored(self) -> None:
        """From now on the store may hold messages of this queue and receives its dequeues."""
        self.stored = True
        self._leave_scope = self.content_scope
