"""Two thousand seeds without a failure, and worth it; one seed, one trace; what the command says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.simulation import coverage
from tests.simulation.report import report
from tests.simulation.runner import run_seed, run_seeds
from tests.simulation.tally import Tally

COUNT = 2000
SAME = range(150, 160)
ROOT = Path(__file__).parents[2]


def test_two_thousand_seeds() -> None:
    tally = Tally()
    for outcome in run_seeds(1, COUNT):
        tally.add(outcome)
    if tally.failures:
        told = report(tally.failures[0], most_seconds=30.0).text()
        rest = "\n".join(f"seed {o.seed}: {o.failure}" for o in tally.failures[1:])
        raise AssertionError(f"{tally.last_line(1)}\n{rest}\n\n{told}")
    # The seeds must have been worth it: what never happens proves nothing.
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
