"""One queue as a whole: what it holds, ready or not, in memory or set aside, while it serves or follows; and
how it changes from the one to the other.

Base of `Queue`, which adds what happens to single messages. `ready` is sorted by (epoch, sequence); all
that `backlog` holds is beyond it. A message handed out and not yet acknowledged still belongs to the contents
(a snapshot includes it), hence `_unacked`: per epoch, sequence -> entry.
"""

from __future__ import annotations

import enum
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.errors import InternalError
from broker.model.definition_octets import QUEUE, of_table, of_text
from broker.model.history.epoch_ends import EpochEnd, EpochEnds, after_milestone
from broker.model.history.history import History
from broker.model.history.id_source import Ids, IdSource
from broker.model.history.records import Entry, QueueDeclare, id_of
from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.queue.arguments import QueueRules, rules_of
from broker.model.queue.backlog import WINDOW, Backlog
from broker.model.queue.consumer import Consumers
from broker.model.queue.message_run import Overflow, as_runs
from broker.model.queue.priority_ready import PriorityReady
from broker.model.queue.removals import Removals
from broker.model.queue.replica import ReplicaContents
from broker.model.queue.requeueing import Returning
from broker.model.queue.returns import Returns
from broker.model.values import Reason, Scope, titled

if TYPE_CHECKING:
    from broker.model.policy import Policy

Ready = deque[Entry] | PriorityReady


class Mode(enum.Enum):
    ACTIVE = "active"
    """Serves: contents are `ready`, backlog and unacked."""
    REPLICA = "replica"
    """Follows: contents are in `replica`."""


class Dying(NamedTuple):
    """Messages that are to be dead letters, the first ones first. `afters`: called when the last of them
    is, before the history of that tick is flushed."""

    entries: deque[Entry]
    reason: Reason
    afters: list[Callable[[], None]]


seq_of = itemgetter(0)


def epoch_of(entry: Entry) -> int:
    return entry[1].epoch


class QueueContents:
    """One queue. Attributes are to be read by all, and written by the model only, save `ids` and `owner`.

    `expires`: seconds without use after which it ends, or None.
    `exclusive`: declared so; `owner`: the connection it belongs to, None until claimed after a promotion.
    `earlier`: how far history got in epochs before the one served.
    `rules`: what its arguments, and the policy that it is `ruled_by`, say of removals and order. `watched`:
    `removals` is told when its head or length changes. `timed`: it holds, or held, messages whose time ends.
    `returns`: how often messages have come back, if that is limited.
    `ready_octets`: bodies of ready messages, kept only if it is limited by them (`sized`).
    `stored`: may the store hold any of its messages? Until then dequeues need not go there. `deleted`: gone;
    messages that channels still hold come back to nothing. `dying`: unacked ones that no channel holds any
    more, as they were refused, and whose dead letters are not made yet. `returning`: unacked ones to be
    ready again, and mostly before those that are: until then nothing is delivered. None: there are none.
    """

    __slots__ = (
        "_foreign",
        "_leave_scope",
        "_turn",
        "_unacked",
        "arguments",
        "auto_delete",
        "back",
        "backlog",
        "consumer_seen",
        "consumers",
        "content_scope",
        "deleted",
        "durable",
        "dying",
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
        "ready_octets",
        "removals",
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
        self.removals = removals or Removals()
        self.timed = False
        self.returns: Returns | None = None
        self._take_rules(rules_of(declared.arguments))
        self.ready_octets = 0
        self.replicate = declared.replicate
        self.scope = declared.scope
        self.content_scope = declared.content_scope
        self.stored = False
        self._leave_scope = self.content_scope & ~Scope.STORE
        self.owner = owner
        self.history = history
        self.on_schedule = on_schedule
        self.mode = mode
        self.ids: Ids = IdSource(epoch)
        self.ready = self._nothing_ready()
        self.backlog = Backlog()
        self.back = self.ready
        """Where the newest messages go: the backlog's tail, if there is a backlog."""
        self.window = WINDOW
        self.replica = ReplicaContents()
        self.unacked_count = 0
        self.consumers = Consumers()
        self.consumer_seen = False
        self.deleted = False
        self.scheduled = False
        self.earlier: EpochEnds = {}
        self._turn = 0
        self._unacked: dict[int, dict[int, Entry]] = {}
        self.dying: list[Dying] = []
        self.returning: Returning | None = None
        self._foreign = 0  # messages held, ready or unacked, whose epoch is not that of `ids`

    def _nothing_ready(self) -> Ready:
        return deque() if self.rules.max_priority is None else PriorityReady(self.rules.max_priority)

    # -- rules

    def _take_rules(self, rules: QueueRules) -> None:
        self.rules = rules
        self.expires = None if rules.expires is None else rules.expires / 1000
        self.timed = self.timed or rules.message_ttl is not None
        self.sized = rules.max_length_bytes is not None
        self.watched = self.timed or rules.limited
        if rules.delivery_limit is None:
            self.returns = None
        elif self.returns is None:
            self.returns = Returns()

    def _count_octets(self) -> None:
        self.ready_octets = self._octets(chain(self.ready, self.backlog.entries()))

    # -- looking

    @property
    def policy(self) -> str | None:
        """The name of the policy that holds, if it serves and there is one."""
        return None if self.ruled_by is None else self.ruled_by.name

    @property
    def serves(self) -> bool:
        """It is not a replica, nor gone."""
        return self.mode is Mode.ACTIVE and not self.deleted

    @property
    def message_count(self) -> int:
        """Ready messages (what Declare-Ok and Get-Ok report)."""
        return len(self.ready) + self.backlog.count

    @property
    def total_count(self) -> int:
        """All messages held, unacked included; also in REPLICA mode."""
        return self.message_count + self.unacked_count if self.mode is Mode.ACTIVE else self.replica.count

    def some_unacked(self, most: int) -> list[Entry]:
        """Of each epoch the first and the last of what consumers hold, up to so many of either."""
        ends = [end for held in self._unacked.values() for end in (held.values(), reversed(held.values()))]
        return [entry for end in ends for entry in islice(end, most)]

    @property
    def octets(self) -> int:
        """What it takes, about, without messages, consumers and bindings."""
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
        """Ids of all messages held (ready and unacked, or the replica's), by epoch; no empty sets."""
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
        """All messages held, sorted by id: a frozen list to cut a snapshot from over many ticks."""
        if self.mode is Mode.REPLICA:
            return self.replica.entries()
        if not self.unacked_count:
            ready = self.ready
            return ready.by_id() if isinstance(ready, PriorityReady) else [*ready, *self.backlog.entries()]
        return sorted([*self._unacked_entries(), *self.ready, *self.backlog.entries()], key=id_of)

    def entries_for(self, ids: dict[int, ReplicationIdSet]) -> list[Entry]:
        """Those held that are in `ids`, sorted by id."""
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

    def set_aside(self, overflow: Overflow, most: int) -> int:
        """About `most` bytes of messages leave memory, but not the oldest; how many did. None of a queue with
        priorities while it serves: any of its messages may be the next."""
        if self.mode is Mode.REPLICA:
            return self.replica.set_aside(overflow, most)
        ready, backlog = self.ready, self.backlog
        if isinstance(ready, PriorityReady):
            return 0
        if not backlog.count and len(ready) > self.window:
            backlog.tail.extend(islice(ready, self.window, None))
            backlog.count = len(backlog.tail)
            self.ready = self.back = deque(islice(ready, self.window))
        if backlog.count:
            self.back = backlog.tail
        return backlog.set_aside(overflow, most)

    # -- how far history got

    def ends(self) -> EpochEnds:
        """How far each epoch got in this queue."""
        return self.replica.ends() if self.mode is Mode.REPLICA else self.ends_before(self.ids.next)

    def ends_before(self, sequence: int) -> EpochEnds:
        """The same of a queue that serves, when `sequence` was its next."""
        if sequence == 1:
            return dict(self.earlier)
        return self.earlier | {self.ids.epoch: EpochEnd(sequence - 1)}

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
        """Epochs of which messages are held, all before the one served among them; O(log n) each, and once
        through the runs of the backlog."""
        held = {number for number, some in self._unacked.items() if some}
        if isinstance(self.ready, PriorityReady):
            return held | {number for number in self.earlier if self.ready.holds_epoch(number)}
        for number in self.earlier if self._foreign else ():
            at = bisect_left(self.ready, (number, 0), key=id_of)
            if at < len(self.ready) and epoch_of(self.ready[at]) == number:
                held.add(number)
        return held | self.backlog.epochs() if self.backlog.count else held

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
        self.ready, self.backlog = self._nothing_ready(), Backlog()
        window = self.window if self.rules.max_priority is None else sys.maxsize
        for run in self.replica.drain():
            if run.envelope is not None and run.envelope.expiration is not None:
                self.timed = self.watched = True
            if len(self.ready) < window:
                self.ready.extend(run.take())
            else:
                self.backlog.append(run)
        self.back = self.backlog.tail if self.backlog.count else self.ready
        self._foreign = self.message_count
        if self.ready:
            self._now_stored()
        self.replica = ReplicaContents()
        self.ids = IdSource(epoch)
        self._unacked = {}
        self.unacked_count = 0
        self.mode = Mode.ACTIVE
        self._look_again()

    def deactivate(self) -> None:
        """ACTIVE -> REPLICA: ready and unacked become replica contents; consumers are forgotten untold."""
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
        self.returning = None
        self.unacked_count = self._foreign = 0
        if self.returns is not None:
            self.returns.clear()
        self.consumers.clear()
        self.scheduled = False
        self.owner = None

    def _look_again(self) -> None:
        """It serves from now on: its rules are applied to what it holds."""
        if self.sized:
            self._count_octets()

    def _octets(self, entries: Iterable[Entry]) -> int:
        size = self.removals.format.body_size
        return sum([size(entry[2]) for entry in entries])

    def _now_stored(self) -> None:
        """The store may hold messages of this queue: from now on it is told of dequeues."""
        self.stored = True
        self._leave_scope = self.content_scope
