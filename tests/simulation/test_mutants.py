"""The checkers can fail: each mutant of the product is found by the checker that it names.

Here those that are found soon; `make soak-simulation` hunts them all.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.hunt import hunt
from tests.simulation.mutants.mutant import Mutant, Patch
from tests.simulation.mutants.soon import FIRST, FIRST_SEED, FROM, OTHERS, SEEDS

LAST_INVARIANT = 30


@pytest.mark.parametrize("name", [*FIRST, *(pytest.param(name, marks=pytest.mark.system) for name in OTHERS)])
def test_the_named_checker_finds_it(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    finding = hunt(mutant, SEEDS, FROM.get(name, FIRST_SEED))
    print(finding)
    assert finding.seed is not None, f"{finding} within {SEEDS} seeds; {finding.sample}"


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


def _now(patch: Patch) -> object:
    """The attribute as it is stored, not bound."""
    return vars(patch.owner)[patch.attribute]
