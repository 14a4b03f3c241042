"""A thousand seeds without a failure; one seed, one trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.runner import report, run_seed, run_seeds
from tests.simulation.tally import Tally

COUNT = 1000
SAME = range(150, 175)
ROOT = Path(__file__).parents[2]


def test_a_thousand_seeds() -> None:
    tally = Tally()
    for outcome in run_seeds(1, COUNT):
        tally.add(outcome)
    shown = "\n\n".join(report(outcome) for outcome in tally.failures[:3])
    seeds = [outcome.seed for outcome in tally.failures]
    assert not tally.failures, f"{tally.last_line(1)}: seeds {seeds}\n\n{shown}"
    # The seeds must have been worth it: what never happens proves nothing.
    assert tally.counts["promotions"] > 1.8 * COUNT
    assert tally.counts["messages confirmed"] > 100 * COUNT
    assert tally.counts["confirms looked into"] > 100 * COUNT
    assert tally.median_operations >= 200
    assert tally.median_failovers >= 1


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


def test_the_command_says_what_was_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", "3", "--first", "7"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("simulation: 3 seeds run (7..9), 0 failures, ")
    assert last.endswith(" seeds/s")
