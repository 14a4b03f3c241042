"""The contents of one queue on a backup or on a recovering node: runs as they arrived, not parsed.

Owner: `Queue` while its mode is REPLICA. A run of messages stays one blob with an index. Only a promotion, or
a snapshot for another node, splits it. Dequeues are idempotent. While the copy is `incomplete`, a dequeue may
arrive before its own enqueue (invariant 16). A run that is dequeued completely frees its bytes at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from broker.model.history.epoch_ends import EpochEnd, EpochEnds, had
from broker.model.history.records import EnqueueRun, Entry, Envelope, MessageId, RawRun
from broker.model.history.replication_id_set import Range, ReplicationIdSet
from broker.model.queue.message_run import MessageRun, Overflow, page_out, stretches

_COMPACT_AT = 64
"""Dead runs tolerated in an epoch's index before it is rewritten, even if they are over half of it."""


class _EpochRuns:
    """The runs of one epoch, disjoint and ascending. Many dead runs are removed together. `highest`,
    `lacking` and `settled` are the fields of its `EpochEnd`."""

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
        """Index of the first run that overlaps low..high, or else of the first run above."""
        at = bisect_right(self.firsts, low) - 1
        return at if at >= 0 and self.runs[at].last >= low else at + 1

    def add(self, run: MessageRun) -> None:
        """Insert a run. Its range must be free."""
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
        """The live ranges within low..high, ascending."""
        for at in range(self.overlapping(low, high), len(self.runs)):
            run = self.runs[at]
            if run.first > high:
                return
            for first, last in run.live_ranges():
                if first <= high and last >= low:
                    yield max(first, low), min(last, high)

    def open_up(self, low: int, high: int) -> None:
        """Split the runs around low..high into their live parts, so that the gaps can be filled again."""
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

    `incomplete`: a snapshot is still being fetched. A dequeue of an unknown id then leaves a tombstone, and a
    later enqueue of that id is discarded. Otherwise a dequeue of an unknown id does nothing.
    """

    __slots__ = ("_awaited", "_epochs", "_tombstones", "unsure")

    def __init__(self) -> None:
        self.unsure = False
        """The copy was created anew. Messages enqueued and dequeued meanwhile were never here, so the next
        may have any id."""
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
        """Whether older messages of history may still arrive."""
        return bool(self._awaited)

    def await_all(self) -> bool:
        """Expect a snapshot of everything that history had and this copy does not hold. These ids count as
        lacking until a piece or a dequeue settles them. Returns whether there are any."""
        self._awaited = {}
        self._await(self._missing())
        return self.awaits

    def begin_incomplete(self, end: MessageId) -> None:
        """Start the snapshot, which reaches up to `end`: keep tombstones from now on, for its ids only. Ids
        up to `end` that history had and this copy does not hold may still arrive, or may be dequeued."""
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
        """Add to the awaited ids."""
        for number, ids in missing.items():
            ids.discard_range(0, 0)
            if ids:
                awaited, epoch = self._awaited.get(number), self._epochs[number]
                self._awaited[number] = ids if awaited is None else awaited | ids
                epoch.lacking = ids.copy() if epoch.lacking is None else epoch.lacking | ids

    def settle(self, after: MessageId, upto: MessageId) -> None:
        """A snapshot piece is complete: all existing messages of this range are here."""
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
        """The snapshot is complete: drop the tombstones."""
        self._awaited, self._tombstones = {}, None

    def claim(self) -> bool:
        """After a promotion: the history of this node includes all that it holds, also what the last primary
        never had. The gaps in that stretch are lacking. Returns whether there was such a stretch."""
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
        """The last sequence and the gaps of each epoch, also of epochs without messages."""
        return {
            number: EpochEnd(
                epoch.highest, tuple(epoch.lacking.ranges() if epoch.lacking else ()), epoch.settled
            )
            for number, epoch in sorted(self._epochs.items())
            if epoch.highest
        }

    def set_ends(self, ends: EpochEnds) -> None:
        """Replace what history had. Messages that history never had may still be held."""
        for number in [n for n, epoch in self._epochs.items() if n not in ends and not epoch.count]:
            del self._epochs[number]
        for epoch in self._epochs.values():
            epoch.highest, epoch.lacking, epoch.settled = 0, None, False
        for number, end in ends.items():
            epoch = self._epochs.setdefault(number, _EpochRuns())
            epoch.highest, epoch.settled = end.last, end.settled
            epoch.lacking = ReplicationIdSet(end.lacking) if end.lacking else None

    def next_of(self, epoch: int) -> int:
        """The next expected sequence of `epoch`."""
        held = self._epochs.get(epoch)
        return 1 if held is None else held.highest + 1

    def held_epochs(self) -> list[int]:
        """Epochs with messages."""
        return [number for number, epoch in self._epochs.items() if epoch.count]

    def add_run(self, first: int, envelope: Envelope, raws: RawRun | list[bytes]) -> None:
        """Hold `first` and the following sequences of `envelope.epoch`. Ids already held or with a tombstone
        are skipped.

        An id that was held and dequeued is accepted again: an ordered stream never enqueues an id twice, and
        a node that drops ids to fetch them again needs them.
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
        """Take over ascending runs unchanged. No message may be held yet. `ends` keeps what it says."""
        for run in runs:
            epoch = self._epochs.get(run.epoch)
            if epoch is None:
                epoch = self._epochs[run.epoch] = _EpochRuns()
            epoch.add(run)
            epoch.highest = max(epoch.highest, run.last)

    def take_over(self, newer: ReplicaContents) -> None:
        """Merge `newer`, which was begun to replace this copy and is given up.

        Adds what `newer` holds, and removes what was dequeued meanwhile. `newer` says what history had; ids
        that neither copy holds are lacking.
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
        """The ranges of a run that were dequeued before it arrived, by epoch; they are not held. For a run of
        this queue alone."""
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
        """Fill the gaps between existing runs with parts of a new run."""
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
        """History dequeued these ids: forget them. Unknown ids are ignored, or get a tombstone while
        incomplete."""
        self.drop(epoch, ranges)
        held = self._epochs.get(epoch)
        if held is not None and held.lacking:
            for low, high in ranges:
                held.lacking.discard_range(low, high)

    def drop(self, epoch: int, ranges: list[Range]) -> None:
        """Drop ids that another node does not hold. This says nothing about what history lacks."""
        held = self._epochs.get(epoch)
        if held is not None:
            for low, high in ranges:
                held.remove(low, high)
        if self._tombstones is not None:
            tombs = self._tombstones.setdefault(epoch, ReplicationIdSet())
            for low, high in ranges:
                tombs.add_range(low, high)

    def ids(self) -> dict[int, ReplicationIdSet]:
        """A fresh copy of the ids held, by epoch. No empty sets."""
        held = {}
        for number, epoch in sorted(self._epochs.items()):
            if epoch.count:
                made = held[number] = ReplicationIdSet()
                for run in epoch.runs:
                    for low, high in run.live_ranges():
                        made.add_range(low, high)
        return held

    def ids_within(self, after: MessageId, upto: MessageId) -> dict[int, ReplicationIdSet]:
        """The ids held above `after` and up to `upto`, by epoch. No empty sets."""
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
        """All entries, sorted by (epoch, sequence)."""
        found: list[Entry] = []
        for _, epoch in sorted(self._epochs.items()):
            for run in epoch.runs:
                found += run.entries()
        return found

    def drain(self) -> Iterator[MessageRun]:
        """Yield every run, sorted and marked as redelivered. The contents are empty afterwards."""
        for _, epoch in sorted(self._epochs.items()):
            epoch.runs.reverse()
            while epoch.runs:
                run = epoch.runs.pop()
                if run.envelope is not None:
                    run.envelope = run.envelope.as_redelivered()
                    yield run
        self.clear()

    def page_out(self, overflow: Overflow, most: int) -> int:
        """Page out about `most` bytes, newest messages first. Returns the bytes that left memory."""
        return page_out(self._newest_first, overflow, most)[0]

    def _newest_first(self) -> Iterator[MessageRun]:
        for _, epoch in sorted(self._epochs.items(), reverse=True):
            yield from reversed(epoch.runs)

    def entries_for(self, ids: dict[int, ReplicationIdSet]) -> list[Entry]:
        """The entries whose ids are in `ids`, sorted by (epoch, sequence)."""
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
        """Forget all messages. `ends` keeps what it says."""
        for epoch in self._epochs.values():
            epoch.runs, epoch.firsts, epoch.count, epoch.dead = [], [], 0, 0
