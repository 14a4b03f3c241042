"""Two thousand seeds without a failure, and worth it; one seed, one trace; what the command says."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import coverage
from tests.simulation.report import report
from tests.simulation.runner import Outcome, run_seed, run_seeds
from tests.simulation.tally import Tally

COUNT, PART = 2000, 250
FIRSTS = range(1, COUNT + 1, PART)
PROCESSES = (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) or 1
"""This process's share of the cores: the others of `pytest -n` have tests to run meanwhile."""
SAME = range(150, 155)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("first", FIRSTS)
def test_two_thousand_seeds(first: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    tally, outcomes = Tally(), list(run_seeds(first, PART, PROCESSES))
    for outcome in outcomes:
        tally.add(outcome)
    if tally.failures:
        told = report(tally.failures[0], most_seconds=30.0).text()
        rest = "\n".join(f"seed {o.seed}: {o.failure}" for o in tally.failures[1:])
        raise AssertionError(f"{tally.last_line(first)}\n{rest}\n\n{told}")
    parts = _parts_of_this_run(tmp_path_factory, first, outcomes)
    if len(parts) == len(FIRSTS):
        _all_were_worth_it(parts)


def _parts_of_this_run(
    tmp_path_factory: pytest.TempPathFactory, first: int, outcomes: list[Outcome]
) -> list[Path]:
    """Those that are done, in whatever process of `pytest -n`; this one is among them now."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    new = folder / f"seeds-{first}.new"
    new.write_bytes(pickle.dumps(outcomes))
    new.rename(new.with_suffix(".done"))
    return sorted(folder.glob("seeds-*.done"))


def _all_were_worth_it(parts: list[Path]) -> None:
    """What never happens proves nothing."""
    tally = Tally()
    for part in parts:
        for outcome in pickle.loads(part.read_bytes()):
            tally.add(outcome)
    assert tally.runs == COUNT
    assert tally.median_operations >= 200
    assert tally.median_failovers >= 1
    assert not coverage.faults_of(tally.coverage, COUNT)
    assert tally.counts["messages confirmed"] > 50 * COUNT
    assert tally.counts["confirms looked into"] > 50 * COUNT


def test_the_same_seed_gives_the_same_trace_in_any_process() -> None:
    here = [run_seed(seed).trace_hash for seed in SAME]
    assert [run_seed(seed).trace_hash for seed in SAME] == here
    program = f"from tests.simulation.runner import run_seed\nfor s in {SAME}: print(run_seed(s).trace_hash)"
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)}
    other = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.split() == here


def test_different_seeds_give_different_traces() -> None:
    assert len({run_seed(seed).trace_hash for seed in range(1, 6)}) == 5
