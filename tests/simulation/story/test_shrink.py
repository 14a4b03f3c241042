"""Shrinking: much smaller, the same failure, the same every time, and replayed from its file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.harness.plan import Plan, draw_plan
from tests.simulation.harness.runner import Outcome, run_plan, run_seed
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.story import plan_file
from tests.simulation.story.plan_file import BadPlan, PlanFile
from tests.simulation.story.shrink import Shrinker, plainer, put, signature, value_at, without

SEEDS = 100
PLANTED = {"release without recording": 14, "confirm before the disk": 2}
"""And the seed from which on it is looked for: earlier ones do not find it, or take ten times as long."""


@pytest.fixture(params=PLANTED)
def mutant(request: pytest.FixtureRequest) -> Iterator[Mutant]:
    found = next(mutant for mutant in MUTANTS if mutant.name == request.param)
    with found.applied():
        yield found


def first_failure(mutant: Mutant) -> Outcome:
    for seed in range(PLANTED[mutant.name], SEEDS + 1):
        outcome = run_seed(seed)
        if outcome.invariant in mutant.found_as:
            return outcome
    raise AssertionError(f"{mutant.name} is not found within {SEEDS} seeds")


@pytest.mark.system
def test_a_planted_failure_becomes_much_smaller_and_fails_alike(mutant: Mutant, tmp_path: Path) -> None:
    outcome = first_failure(mutant)
    said: list[str] = []
    shrinker = Shrinker(draw_plan(outcome.seed), outcome, said.append, most_seconds=1e9, most_runs=100)
    shrinker.shrink()
    small = shrinker.plan
    assert shrinker.outcome.invariant == outcome.invariant
    assert shrinker.outcome.events <= outcome.events / 2
    assert len(small.publishers) + len(small.consumers) + len(small.churners) <= 2
    assert len(small.faults) <= 1
    assert said and shrinker.runs <= 100

    path = tmp_path / "small.json"
    PlanFile(small, shrinker.outcome.failure, shrinker.outcome.trace_hash, "abc", mutant.name).write(path)
    again = plan_file.read(path)
    assert again.plan == small
    replayed = run_plan(again.plan)
    assert (replayed.failure, replayed.trace_hash) == (again.failure, again.trace_hash)


def test_it_shrinks_alike_each_time() -> None:
    planted = next(mutant for mutant in MUTANTS if mutant.name == "confirm before the disk")
    with planted.applied():
        outcome = first_failure(planted)
        both = [Shrinker(draw_plan(outcome.seed), outcome, most_seconds=1e9, most_runs=40) for _ in "12"]
        for shrinker in both:
            shrinker.shrink()
    one, other = both
    assert (one.plan, one.runs, one.outcome) == (other.plan, other.runs, other.outcome)


# -- by a stand-in for the run, so that what counts is known


def fails_if(wanted: object) -> Outcome:
    return Outcome(1, "invariant 2: x" if wanted else None, 2 if wanted else 0, events=10)


def shrunk(plan: Plan, still_fails: object) -> Plan:
    assert callable(still_fails)
    shrinker = Shrinker(plan, fails_if(True), run=lambda p: fails_if(still_fails(p)), most_runs=10_000)
    shrinker.shrink()
    return shrinker.plan


def test_only_what_matters_is_left() -> None:
    plan = draw_plan(4)
    wanted = plan.faults[-1]
    small = shrunk(plan, lambda p: wanted.name in [fault.name for fault in p.faults])
    assert [fault.name for fault in small.faults] == [wanted.name]
    assert not small.publishers and not small.consumers and not small.topology.queues
    assert small.network.latency == 0.0
    assert small.seed == plan.seed


def test_who_names_what_is_gone_goes_too() -> None:
    plan = next(p for p in map(draw_plan, range(1, 50)) if p.consumers and p.topology.bindings)
    queue = plan.consumers[0].queue
    parts = tuple(q for q in plan.topology.queues if q.name == queue)
    left = without(plan, ("topology", "queues"), parts)
    assert queue not in [consumer.queue for consumer in left.consumers]
    assert queue not in [binding.target for binding in left.topology.bindings]
    assert len(left.topology.queues) == len(plan.topology.queues) - 1


def test_a_failure_of_another_kind_is_not_taken_for_the_same() -> None:
    plan = draw_plan(4)
    shrinker = Shrinker(
        plan, fails_if(True), run=lambda p: Outcome(1, "invariant 13: y", 13, events=1), most_runs=50
    )
    shrinker.shrink()
    assert shrinker.plan == plan


def test_waiting_for_something_else_is_another_failure() -> None:
    one = Outcome(1, "invariant 27: waited 20 s for a first primary: A is joining", 27)
    same = Outcome(1, "invariant 27: waited 20 s for a first primary: B is down", 27)
    other = Outcome(1, "invariant 27: waited 120 s for the pair to be whole: A is joining", 27)
    assert signature(one) == signature(same) != signature(other)
    over = Outcome(1, "invariant 18: r1:54 is in r-r1, and its time is over", 18, "_empty")
    assert signature(over) == signature(
        replace(over, failure="invariant 18: r1:2 is in e-r1, and its time is over")
    )
    assert signature(over) != signature(replace(over, judge="_no_way")), "another rule of the same invariant"
    crash = Outcome(1, "KeyError: 3 (queue.py:12)")
    assert signature(crash) == signature(replace(crash, failure="KeyError: 4 (queue.py:12)"))
    assert signature(crash) != signature(replace(crash, failure="KeyError: 3 (queue.py:90)"))


def test_it_stops_at_its_bound() -> None:
    shrinker = Shrinker(draw_plan(4), fails_if(True), run=lambda p: fails_if(True), most_runs=7)
    shrinker.shrink()
    assert shrinker.runs == 7


def test_plainer_is_simpler_and_ends() -> None:
    plan = draw_plan(4)
    path = ("network", "latency")
    steps = 0
    while found := list(plainer(plan, path)):
        plan = put(plan, path, found[-1])
        steps += 1
        assert steps < 20
    assert value_at(plan, path) == 0.0
    assert list(plainer(plan, ("timing", "lease"))) in ([], [3.0])


# -- files


def test_a_file_that_is_no_plan_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    with pytest.raises(BadPlan, match="cannot be read"):
        plan_file.read(path)
    path.write_text("{")
    with pytest.raises(BadPlan, match="is no plan"):
        plan_file.read(path)
    PlanFile(draw_plan(1), None, "").write(path)
    path.write_text(path.read_text().replace('"latency"', '"lateness"'))
    with pytest.raises(BadPlan, match=r"plan\.network"):
        plan_file.read(path)


@pytest.mark.parametrize("seed", range(1, 40))
def test_any_plan_survives_its_file(seed: int, tmp_path: Path) -> None:
    plan = draw_plan(seed)
    PlanFile(plan, "invariant 1: x", "abc").write(tmp_path / "p.json")
    assert plan_file.read(tmp_path / "p.json").plan == plan
