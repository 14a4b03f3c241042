"""Range sets compared with plain sets of integers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from spark.watch.range_set import RangeSet

SMALL = st.integers(0, 40)
RANGES = st.tuples(SMALL, st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))
CHANGES = st.lists(st.tuples(st.sampled_from(("add", "remove")), RANGES), max_size=25)


def made(changes: list[tuple[str, tuple[int, int]]]) -> tuple[RangeSet, set[int]]:
    ranges, plain = RangeSet(), set[int]()
    for what, (first, last) in changes:
        getattr(ranges, what)(first, last)
        numbers = set(range(first, last + 1))
        plain = plain | numbers if what == "add" else plain - numbers
    return ranges, plain


def numbers_of(ranges: RangeSet) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


@given(CHANGES)
def test_holds_the_right_numbers_in_the_fewest_ranges(
    changes: list[tuple[str, tuple[int, int]]],
) -> None:
    ranges, plain = made(changes)
    assert numbers_of(ranges) == plain
    assert ranges.count == len(plain)
    pairs = list(ranges)
    assert all(b + 1 < c for (_, b), (c, _) in pairwise(pairs))
    assert {number for number in range(60) if number in ranges} == plain
    assert RangeSet.of_flat(ranges.flat()) == ranges == ranges.copy()


@given(CHANGES, CHANGES)
def test_intersection_difference_and_union_match_sets(
    one: list[tuple[str, tuple[int, int]]], two: list[tuple[str, tuple[int, int]]]
) -> None:
    (a, plain_a), (b, plain_b) = made(one), made(two)
    assert numbers_of(a.meet(b)) == plain_a & plain_b
    assert numbers_of(a.minus(b)) == plain_a - plain_b
    both = a.copy()
    both.update(b)
    assert numbers_of(both) == plain_a | plain_b


@given(CHANGES, RANGES)
def test_parts_and_gaps_of_a_range_make_the_range(
    changes: list[tuple[str, tuple[int, int]]], window: tuple[int, int]
) -> None:
    ranges, plain = made(changes)
    whole = set(range(window[0], window[1] + 1))
    assert numbers_of(RangeSet(ranges.within(*window))) == plain & whole
    assert numbers_of(RangeSet(ranges.gaps(*window))) == whole - plain
