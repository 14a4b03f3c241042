"""The whole measurement: `make bench`, or `python -m bench.run [--quick] [--repeats N] [--only REGEX]`.

Every repeat starts fresh brokers and runs every case once, so that a disturbance of the machine falls on all
cases alike. The table of bench/README.md has the median of the repeats; bench/results.json has every run.
Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import brokers
from bench.clock import resident_mib
from bench.table import rewrite, table

HERE = Path(__file__).parent
MESSAGES = {1: 40_000, 10: 200_000, 100: 600_000, 1000: 1_000_000}
"""The most messages of a run, by window; the time limit usually comes first."""


@dataclass(slots=True, frozen=True)
class Case:
    """One cell of the table."""

    mode: str  # alone | replicated
    load: str  # publish | deliver | message-ids | persistent
    window: int

    @property
    def name(self) -> str:
        return f"{self.mode}/{self.load}/{self.window}"

    def options(self, seconds: float) -> list[str]:
        messages = MESSAGES[self.window]
        options = ["--window", str(self.window), "--messages", str(messages), "--seconds", str(seconds)]
        if self.load != "publish":
            options.append("--consume")
        if self.load == "message-ids":
            options.append("--message-ids")
        if self.load == "persistent":
            options += ["--durable", "--persistent"]
        return options


MODES: dict[str, Callable[..., brokers.Cluster]] = {"alone": brokers.alone, "replicated": brokers.pair}
CASES = [
    *(Case(mode, load, window) for mode in MODES for load in ("publish", "deliver") for window in MESSAGES),
    *(
        Case(mode, load, window)
        for mode in MODES
        for load in ("message-ids", "persistent")
        for window in (100, 1000)
    ),
]


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="time limit of one measured part")
    parser.add_argument("--quick", action="store_true", help="one repeat of half a second; writes no file")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases by name, as alone/deliver/1000")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the brokers"
    )
    parser.add_argument("--engine", default="auto", choices=("auto", "c", "python"))
    options = parser.parse_args(argv)
    if options.quick:
        options.repeats, options.seconds = 1, 0.5
    return options


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All runs, in the order in which they were made."""
    cases = [case for case in CASES if re.search(options.only, case.name)]
    runs = []
    for repeat in range(options.repeats):
        for mode, start in MODES.items():
            mine = [case for case in cases if case.mode == mode]
            if mine:
                with start(*options.set) as cluster:
                    for result in loads(cluster, mine, options):
                        runs.append({**result, "repeat": repeat})
    return runs


def loads(
    cluster: brokers.Cluster, cases: list[Case], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    target = cluster.brokers[0]
    pids = [f"{broker.name}={broker.process.pid}" for broker in cluster.brokers]
    for case in cases:
        command = [
            sys.executable,
            "-m",
            "bench.generator",
            "--port",
            str(target.port),
            "--engine",
            options.engine,
        ]
        command += case.options(options.seconds)
        for pid in pids:
            command += ["--pid", pid]
        done = subprocess.run(command, cwd=brokers.ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise brokers.BrokerError(f"{case.name}: {done.stderr.strip()}\n{target.last_words()}")
        result = json.loads(done.stdout)
        result |= {"case": case.name, "mode": case.mode, "load": case.load}
        result["resident_mib"] = round(resident_mib(target.process.pid))
        own = result["cpu_us_per_message"][target.name]
        print(f"{case.name:28} {result['rate']:>9,}/s  {own:6.2f} us", file=sys.stderr, flush=True)
        yield result


def machine() -> dict[str, Any]:
    """What a reader needs to place the figures."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "cpu": model.group(1) if model else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "when": time.strftime("%Y-%m-%d"),
    }


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    try:
        runs = measure(options)
    except brokers.BrokerError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    results = {"machine": machine(), "repeats": options.repeats, "seconds": options.seconds, "runs": runs}
    text = table(results)
    print(text)
    if not options.quick and not options.only:
        (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        rewrite(HERE / "README.md", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
