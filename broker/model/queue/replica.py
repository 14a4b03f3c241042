"""What a backup, or a node in recovery, holds of one queue: runs as they came, not parsed.

Owner: `Queue` while its mode is REPLICA. A run of messages stays one blob with an index; only promotion, or a
snapshot for another node, cuts it. Dequeues are idempotent, and safe in any order against their own enqueue
while the copy is `incomplete` (invariant 16). A run that is dequeued whole lets go of its bytes at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from broker.model.history.epoch_ends import EpochEnd, EpochEnds, had
from broker.model.history.records import EnqueueRun, Entry, Envelope, MessageId, RawRun
from broker.model.history.replication_id_set import Range, ReplicationIdSet
from broker.model.queue.message_run import MessageRun, Overflow, set_aside, stretches

_COMPACT_AT = 64
"""Dead runs kept in an epoch's index before it is rewritten, if they are also half of it."""


class _EpochRuns:
    """The runs of one epoch, disjoint, ascending; dead ones are swept out when they are many. `highest`,
    `lacking`, `settled`: its end (`EpochEnd`)."""

    __slots__ = ("count", "dead", "firsts", "highest", "lacking", "runs", "settled")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.runs: list[MessageRun] = []
        self.count = 0
        self.dead = 0
        self.highest = 0
        self.lacking: ReplicationIdSet | None = None
        self.settled = False

    def overlapping(self, low: int, high: int) -> int:
        """Index of the first run that may reach into low..high, or of the first beyond."""
        at = bisect_right(self.firsts, low) - 1
        return at if at >= 0 and self.runs[at].last >= low else at + 1

    def add(self, run: MessageRun) -> None:
        """Insert a run; its place must be free."""
        if not self.runs or run.first > self.runs[-1].last:
            self.firsts.append(run.first)
            self.runs.append(run)
        else:
            at = bisect_right(self.firsts, run.first)
            self.firsts.insert(at, run.first)
            self.runs.insert(at, run)
        self.count += run.left

    def remove(self, low: int, high: int) -> None:
        runs = self.runs
        for at in range(self.overlapping(low, high), len(runs)):
            run = runs[at]
            if run.first > high:
                break
            if run.left:
                self.count -= run.remove(max(low, run.first), min(high, run.last))
                if not run.left:
                    self.dead += 1
        if self.dead > _COMPACT_AT and self.dead * 2 > len(runs):
            self._index([run for run in runs if run.left])

    def live_within(self, low: int, high: int) -> Iterator[Range]:
        """What is live of low..high, ascending."""
        for at in range(self.overlapping(low, high), len(self.runs)):
            run = self.runs[at]
            if run.first > high:
                return
            for first, last in run.live_ranges():
                if first <= high and last >= low:
                    yield max(first, low), min(last, high)

    def open_up(self, low: int, high: int) -> None:
        """Cut the runs around low..high to what is live in them, so that their holes can be filled again."""
        at = self.overlapping(low, high)
        end = bisect_right(self.firsts, high)
        cut = [
            piece
            for run in self.runs[at:end]
            for piece in (run.pieces() if run.left <= run.last - run.first else [run])
        ]
        self._index([*self.runs[:at], *cut, *self.runs[end:]])

    def _index(self, runs: list[MessageRun]) -> None:
        self.runs = runs
        self.firsts = [run.first for run in runs]
        self.dead = sum(not run.left for run in runs)


class ReplicaContents:
    """All messages of one queue, by epoch and sequence.

    `incomplete`: a snapshot is still being fetched; a dequeue of an id not held leaves a tombstone, and an
    enqueue that comes later is swallowed by it. Outside of that, a dequeue of an unknown id does nothing.
    """

    __slots__ = ("_awaited", "_epochs", "_tombstones", "unsure")

    def __init__(self) -> None:
        self.unsure = False
        """Made anew: messages that came and went meanwhile were never here, so the next may have any id."""
        self._epochs: dict[int, _EpochRuns] = {}
        self._awaited: dict[int, ReplicationIdSet] = {}
        self._tombstones: dict[int, ReplicationIdSet] | None = None

    @property
    def count(self) -> int:
        """Messages held."""
        return sum(epoch.count for epoch in self._epochs.values())

    @property
    def incomplete(self) -> bool:
        return self._tombstones is not None

    @property
    def awaits(self) -> bool:
        """May anything that was in history still come?"""
        return bool(self._awaited)

    def await_all(self) -> bool:
        """A snapshot will come of all that history had and is not here: it is lacking until a piece, or its
        dequeue, tells. Whether there is any of it.
        """
        self._awaited = {}
        self._await(self._missing())
        return self.awaits

    def begin_incomplete(self, end: MessageId) -> None:
        """The snapshot begins, and goes up to `end`: from now on keep tombstones, of it alone. What history
        had of that and is not here may come or be gone.
        """
        self._tombstones = {}
        if end[1] > 0:
            served = self._epochs.setdefault(end[0], _EpochRuns())
            served.highest = max(served.highest, end[1])
        missing = self._missing()
        for number, ids in missing.items():
            if number >= end[0]:
                ids.discard_range(end[1] + 1 if number == end[0] else 0, 2**64)
        self._await(missing)

    def _missing(self) -> dict[int, ReplicationIdSet]:
        held = self.ids()
        return {
            number: ids - held[number] if number in held else ids for number, ids in had(self.ends()).items()
        }

    def _await(self, missing: dict[int, ReplicationIdSet]) -> None:
        """These too."""
        for number, ids in missing.items():
            ids.discard_range(0, 0)
            if ids:
                awaited, epoch = self._awaited.get(number), self._epochs[number]
                self._awaited[number] = ids if awaited is None else awaited | ids
                epoch.lacking = ids.copy() if epoch.lacking is None else epoch.lacking | ids

    def settle(self, after: MessageId, upto: MessageId) -> None:
        """All that there is of this stretch is here."""
        for number, awaited in self._awaited.items():
            if not after[0] <= number <= upto[0]:
                continue
            low = after[1] + 1 if number == after[0] else 0
            high = upto[1] if number == upto[0] else 2**64
            lacking = self._epochs[number].lacking
            for first, last in awaited.ranges_within(low, high) if low <= high else ():
                if lacking:
                    lacking.discard_range(first, last)
                awaited.discard_range(first, last)

    def complete(self) -> None:
        """The snapshot is whole: forget the tombstones."""
        self._awaited, self._tombstones = {}, None

    def claim(self) -> bool:
        """Who serves from here on has all that it holds in its history, also what its last primary never had;
        what that stretch had besides is lacking. Whether there was any.
        """
        found = False
        for number, epoch in self._epochs.items():
            if not epoch.count or epoch.runs[-1].last <= epoch.highest:
                continue
            ids = ReplicationIdSet(self.ids()[number].ranges_within(epoch.highest + 1, 2**64))
            if ids:
                *_, (_, last) = ids.ranges()
                lacking = ReplicationIdSet([(epoch.highest + 1, last)]) - ids
                epoch.lacking = lacking if epoch.lacking is None else epoch.lacking | lacking
                epoch.highest, found = last, True
        return found

    def ends(self) -> EpochEnds:
        """How far each epoch got here, also if all of it is dequeued since."""
        return {
            number: EpochEnd(
                epoch.highest, tuple(epoch.lacking.ranges() if epoch.lacking else ()), epoch.settled
            )
            for number, epoch in sorted(self._epochs.items())
            if epoch.highest
        }

    def set_ends(self, ends: EpochEnds) -> None:
        """What history had is this, and nothing else; messages that it never had may still be held."""
        for number in [n for n, epoch in self._epochs.items() if n not in ends and not epoch.count]:
            del self._epochs[number]
        for epoch in self._epochs.values():
            epoch.highest, epoch.lacking, epoch.settled = 0, None, False
        for number, end in ends.items():
            epoch = self._epochs.setdefault(number, _EpochRuns())
            epoch.highest, epoch.settled = end.last, end.settled
            epoch.lacking = ReplicationIdSet(end.lacking) if end.lacking else None

    def next_of(self, epoch: int) -> int:
        """The sequence that is due next in `epoch`."""
        held = self._epochs.get(epoch)
        return 1 if held is None else held.highest + 1

    def held_epochs(self) -> list[int]:
        """Epochs of which messages are held."""
        return [number for number, epoch in self._epochs.items() if epoch.count]

    def add_run(self, first: int, envelope: Envelope, raws: RawRun | list[bytes]) -> None:
        """Hold first..first+count-1 of `envelope.epoch`. Ids already held or entombed are skipped.

        An id that was held once and dequeued is taken again: one ordered stream never enqueues an id twice,
        and whoever drops ids to fetch them anew gets them.
        """
        count = len(raws.lengths) if isinstance(raws, RawRun) else len(raws)
        if not count:
            return
        epoch = self._epochs.get(envelope.epoch)
        if epoch is None:
            epoch = self._epochs[envelope.epoch] = _EpochRuns()
        last = first + count - 1
        if not epoch.runs or first > epoch.runs[-1].last:
            epoch.add(MessageRun(first, envelope, raws, count))
        else:
            self._add_around(epoch, first, last, envelope, raws)
        epoch.highest = max(epoch.highest, last)
        if epoch.lacking:
            epoch.lacking.discard_range(first, last)
        if self._tombstones:
            tombs = self._tombstones.get(envelope.epoch)
            if tombs is not None:
                for low, high in tombs.ranges_within(first, last):
                    epoch.remove(low, high)

    def take_runs(self, runs: list[MessageRun]) -> None:
        """Hold these, which ascend, as they are: nothing may be held yet. What `ends` says stays."""
        for run in runs:
            epoch = self._epochs.get(run.epoch)
            if epoch is None:
                epoch = self._epochs[run.epoch] = _EpochRuns()
            epoch.add(run)
            epoch.highest = max(epoch.highest, run.last)

    def take_over(self, newer: ReplicaContents) -> None:
        """`newer` was begun in place of this copy and comes no further: hold what it holds too, and nothing
        that left meanwhile. What history had is what it says; lacking is what neither holds of that.
        """
        for number, gone in (newer._tombstones or {}).items():
            self.dequeue(number, gone.ranges())
        self.set_ends(newer.ends())
        held = self.ids()
        for number, epoch in self._epochs.items():
            if epoch.lacking and number in held:
                epoch.lacking -= held[number]
        for number, ids in newer.ids().items():
            missing = ids - held[number] if number in held else ids
            for first, envelope, raws in stretches(newer.entries_for({number: missing})):
                self.add_run(first, envelope, raws)

    def entombed(self, run: EnqueueRun) -> dict[int, list[Range]]:
        """What of a run for this queue alone was dequeued before it came, by epoch: swallowed, not held."""
        tombs = (self._tombstones or {}).get(run.envelope.epoch)
        if tombs is None:
            return {}
        first = run.firsts[0]
        count = len(run.raws.lengths) if isinstance(run.raws, RawRun) else len(run.raws)
        ranges = tombs.ranges_within(first, first + count - 1)
        return {run.envelope.epoch: ranges} if ranges else {}

    def _add_around(
        self, epoch: _EpochRuns, first: int, last: int, envelope: Envelope, raws: RawRun | list[bytes]
    ) -> None:
        """Fill the gaps between runs that are already there with the parts of a new one."""
        at = epoch.overlapping(first, last)
        if at == len(epoch.runs) or epoch.runs[at].first > last:
            epoch.add(MessageRun(first, envelope, raws, last - first + 1))
            return
        epoch.open_up(first, last)
        at, gaps, low = epoch.overlapping(first, last), [], first
        while at < len(epoch.runs) and epoch.runs[at].first <= last:
            if epoch.runs[at].first > low:
                gaps.append((low, epoch.runs[at].first - 1))
            low = epoch.runs[at].last + 1
            at += 1
        if low <= last:
            gaps.append((low, last))
        if gaps == [(first, last)]:
            epoch.add(MessageRun(first, envelope, raws, last - first + 1))
            return
        cut = raws.split() if isinstance(raws, RawRun) else raws
        for low, high in gaps:
            epoch.add(MessageRun(low, envelope, cut[low - first : high - first + 1], high - low + 1))

    def dequeue(self, epoch: int, ranges: list[Range]) -> None:
        """History has dequeued these: forget them; unknown ids are ignored (or entombed while incomplete)."""
        self.drop(epoch, ranges)
        held = self._epochs.get(epoch)
        if held is not None and held.lacking:
            for low, high in ranges:
                held.lacking.discard_range(low, high)

    def drop(self, epoch: int, ranges: list[Range]) -> None:
        """This copy gives these up, as another holds none of them: of what history lacks they say nothing."""
        held = self._epochs.get(epoch)
        if held is not None:
            for low, high in ranges:
                held.remove(low, high)
        if self._tombstones is not None:
            tombs = self._tombstones.setdefault(epoch, ReplicationIdSet())
            for low, high in ranges:
                tombs.add_range(low, high)

    def ids(self) -> dict[int, ReplicationIdSet]:
        """A fresh copy of what is held, by epoch; no empty sets."""
        held = {}
        for number, epoch in sorted(self._epochs.items()):
            if epoch.count:
                made = held[number] = ReplicationIdSet()
                for run in epoch.runs:
                    for low, high in run.live_ranges():
                        made.add_range(low, high)
        return held

    def ids_within(self, after: MessageId, upto: MessageId) -> dict[int, ReplicationIdSet]:
        """What is held beyond `after`, up to `upto`, by epoch; no empty sets."""
        found = {}
        for number, epoch in sorted(self._epochs.items()):
            if not after[0] <= number <= upto[0] or not epoch.count:
                continue
            low = after[1] + 1 if number == after[0] else 0
            high = upto[1] if number == upto[0] else 2**64
            ids = ReplicationIdSet(epoch.live_within(low, high) if low <= high else ())
            if ids:
                found[number] = ids
        return found

    def entries(self) -> list[Entry]:
        """Everything, cut, sorted by (epoch, sequence)."""
        found: list[Entry] = []
        for _, epoch in sorted(self._epochs.items()):
            for run in epoch.runs:
                found += run.entries()
        return found

    def drain(self) -> Iterator[MessageRun]:
        """Every run, sorted, redelivered from now on. Nothing is held here afterwards."""
        for _, epoch in sorted(self._epochs.items()):
            epoch.runs.reverse()
            while epoch.runs:
                run = epoch.runs.pop()
                if run.envelope is not None:
                    run.envelope = run.envelope.as_redelivered()
                    yield run
        self.clear()

    def set_aside(self, overflow: Overflow, most: int) -> int:
        """About `most` bytes leave memory, the newest first; how many did."""
        return set_aside(self._newest_first, overflow, most)[0]

    def _newest_first(self) -> Iterator[MessageRun]:
        for _, epoch in sorted(self._epochs.items(), reverse=True):
            yield from reversed(epoch.runs)

    def entries_for(self, ids: dict[int, ReplicationIdSet]) -> list[Entry]:
        """Those held that are in `ids`, cut, sorted by (epoch, sequence)."""
        found: list[Entry] = []
        for number in sorted(ids):
            epoch = self._epochs.get(number)
            if epoch is None:
                continue
            for low, high in ids[number].ranges():
                for at in range(epoch.overlapping(low, high), len(epoch.runs)):
                    run = epoch.runs[at]
                    if run.first > high:
                        break
                    if run.left:
                        found += [entry for entry in run.entries() if low <= entry[0] <= high]
        return found

    def clear(self) -> None:
        """Forget all messages; what `ends` says stays."""
        for epoch in self._epochs.values():
            epoch.runs, epoch.firsts, epoch.count, epoch.dead = [], [], 0, 0
