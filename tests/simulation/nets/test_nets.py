"""A sample of the nets, worth it; the same seed gives the same trace. `make sim` runs more."""

from __future__ import annotations

import pytest

from tests.builds import PURE_ONLY
from tests.ha.federation import test_mutants
from tests.simulation.nets.runner import run_net

SAMPLE, QUICK = (3, 4, 5), 14
"""Seeds that take seconds, of three and four sites; others take a minute."""
HOUR, LONG = 3600.0, 11
DOUBLES, EARLY = 3, 31


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
    assert not outcome.failure and outcome.virtual_seconds > HOUR and outcome.forwarded > 3000


@PURE_ONLY
@pytest.mark.system
def test_messages_that_come_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    test_mutants.no_cursor(monkeypatch)
    assert "twice" in run_net(DOUBLES).failure


@PURE_ONLY
@pytest.mark.system
def test_messages_that_go_before_they_could_be_confirmed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    test_mutants.before_it_could_be_confirmed(monkeypatch)
    assert "has what was lost where it was sent" in run_net(EARLY).failure
