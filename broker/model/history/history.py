"""History: the changes that the serving virtual hosts make, collected into one batch per tick.

Owner: the engine, one per broker. The virtual hosts and their queues append. `flush` runs once at the end of
each tick, before any confirm is released. Sinks (store, link, ledger) get the batch in the order of their
registration.

Dequeues are gathered by (queue, epoch, reason) and become ranges: acks arrive in any order, and a range costs
as much as one id. They are at most `dequeue_lag` late, and go with another batch after half of that. Every
record that is not an enqueue flushes them first, so no sink sees a deletion or purge before an older dequeue.

Every sink gets every batch, even if no record in it is in the sink's scope. Positions count batches, not one
sink's records. A gate must therefore pass a batch that has nothing for it. Otherwise a reply that waits for
that position, such as to a repeated declare, would wait for the next batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from broker.model.history.batch import Batch, BatchSink
from broker.model.history.records import Dequeue, Duplicate, EnqueueRun, Record, Unrouted
from broker.model.history.replication_id_set import to_ranges
from broker.model.values import Need, Position, Reason, Scope

DEQUEUE_LAG = 0.01
"""Seconds for which a dequeue may wait to be joined with others into a range."""

_OVERTAKEN = (EnqueueRun, Unrouted, Duplicate)
"""Records that need not wait for earlier dequeues."""

_Gathered = tuple[bytes, int, Reason, Scope]


class History:
    """The history of one serving epoch.

    `position`: what a completion waits for. The position of the current batch once it has a record, else of
    the last batch ((epoch, 0) before the first). `ledger_wanted`: a ledger is attached, so queues without
    scope make records too.
    """

    __slots__ = (
        "_deadline",
        "_gathered",
        "_hasty",
        "_records",
        "confirm",
        "dequeue_lag",
        "epoch",
        "ledger_wanted",
        "left",
        "longest_lag",
        "n",
        "position",
        "sinks",
    )

    def __init__(
        self, epoch: int = 0, *, dequeue_lag: float = DEQUEUE_LAG, ledger_wanted: bool = False
    ) -> None:
        self.dequeue_lag = dequeue_lag
        self.confirm = Need.DURABLE
        """What the confirm of a persistent message waits for where no policy says so."""
        self.ledger_wanted = ledger_wanted
        self.sinks: list[BatchSink] = []
        self._gathered: dict[_Gathered, list[int]] = {}
        self._deadline: float | None = None
        self._hasty = False
        self.longest_lag = 0.0
        """Seconds: the longest time that a dequeue has waited from the end of its tick to its flush."""
        self.left: dict[Reason, int] = dict.fromkeys(Reason, 0)
        """Messages removed from queues, by reason, in all epochs of this process."""
        self._records: list[Record] = []
        self.epoch = epoch
        self.n = 0
        self.position = Position(epoch, 0)

    def begin_epoch(self, epoch: int) -> None:
        """Serve in `epoch` from now on: positions start again at (epoch, 1).

        Raises ValueError if records are not flushed yet, or if the epoch does not grow (invariant 9).
        """
        if self._records or self._gathered:
            raise ValueError("history has unflushed records of the epoch before")
        if epoch < self.epoch or (epoch == self.epoch and self.n):
            raise ValueError(f"epoch {epoch} does not follow epoch {self.epoch}")
        self.epoch = epoch
        self.n = 0
        self.position = Position(epoch, 0)

    def append(self, record: Record) -> None:
        """Add one record to this tick's batch. A record other than an enqueue flushes the gathered dequeues
        first."""
        if not self._records:
            self.position = Position(self.epoch, self.n + 1)
        if self._gathered and not isinstance(record, _OVERTAKEN):
            self.gather()
        self._records.append(record)

    def dequeue(self, queue: bytes, epoch: int, seqs: Iterable[int], reason: Reason, scope: Scope) -> None:
        """Messages of `epoch` left `queue`. Each id at most once in all history; the order is free."""
        key = (queue, epoch, reason, scope)
        gathered = self._gathered.get(key)
        if gathered is None:
            self._gathered[key] = list(seqs)
        else:
            gathered.extend(seqs)

    def wait(self, now: float) -> float | None:
        """Until when what there is may wait for a flush, from `now` on; inf if there is nothing. None: a
        flush is due."""
        if self._records or self._hasty:
            return None
        if not self._gathered:
            return math.inf
        if self._deadline is None:
            self._deadline = now + self.dequeue_lag
        return self._deadline

    def gather(self) -> None:
        """Turn the gathered dequeues into records of this tick; for example before a commit, purge or
        deletion."""
        self._deadline = None
        if not self._gathered:
            return
        if not self._records:
            self.position = Position(self.epoch, self.n + 1)
        for (queue, epoch, reason, scope), seqs in self._gathered.items():
            self.left[reason] += len(seqs)
            self._records.append(Dequeue(queue, epoch, reason, to_ranges(seqs), scope))
        self._gathered = {}

    @property
    def waiting(self) -> int:
        """Dequeues gathered and not flushed yet."""
        return sum(map(len, self._gathered.values()))

    def hasten(self) -> None:
        """Make the next `flush` include all gathered dequeues, however new."""
        self._hasty = True

    def flush(self, now: float, wall_ms: int, *, force: bool = False) -> Batch | None:
        """End the tick: hand the batch, if there is one, to every sink. `now` in seconds of the broker's
        clock.

        Dequeues younger than `dequeue_lag` stay behind, unless `force`; or than half of it, if there are
        other records, because a batch costs a sync.
        """
        if self._gathered:
            if self._deadline is None:
                self._deadline = now + self.dequeue_lag
            early = self.dequeue_lag / 2 if self._records else 0.0
            if force or self._hasty or now >= self._deadline - early:
                self.longest_lag = max(self.longest_lag, now - self._deadline + self.dequeue_lag)
                self.gather()
        self._hasty = False
        if not self._records:
            return None
        batch = Batch(self.position, wall_ms, self._records)
        self._records = []
        self.n += 1
        for sink in self.sinks:
            sink.batch(batch)
        return batch

    def next_deadline(self) -> float | None:
        """When to call `flush` again at the latest, on the clock of its `now`; None if nothing waits."""
        return self._deadline
