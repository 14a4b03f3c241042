"""Gathering numbers into ranges loses nothing, invents nothing and hides no duplicate."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from understudy.ledger.ranges import RangeGatherer, to_ranges

numbers = st.lists(st.integers(0, 60))


def expand(ranges: list[tuple[int, int]]) -> Counter[int]:
    return Counter(n for first, last in ranges for n in range(first, last + 1))


@given(numbers)
def test_ranges_hold_exactly_what_was_given(given_numbers: list[int]) -> None:
    ranges = to_ranges(given_numbers)
    assert expand(ranges) == Counter(given_numbers)
    assert ranges == sorted(ranges)
    if len(set(given_numbers)) == len(given_numbers):
        assert all(after[0] > before[1] + 1 for before, after in pairwise(ranges))


@given(
    st.dictionaries(st.sampled_from("abc"), numbers),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9))),
)
def test_a_gatherer_drains_what_it_was_given_and_is_then_empty(
    singles: dict[str, list[int]], runs: list[tuple[int, int]]
) -> None:
    gatherer: RangeGatherer[str] = RangeGatherer()
    expected: dict[str, Counter[int]] = {}
    for key, own in singles.items():
        for number in own:
            gatherer.add(key, number)
            expected.setdefault(key, Counter())[number] += 1
    for first, length in runs:
        gatherer.add_range("b", first, first + length)
        expected.setdefault("b", Counter()).update(range(first, first + length + 1))
    assert bool(gatherer) == bool(expected)
    got: dict[str, Counter[int]] = {}
    for key, first, last in gatherer.drain():
        got.setdefault(key, Counter()).update(range(first, last + 1))
    assert got == expected
    assert not gatherer and list(gatherer.drain()) == []


def test_out_of_order_acks_become_one_range() -> None:
    gatherer: RangeGatherer[tuple[str, int]] = RangeGatherer()
    for number in (3, 1, 2, 5, 4):
        gatherer.add(("q", 1), number)
    gatherer.add_range(("q", 1), 6, 9)
    assert list(gatherer.drain()) == [(("q", 1), 1, 9)]
