"""Hunts mutants: seed after seed with the mutant in place, until the checker that it names has found it.

A finding counts only if the same seed is without a failure when the product is whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.simulation.harness.runner import run_seed
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.mutant import Mutant

SEEDS = 500
"""Each mutant must be found within so many seeds, from seed 1 on."""


@dataclass(slots=True)
class Finding:
    """`seed`: the first that found it, None for a survivor. `others`: failures that the wrong checkers, or
    none (0), reported before."""

    mutant: str
    found_as: tuple[int, ...]
    seed: int | None = None
    failure: str = ""
    others: Counter[int] = field(default_factory=Counter)
    sample: dict[int, str] = field(default_factory=dict)
    """For each of `others` the first failure."""

    def __str__(self) -> str:
        checkers = " or ".join(map(str, self.found_as))
        others = ", ".join(
            f"{count} times {f'by {number}' if number else 'by a crash'}"
            for number, count in sorted(self.others.items())
        )
        aside = f" (failed otherwise: {others})" if others else ""
        if self.seed is None:
            return f"SURVIVES  {self.mutant}: not found by {checkers}{aside}"
        return f"found     {self.mutant}: by {checkers} at seed {self.seed}{aside}"


def hunt(mutant: Mutant, seeds: int = SEEDS, first: int = 1) -> Finding:
    """From the seed `first` to `seeds`; stops at the first that finds it."""
    finding = Finding(mutant.name, mutant.found_as)
    for seed in range(first, seeds + 1):
        with mutant.applied():
            outcome = run_seed(seed)
        if outcome.failure is None:
            continue
        if outcome.invariant in mutant.found_as and run_seed(seed).failure is None:
            finding.seed, finding.failure = seed, outcome.failure
            break
        finding.others[outcome.invariant] += 1
        finding.sample.setdefault(outcome.invariant, f"seed {seed}: {outcome.failure}")
    return finding


def hunt_by_name(name: str, seeds: int) -> Finding:
    """For a worker process."""
    return hunt(next(mutant for mutant in MUTANTS if mutant.name == name), seeds)


def hunt_all(mutants: Sequence[Mutant], seeds: int, processes: int) -> Iterator[Finding]:
    """Findings as they come."""
    if processes <= 1:
        for mutant in mutants:
            yield hunt(mutant, seeds)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(hunt_by_name, mutant.name, seeds) for mutant in mutants]):
            yield done.result()
