"""Whole histories: Spark and DuckDB both find exactly the planted faults.

This tries a handful; `make soak-ledgers` tries 200. A history that differs prints the command that repeats
it.
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
"""Shrinking is useless: a smaller seed does not give a smaller history."""
SOME = settings(
    max_examples=8, phases=NO_SHRINKING,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
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
def test_spark_and_duckdb_find_the_planted_faults(session: SparkSession) -> None:
    assert len(tried(session, MIXED, 400, None).planted) >= 20


MIXED = 21
"""With all common faults, and messages that queues left out."""


@pytest.mark.soak
def test_every_fault_in_one_history(session: SparkSession) -> None:
    """A seed with room for each fault. The rare ones are left out: they turn most of the others
    into unknown."""
    wanted = [name for name in trial.FAULTS if name not in trial.RARE]
    assert tried(session, EVERYTHING, None, wanted, pruned=True).planted == wanted


EVERYTHING = 80


def test_a_pruned_confirm_is_not_found_to_be_early() -> None:
    """Seed 810000002: producers' ledgers were pruned further than brokers' ledgers."""
    early = {("early", "q", 1, None, "disk of b", ((3, 6), (9, 9)))}
    assert pruning.renamed(early, {("q", 1, 5), ("q", 1, 9)}) == {
        ("early", "q", 1, None, "disk of b", ((3, 4), (6, 6)))
    }


@pytest.mark.system
def test_a_history_without_a_fault_is_proven(session: SparkSession) -> None:
    """The trial compares the oracle's verdict with *proven*, and Spark's verdict with the oracle's."""
    assert Plan.draw(EVENTFUL).failovers and tried(session, EVENTFUL, 500, []).expected == set()


EVENTFUL = 5


@pytest.mark.system
def test_a_killed_and_restarted_client_makes_a_history_unprovable(
    session: SparkSession,
) -> None:
    """The trial expects *not provable*, from the oracle too, and compares the ledger without an end with the
    planted one."""
    assert tried(session, RESTARTED, 500, ["endless"]).planted == ["endless"]


RESTARTED = 3


@given(seed=SEEDS)
@SOME
def test_the_oracle_alone_finds_the_planted_faults(seed: int) -> None:
    tried(None, seed, 400, None)


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (700000340, ["early_before_exclusion"]),  # one position has two runs of one session
        (
            700000506,
            ["early_copy", "quarantined_though_served", "copy_differs"],
        ),  # the fault removes all that a node lists
        (700000655, None),  # torn, and a part was recorded as the copy's own
    ],
)
def test_seeds_that_once_planted_invisible_faults(seed: int, faults: list[str] | None) -> None:
    tried(None, seed, 400, faults)


@pytest.mark.parametrize("fault", sorted(trial.FAULTS))
def test_there_is_room_for_each_fault(fault: str, tmp_path: Path) -> None:
    """No fault is skipped in all histories, which would leave it untested."""
    made = (trial.make(seed, tmp_path / str(seed), 500, [fault]) for seed in range(12))
    assert any(trial_made.planted for trial_made in made)
