"""The checkers can fail: each mutant of the product is found by the checker that it names.

Here a few of them each day, in turn; `make soak-simulation` hunts them all. Which turn it is can be said in
the environment: `MUTANTS_TURN=3 pytest tests/simulation/test_mutants.py`.
"""

from __future__ import annotations

import os
from datetime import date

import pytest

from tests.simulation.mutants import MUTANTS, turn
from tests.simulation.mutants.hunt import SEEDS, hunt
from tests.simulation.mutants.mutant import Mutant, Patch

TURN = int(os.environ.get("MUTANTS_TURN", date.today().toordinal()))
LAST_INVARIANT = 30


@pytest.mark.parametrize("mutant", turn(TURN), ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_named_checker_finds_it(mutant: Mutant) -> None:
    finding = hunt(mutant)
    print(f"turn {TURN}: {finding}")
    again = f"MUTANTS_TURN={TURN} pytest {__file__}"
    assert finding.seed is not None, f"{finding} within {SEEDS} seeds; {finding.sample}; again: {again}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_it_breaks_something_and_leaves_nothing_broken(mutant: Mutant) -> None:
    before = [_now(patch) for patch in mutant.patches]
    with mutant.applied():
        assert all(_now(patch) is not old for patch, old in zip(mutant.patches, before, strict=True))
    assert [_now(patch) for patch in mutant.patches] == before
    assert mutant.patches


def test_there_are_enough_and_each_says_what_it_is() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 50
    for mutant in MUTANTS:
        assert mutant.stands_for.endswith((".", ")."))
        assert mutant.found_as and all(1 <= number <= LAST_INVARIANT for number in mutant.found_as)
        assert (len(mutant.found_as) > 1) == bool(mutant.because), mutant.name


def test_all_of_them_come_round() -> None:
    turns = range(7, 7 + len(MUTANTS))
    assert {mutant.name for number in turns for mutant in turn(number)} == {m.name for m in MUTANTS}
    assert all(4 <= len(turn(number)) <= 5 for number in turns)


def _now(patch: Patch) -> object:
    """The attribute as it is stored, not bound."""
    return vars(patch.owner)[patch.attribute]
