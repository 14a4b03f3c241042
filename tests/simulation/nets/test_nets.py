"""A sample of the nets, worth it; the same seed gives the same trace. `make sim` runs more."""

from __future__ import annotations

import pytest

from tests.simulation.nets.runner import run_net

SAMPLE, QUICK = range(1, 9), 8
HOUR, LONG = 3600.0, 3


@pytest.mark.system
def test_no_net_fails() -> None:
    outcomes = [run_net(seed) for seed in SAMPLE]
    assert [outcome.failure for outcome in outcomes if outcome.failure] == []
    assert sum(outcome.confirmed for outcome in outcomes) > 100 * len(SAMPLE)
    assert all(outcome.forwarded for outcome in outcomes)


def test_the_same_net_gives_the_same_trace() -> None:
    first, second = run_net(QUICK), run_net(QUICK)
    assert first == second and not first.failure and first.forwarded


@pytest.mark.system
def test_a_line_that_is_down_for_an_hour_loses_nothing() -> None:
    outcome = run_net(LONG, HOUR)
    assert not outcome.failure and outcome.virtual_seconds > HOUR
