"""A plan is the whole of a run, and what is left out of it changes nothing in the rest."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.simulation.harness.plan import Plan, draw_plan
from tests.simulation.harness.runner import run_plan, run_seed


@pytest.mark.parametrize("seed", range(1, 40))
def test_a_seed_gives_one_plan_and_its_names_are_its_own(seed: int) -> None:
    plan = draw_plan(seed)
    assert plan == draw_plan(seed)
    assert hash(plan) == hash(draw_plan(seed)), "a plan is a value"
    actors = [*plan.publishers, *plan.consumers, *plan.churners]
    names = [thing.name for thing in [*plan.machines, *actors, *plan.faults]]
    assert len(names) == len(set(names))
    assert len(plan.machines) == plan.nodes in range(2, 6)
    assert len(actors) in range(1, 9)
    assert plan.operator.first in {machine.name for machine in plan.machines}


def test_many_seeds_have_messages_that_outlive_a_failover_between_clocks_that_are_hours_apart() -> None:
    plans = [draw_plan(seed) for seed in range(1, 101)]
    patient = [plan for plan in plans if any((user.message_ttl or 0) >= 3_000 for user in plan.rules)]
    errors = [sorted(machine.wall_error for machine in plan.machines) for plan in patient]
    apart = [found for found in errors if all(b - a > 3_600_000 for a, b in pairwise(found))]
    assert len(patient) > 20 and len(apart) > len(patient) / 2
    others = [machine for plan in plans if plan not in patient for machine in plan.machines]
    assert {machine.wall_error for machine in others} == {0, -100, 5_000}


def test_sources_are_apart_by_purpose() -> None:
    plan = draw_plan(1)
    assert plan.random("actor/p1").random() == plan.random("actor/p1").random()
    assert plan.random("actor/p1").random() != plan.random("actor/p2").random()


def test_a_run_is_its_plan() -> None:
    plan = draw_plan(17)
    assert run_plan(plan).trace_hash == run_seed(17).trace_hash == run_plan(plan).trace_hash


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_a_plan_with_less_in_it_runs(seed: int) -> None:
    plan = draw_plan(seed)
    for smaller in _smaller(plan):
        outcome = run_plan(smaller)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"


def _smaller(plan: Plan) -> list[Plan]:
    return [
        replace(plan, faults=()),
        replace(plan, faults=plan.faults[1:]),
        replace(plan, publishers=()),
        replace(plan, publishers=plan.publishers[:1], consumers=(), churners=()),
    ]
