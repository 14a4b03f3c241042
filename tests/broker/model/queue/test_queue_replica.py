"""ReplicaContents compared with a plain dict: any order of enqueues, dequeues and pieces; memory is freed."""

from __future__ import annotations

import gc
import weakref

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.model.history.epoch_ends import EpochEnd
from broker.model.history.records import Envelope, RawRun
from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.queue.message_run import group_runs
from broker.model.queue.replica import ReplicaContents

SEQ = st.integers(1, 40)
EPOCH = st.integers(1, 2)
ID = st.tuples(EPOCH, SEQ)
COUNT = st.integers(1, 9)


def envelope(epoch: int) -> Envelope:
    return Envelope(epoch, "", "k", persistent=False, wall_ms=0, channel=1, largest_frame=9)


def raw(epoch: int, seq: int) -> bytes:
    return b"%d:%d" % (epoch, seq) + b"." * (seq % 3)


def raw_run(epoch: int, first: int, count: int) -> RawRun:
    raws = [raw(epoch, seq) for seq in range(first, first + count)]
    return RawRun([len(r) for r in raws], b"".join(raws))


class AgainstDict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ours = ReplicaContents()
        self.theirs: dict[tuple[int, int], bytes] = {}
        self.entombed: set[tuple[int, int]] = set()
        self.at = (0, -1)

    def teardown(self) -> None:
        wanted = [(seq, envelope.as_redelivered(), raw) for seq, envelope, raw in self.ours.entries()]
        ends = self.ours.ends()
        assert [entry for run in self.ours.drain() for entry in run.take()] == wanted
        assert (self.ours.count, self.ours.ends()) == (0, ends)

    @rule(epoch=EPOCH, first=SEQ, count=COUNT, cut=st.booleans())
    def add(self, epoch: int, first: int, count: int, cut: bool) -> None:
        run = raw_run(epoch, first, count)
        self.ours.add_run(first, envelope(epoch), run.split() if cut else run)
        for seq in range(first, first + count):
            if (epoch, seq) not in self.entombed:
                self.theirs[epoch, seq] = raw(epoch, seq)

    @rule(epoch=EPOCH, first=SEQ, count=COUNT)
    def dequeue(self, epoch: int, first: int, count: int) -> None:
        self.ours.dequeue(epoch, [(first, first + count - 1)])
        for seq in range(first, first + count):
            self.theirs.pop((epoch, seq), None)
            if self.ours.incomplete:
                self.entombed.add((epoch, seq))

    @precondition(lambda self: not self.ours.incomplete)
    @rule(epoch=EPOCH, seq=SEQ)
    def begin_incomplete(self, epoch: int, seq: int) -> None:
        self.ours.begin_incomplete((epoch, seq))
        self.lacking(up_to=(epoch, seq))
        self.at = (0, -1)

    def lacking(self, up_to: tuple[int, int]) -> None:
        """Only ids that are not here, below the end of the snapshot."""
        for number, end in self.ours.ends().items():
            for seq in range(1, end.last + 1):
                if seq not in end.had():
                    assert (number, seq) <= up_to and (number, seq) not in self.theirs

    @precondition(lambda self: self.ours.incomplete)
    @rule()
    def complete(self) -> None:
        self.ours.settle(self.at, (9, 99))
        self.ours.complete()
        self.entombed.clear()
        assert not any(end.lacking for end in self.ours.ends().values())

    @precondition(lambda self: self.ours.incomplete)
    @rule(epoch=EPOCH, seq=SEQ)
    def settle(self, epoch: int, seq: int) -> None:
        if (epoch, seq) > self.at:
            self.ours.settle(self.at, (epoch, seq))
            self.at = (epoch, seq)

    @precondition(lambda self: not self.ours.incomplete)
    @rule(steps=st.lists(st.tuples(st.booleans(), EPOCH, SEQ, COUNT), max_size=6), upto=ID)
    def renew(self, steps: list[tuple[bool, int, int, int]], upto: tuple[int, int]) -> None:
        """Begin a new copy, and give it up after some messages have arrived and some have left."""
        older, gone = self.ours, set[tuple[int, int]]()
        self.ours = ReplicaContents()
        self.ours.set_ends(older.ends())
        self.ours.begin_incomplete(upto)
        for comes, epoch, first, count in steps:
            ids = {(epoch, seq) for seq in range(first, first + count)}
            if comes:
                self.ours.add_run(first, envelope(epoch), raw_run(epoch, first, count))
                self.theirs |= {(epoch, seq): raw(epoch, seq) for epoch, seq in ids - gone}
            else:
                self.ours.dequeue(epoch, [(first, first + count - 1)])
                gone |= ids
        self.theirs = {key: text for key, text in self.theirs.items() if key not in gone}
        waits = {number: end.had() for number, end in self.ours.ends().items()}
        older.take_over(self.ours)
        self.ours = older
        for number, end in older.ends().items():
            here = ReplicationIdSet.of({seq for epoch, seq in self.theirs if epoch == number})
            assert end.had().ranges() == (waits[number] | here).ranges()
        told = {number: EpochEnd(end.last) for number, end in older.ends().items()}
        older.set_ends(told)  # as to everybody who joins

    @rule(after=ID, upto=ID)
    def ids_within(self, after: tuple[int, int], upto: tuple[int, int]) -> None:
        found = self.ours.ids_within(after, upto)
        held = {(epoch, seq) for epoch, ids in found.items() for seq in ids}
        assert held == {key for key in self.theirs if after < key <= upto}

    @rule(epoch=EPOCH, seqs=st.sets(SEQ))
    def entries_for(self, epoch: int, seqs: set[int]) -> None:
        found = self.ours.entries_for({epoch: ReplicationIdSet.of(seqs)})
        assert [(e.epoch, s) for s, e, _ in found] == sorted(
            key for key in self.theirs if key[0] == epoch and key[1] in seqs
        )

    @invariant()
    def equal(self) -> None:
        entries = self.ours.entries()
        assert [((e.epoch, s), r) for s, e, r in entries] == sorted(self.theirs.items())
        assert self.ours.count == len(self.theirs)
        ids = {(epoch, seq) for epoch, held in self.ours.ids().items() for seq in held}
        assert ids == set(self.theirs)

    @invariant()
    def grouping_loses_nothing(self) -> None:
        entries = self.ours.entries()
        again = ReplicaContents()
        for run in group_runs(b"q" * 16, entries):
            again.add_run(run.firsts[0], run.envelope, run.raws)
        assert again.ids() == self.ours.ids()


TestAgainstDict = AgainstDict.TestCase


class Blob(bytes):
    """Bytes that can be referenced weakly."""


def test_a_run_dequeued_whole_lets_go_of_its_bytes() -> None:
    contents = ReplicaContents()
    blob = Blob(b"x" * 30)
    watch = weakref.finalize
    gone: list[int] = []

    class Watched(RawRun):
        pass

    run = Watched([10, 10, 10], blob)
    watch(run, gone.append, 1)
    contents.add_run(1, envelope(1), run)
    del run, blob
    contents.dequeue(1, [(2, 2)])
    contents.dequeue(1, [(1, 1)])
    assert not gone
    contents.dequeue(1, [(3, 3)])
    gc.collect()
    assert gone
    assert contents.ends() == {1: EpochEnd(3)}


def test_the_index_stays_small_over_a_long_life() -> None:
    contents = ReplicaContents()
    for i in range(2000):
        contents.add_run(i * 10 + 1, envelope(1), raw_run(1, i * 10 + 1, 10))
        if i >= 5:
            contents.dequeue(1, [((i - 5) * 10 + 1, (i - 5) * 10 + 10)])
    assert contents.count == 50
    assert len(contents._epochs[1].runs) < 200


def test_an_empty_run_is_nothing() -> None:
    contents = ReplicaContents()
    contents.add_run(1, envelope(1), RawRun([], b""))
    assert contents.entries() == []
    contents.set_ends({3: EpochEnd(9)})
    assert contents.ends() == {3: EpochEnd(9)}
    assert contents.ids() == {}
