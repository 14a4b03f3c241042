"""ReplicationIdSet against Python's own sets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.model.history.replication_id_set import ReplicationIdSet, to_ranges

SEQ = st.integers(0, 60)
SEQS = st.sets(SEQ)
RANGE = st.tuples(SEQ, st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


class AgainstSets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ours = ReplicationIdSet()
        self.theirs: set[int] = set()

    @rule(span=RANGE)
    def add(self, span: tuple[int, int]) -> None:
        self.ours.add_range(*span)
        self.theirs |= set(range(span[0], span[1] + 1))

    @rule(span=RANGE)
    def discard(self, span: tuple[int, int]) -> None:
        self.ours.discard_range(*span)
        self.theirs -= set(range(span[0], span[1] + 1))

    @rule(span=RANGE)
    def within(self, span: tuple[int, int]) -> None:
        found = {s for low, high in self.ours.ranges_within(*span) for s in range(low, high + 1)}
        assert found == self.theirs & set(range(span[0], span[1] + 1))

    @invariant()
    def equal(self) -> None:
        assert list(self.ours) == sorted(self.theirs)
        assert len(self.ours) == len(self.theirs)
        assert bool(self.ours) == bool(self.theirs)
        assert {s for s in range(80) if s in self.ours} == self.theirs

    @invariant()
    def ranges_are_disjoint_and_not_adjacent(self) -> None:
        ranges = self.ours.ranges()
        assert all(first <= last for first, last in ranges)
        assert all(a[1] + 1 < b[0] for a, b in pairwise(ranges))


TestAgainstSets = AgainstSets.TestCase


@given(SEQS, SEQS)
def test_algebra(a: set[int], b: set[int]) -> None:
    ours_a, ours_b = ReplicationIdSet.of(a), ReplicationIdSet.of(b)
    assert set(ours_a | ours_b) == a | b
    assert set(ours_a & ours_b) == a & b
    assert set(ours_a - ours_b) == a - b
    assert (ours_a == ours_b) == (a == b)
    assert set(ours_a) == a  # operands are left alone


@given(SEQS)
def test_from_ranges_is_the_inverse_of_ranges(seqs: set[int]) -> None:
    made = ReplicationIdSet.of(seqs)
    assert ReplicationIdSet.from_ranges(made.ranges()) == made
    assert ReplicationIdSet(made.ranges()) == made


@given(st.lists(SEQ, unique=True))
def test_to_ranges(seqs: list[int]) -> None:
    spread = [s for low, high in to_ranges(list(seqs)) for s in range(low, high + 1)]
    assert spread == sorted(seqs)


def test_faults() -> None:
    with pytest.raises(ValueError, match=r"5\.\.4"):
        ReplicationIdSet([(5, 4)])
    with pytest.raises(ValueError, match="out of order"):
        ReplicationIdSet.from_ranges([(5, 6), (6, 7)])
    with pytest.raises(ValueError, match="empty"):
        ReplicationIdSet().discard_range(2, 1)


def test_ends() -> None:
    made = ReplicationIdSet([(7, 9), (1, 2)])
    assert (made.lowest, made.highest) == (1, 9)
    made.discard(2)
    made.add(10)
    assert made.ranges() == [(1, 1), (7, 10)]
