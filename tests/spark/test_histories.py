"""Whole histories: what was planted is what Spark finds is what DuckDB finds, and nothing else.

A handful here; `make soak-ledgers` tries 200. A history that differs prints the command that makes it again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from tests.spark.histories import pruning, trial
from tests.spark.histories.generate import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A smaller seed is no smaller history."""
FEW = settings(
    max_examples=2, derandomize=True, phases=NO_SHRINKING,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
MORE = settings(FEW, max_examples=8, derandomize=False)
SEEDS = st.integers(0, 10**9)


def tried(
    session: SparkSession | None, seed: int, messages: int | None, faults: list[str] | None, *,
    pruned: bool = False,
) -> trial.Trial:  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        done = trial.run(session, seed, Path(folder), messages, faults, pruned=pruned)
    assert not done.differences, str(done)
    return done


@pytest.mark.system
@given(seed=SEEDS)
@FEW
def test_spark_and_duckdb_find_what_was_planted(session: SparkSession, seed: int) -> None:
    tried(session, seed, 400, None)


@pytest.mark.system
def test_every_fault_in_one_history(session: SparkSession) -> None:
    """A seed with room for each of them; the rare ones are apart: they make most of the others unknown."""
    wanted = [name for name in trial.FAULTS if name not in trial.RARE]
    assert tried(session, EVERYTHING, None, wanted, pruned=True).planted == wanted


EVERYTHING = 80


def test_a_confirm_that_went_is_not_known_to_have_come_early() -> None:
    """Seed 810000002: producers were pruned further than brokers."""
    early = {("early", "q", 1, None, "disk of b", ((3, 6), (9, 9)))}
    assert pruning.renamed(early, {("q", 1, 5), ("q", 1, 9)}) == {
        ("early", "q", 1, None, "disk of b", ((3, 4), (6, 6)))
    }


@pytest.mark.system
def test_a_history_without_a_fault_is_proven(session: SparkSession) -> None:
    """The oracle's verdict is held against *proven* by the trial, Spark's against the oracle's."""
    assert Plan.draw(EVENTFUL).failovers and tried(session, EVENTFUL, 500, []).expected == set()


EVENTFUL = 5


@pytest.mark.system
def test_a_history_in_which_a_client_was_killed_and_started_again_is_not_provable(
    session: SparkSession,
) -> None:
    """Trial and oracle hold it against *not provable*, and its end against that of the planted one."""
    assert tried(session, RESTARTED, 500, ["endless"]).planted == ["endless"]


RESTARTED = 3


@given(seed=SEEDS)
@MORE
def test_the_oracle_alone_finds_what_was_planted(seed: int) -> None:
    tried(None, seed, 400, None)


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (700000340, ["early_before_exclusion"]),  # a position of two runs of one session
        (700000506, ["early_copy", "quarantined_though_served", "copy_differs"]),  # all that a node lists
        (700000655, None),  # torn where a part was said to be the copy's own
    ],
)
def test_faults_that_were_planted_where_nobody_can_see_them(seed: int, faults: list[str] | None) -> None:
    tried(None, seed, 400, faults)


@pytest.mark.parametrize("fault", sorted(trial.FAULTS))
def test_there_is_room_for_each_fault(fault: str, tmp_path: Path) -> None:
    """No kind of fault is skipped everywhere, which would test nothing."""
    made = (trial.make(seed, tmp_path / str(seed), 500, [fault]) for seed in range(12))
    assert any(trial_made.planted for trial_made in made)
