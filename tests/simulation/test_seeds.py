"""A sample of the seeds, without a failure and worth it; the same seed gives the same trace.

`make soak-simulation` runs 20,000.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.harness.coverage import reached
from tests.simulation.harness.runner import Outcome, run_chunk, run_seed
from tests.simulation.story.report import report
from tests.simulation.story.tally import Tally
from tests.tiers import sampled

FIRST, PART = 2, 12
"""The first seed, and the seeds in a chunk, which one process runs. Seed 1 takes the time of five others."""
CHUNKS, SAMPLE = 2, 1
SAME = (3, 4, 7, 8, 10, 18)
"""Short ones, one under each authority."""
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("chunk", sampled(CHUNKS, sample=SAMPLE))
def test_no_seed_fails(chunk: int) -> None:
    first, tally = FIRST + chunk * PART, Tally()
    outcomes = run_chunk(list(range(first, first + PART)))
    for outcome in outcomes:
        tally.add(outcome)
    if tally.failures:
        told = report(tally.failures[0], most_seconds=30.0).text()
        rest = "\n".join(f"seed {o.seed}: {o.failure}" for o in tally.failures[1:])
        raise AssertionError(f"{tally.last_line(first)}\n{rest}\n\n{told}")
    _were_worth_it(tally, outcomes)


def _were_worth_it(tally: Tally, outcomes: list[Outcome]) -> None:
    """What never happens proves nothing."""
    assert tally.runs == len({outcome.trace_hash for outcome in outcomes}) == PART
    assert tally.median_operations >= 200
    assert tally.median_failovers > 0
    assert tally.counts["messages confirmed"] > 50 * PART
    assert tally.counts["confirms looked into"] > 50 * PART
    assert [fault for fault in reached.faults_of(tally.coverage, PART) if "never reached" not in fault] == []


def test_the_same_seed_gives_the_same_trace_in_any_process() -> None:
    here = [run_seed(seed).trace_hash for seed in SAME]
    assert run_seed(SAME[0]).trace_hash == here[0]
    program = (
        "from tests.simulation.harness.runner import run_seed\n"
        f"for s in {SAME}: print(run_seed(s).trace_hash)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)}
    other = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.split() == here
