"""The figures of a run of many seeds."""

from __future__ import annotations

from collections import Counter

from tests.simulation.checkers import PENDING
from tests.simulation.harness.coverage import watching
from tests.simulation.harness.runner import Outcome
from tests.simulation.story.tally import EVICTED, JOINED, OPERATIONS, Tally, failovers


def outcome(seed: int, operations: int, promotions: dict[str, int]) -> Outcome:
    coverage = Counter({(watching.GRANTED, how): many for how, many in promotions.items()})
    coverage[JOINED], coverage[EVICTED] = 3, 1
    return Outcome(seed, counts=Counter({OPERATIONS: operations}), coverage=coverage, events=1000)


def test_a_first_promotion_and_a_cold_start_are_no_failovers() -> None:
    promotions = {"bootstrap": 1, "unforced": 2, "cold": 4, "force-lossy": 1}
    assert failovers(outcome(1, 0, promotions).coverage) == 3


def test_it_sums_up_and_finds_the_median_seed() -> None:
    tally = Tally()
    for seed, operations, unforced in ((1, 100, 0), (2, 300, 2), (3, 5000, 1)):
        tally.add(outcome(seed, operations, {"bootstrap": 1, "unforced": unforced}))
    tally.failures.append(Outcome(3, "invariant 1: x", 1))
    text = "\n".join(tally.summary())
    assert "per 1,000 seeds: 1,000 failovers, 3,000 joins, 1,000 evictions" in text
    assert "median seed: 300 operations of clients, 1 failovers" in text
    assert "5,400 operations of clients" in text
    assert "3,000 events" in text
    assert f"{len(PENDING)} things: 30" in text
    assert tally.last_line(1).startswith("simulation: 3 seeds run (1..3), 1 failures, ")


def test_nothing_run_is_no_error() -> None:
    assert Tally().last_line(1).startswith("simulation: 0 seeds run ")
    assert "median seed: 0 operations" in "\n".join(Tally().summary())
