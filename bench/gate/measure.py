"""Clocks a node and the reference in short slices, in turns: `python -m bench.gate.measure ROUNDS ROW ...`.

A busy neighbour costs caches and clock speed, so that one and the same work takes up to twice the CPU time.
It does not slow down every slice of some milliseconds alike. So each figure is from the fastest slices of a
row, spread over the whole time and over several processes, and is divided by the fastest slices of the
reference, which run between them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.brokers import ROOT
from bench.compare.rows import MAIN, Row
from bench.gate import reference
from bench.loads import LoadError

UNITS = 12
"""Of the reference between two slices."""
MESSAGES = {
    "alike-transient": 1_600,
    "alike-persistent": 800,
    "mix-transient": 300,
    "mix-persistent": 200,
    "mix-connections": 160,
    "alike-transient-1": 40,
}
"""Of one slice: some 4 ms of a node."""
ROWS = [row for row in MAIN if row.name in MESSAGES]
WARM = 10
"""Slices of each row beforehand that do not count."""
LIMIT, LEAST = 8.0, 10
"""Seconds after which a process on a busy machine makes no further round, unless it made fewer than LEAST."""


class OtherBuild(Exception):
    """The process ran another build than it was to run; the text has its reason."""


@dataclass(slots=True)
class Slices:
    """CPU microseconds: of the node a message by row, and of the reference a unit."""

    rows: dict[str, list[float]] = field(default_factory=dict)
    reference: list[float] = field(default_factory=list)

    def add(self, other: Slices) -> None:
        for row, times in other.rows.items():
            self.rows.setdefault(row, []).extend(times)
        self.reference += other.reference


def measure(rows: Sequence[Row], build: str, starts: int, rounds: int) -> Slices:
    """`rounds` slices of each row in each of `starts` processes. Raises OtherBuild, LoadError, OSError."""
    command = [sys.executable, "-m", "bench.gate.measure", str(rounds), *(row.name for row in rows)]
    found = Slices()
    for _ in range(starts):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LoadError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
        answer = json.loads(done.stdout)
        if answer["build"] != build:
            raise OtherBuild(f"modules are {answer['build']}: {answer['reason']}")
        found.add(Slices(answer["rows"], answer["reference"]))
    return found


def figures(slices: Slices) -> dict[str, float]:
    """Steps of the reference a message, by row."""
    step = fastest(slices.reference) / reference.STEPS
    return {row: fastest(times) / step for row, times in slices.rows.items()}


def fastest(slices: Sequence[float]) -> float:
    """The mean of the fastest tenth, at least two: one alone may be a lucky reading of the clock."""
    best = sorted(slices)[: max(2, len(slices) // 10)]
    return sum(best) / len(best)


def _rounds(rounds: int, rows: Sequence[Row]) -> Slices:
    """In this process."""
    from bench.gate.node import Lanes, running  # decides which build this process runs

    found = Slices({row.name: [] for row in rows})
    with tempfile.TemporaryDirectory(prefix="understudy-gate-") as folder, running(Path(folder)) as driver:
        lanes = {row.name: Lanes(driver, row) for row in rows}
        for _ in range(WARM):
            reference.slice_us(UNITS)
            for row, each in lanes.items():
                each.slice_us(MESSAGES[row])
        until = time.monotonic() + LIMIT
        for number in range(rounds):
            if number >= LEAST and time.monotonic() > until:
                break
            for row, each in lanes.items():
                found.reference.append(reference.slice_us(UNITS))
                found.rows[row].append(each.slice_us(MESSAGES[row]))
    return found


def main(argv: Sequence[str]) -> int:
    try:
        found = _rounds(int(argv[0]), [row for row in ROWS if row.name in argv[1:]])
    except (LoadError, OSError) as error:
        print(f"bench.gate.measure: {error}", file=sys.stderr)
        return 1
    from understudy.shared.compiled_modules import Build

    answer = {"build": Build.name, "reason": Build.reason, "rows": found.rows, "reference": found.reference}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # the threads of the node need not be waited for


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
