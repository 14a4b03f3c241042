"""Marks against sets of numbers."""

from __future__ import annotations

import random

import pytest

from broker.model.history.marks import WINDOW, Mark, after_restart, gaps_of, last_of, merged, new_parts, noted


def bits(mark: Mark, mask: int) -> set[int]:
    return {last_of(mark) - place for place in range(WINDOW) if mask >> place & 1}


class Had:
    """A mark, and what it stands for."""

    def __init__(self) -> None:
        self.mark: Mark | None = None
        self.numbers: set[int] = set()
        self.stored: set[int] = set()

    def note(self, first: int, count: int, *, stored: bool) -> None:
        self.mark = noted(self.mark, first, count, stored=stored)
        numbers = set(range(first, first + count))
        self.numbers |= numbers
        self.stored = self.stored | numbers if stored else self.stored - numbers

    def check(self, mark: Mark | None = None) -> None:
        mark = mark or self.mark
        assert mark is not None
        last, holes, unstored = gaps_of(mark)
        assert last == max(self.numbers) and isinstance(mark, int) is (not holes and not unstored)
        known = set(range(max(1, last - WINDOW + 1), last + 1))
        assert bits(mark, holes) == known - self.numbers
        assert bits(mark, unstored) == known & self.numbers - self.stored
        kept = after_restart({"p": mark})["p"]
        assert bits(kept, gaps_of(kept).holes) == known - self.stored and not gaps_of(kept).unstored


@pytest.mark.parametrize("seed", range(40))
def test_a_mark_knows_the_newest_numbers_exactly(seed: int) -> None:
    choice = random.Random(seed)
    had, older = Had(), Had()
    following = choice.choice([1, 5, 2000])
    for step in range(40):
        count = choice.choice([1, 1, 2, 50, 700, 1500])
        gap = choice.choice([0, 0, 0, 1, 5, 900, 1100, 5000, -choice.randrange(1, WINDOW)])
        first = max(1, following + gap)
        if had.mark is not None and first <= last_of(had.mark) - WINDOW:
            continue
        fresh = [at for begin, end in new_parts(had.mark, first, count) for at in range(begin, end)]
        assert fresh == [at for at in range(count) if first + at not in had.numbers]
        had.note(first, count, stored=choice.random() < 0.6)
        had.check()
        if step < 20:
            older.numbers, older.stored, older.mark = set(had.numbers), set(had.stored), had.mark
        following = max(following, first + count)
    newer = Had()
    newer.note(had.numbers and max(older.numbers) + choice.randrange(1, 50), 3, stored=True)
    older.numbers |= newer.numbers
    older.stored |= newer.stored
    both = merged({"p": older.mark or 0}, {"p": newer.mark or 0})
    older.check(both["p"])


def test_what_is_older_than_the_window_counts_as_had() -> None:
    mark = noted(noted(None, 1, 1, stored=True), WINDOW + 2, 1, stored=True)
    assert new_parts(mark, 1, WINDOW + 3) == [(2, WINDOW + 1), (WINDOW + 2, WINDOW + 3)]
    assert new_parts(mark, 2, 1) == []
