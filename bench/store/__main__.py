"""The comparison: `python -m bench.store [--quick] [--rounds N] [--only ENGINE ...]`, some five minutes.

In each round every engine runs every phase once, in turn, each phase in a process of its own. The table of
bench/store/README.md has the medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.brokers import ROOT
from bench.run import machine
from bench.store.engines import KINDS, missing
from bench.table import rewrite

HERE = Path(__file__).parent
DATA = HERE.parent / ".build" / "store"
"""On the disk of the source, where a temporary directory may be memory."""


class Case(NamedTuple):
    """One load and one phase."""

    title: str
    phase: str
    size: int
    most: int
    runs: int
    amount: int
    """Groups of a steady flow, else messages."""
    sync: bool = True
    verify: bool = False
    """LMDB only: its file is verified before it is opened."""


CASES = [
    Case("256 B, steady flow", "steady", 256, 300, 4, 400),
    Case("256 B, steady flow, a message a group", "steady", 256, 1, 1, 400),
    Case("256 B, deep backlog", "fill", 256, 300, 4, 500_000),
    Case("256 B, recovery of it", "recover", 256, 300, 4, 500_000),
    Case("256 B, recovery of it, verified first", "recover", 256, 300, 4, 500_000, verify=True),
    Case("256 B, drain of it", "drain", 256, 300, 4, 500_000),
    Case("16 KiB, steady flow", "steady", 16384, 16, 4, 150),
    Case("16 KiB, deep backlog", "fill", 16384, 16, 4, 15_000),
    Case("16 KiB, recovery of it", "recover", 16384, 16, 4, 15_000),
    Case("16 KiB, drain of it", "drain", 16384, 16, 4, 15_000),
    Case("256 B, long steady flow, NOT synced", "steady", 256, 300, 4, 3000, sync=False),
]

HEAD = [
    "| load | engine | CPU us a message | against segments | messages/s | commit p50 ms | commit p99 ms "
    "| written per byte of body | on disk MiB | peak memory MiB |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
]


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.store")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of a tenth of it; writes no file")
    parser.add_argument("--only", nargs="*", choices=list(KINDS), help="engines; writes no file")
    parser.add_argument("--directory", type=Path, default=DATA, help="on the disk to be measured")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--no-table", action="store_true", help="write no file")
    options = parser.parse_args(argv)
    if options.quick:
        options.rounds = 1
    return options


def one(engine: str, case: Case, directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run a phase in its process."""
    amount = case.amount // 10 if options.quick else case.amount
    about = {
        "engine": engine,
        "directory": str(directory),
        "seed": options.seed,
        "groups": amount,
        "messages": amount,
        **{name: getattr(case, name) for name in ("phase", "size", "most", "runs", "sync", "verify")},
    }
    command = [sys.executable, "-m", "bench.store.phases", json.dumps(about)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench.store: {engine}, {case.title}: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    print(
        f"{case.title:38} {engine:9} {result['cpu_us']:8.2f} us {result['rate']:>9,.0f}/s",
        file=sys.stderr,
        flush=True,
    )
    return result


def measure(engines: list[str], options: argparse.Namespace) -> dict[tuple[Case, str], list[dict[str, Any]]]:
    """All rounds. Recovery and drain find what the fill before them has left."""
    results: dict[tuple[Case, str], list[dict[str, Any]]] = defaultdict(list)
    options.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.directory) as scratch:
        for number in range(options.rounds):
            order = engines[number % len(engines) :] + engines[: number % len(engines)]
            for case in CASES:
                for engine in order:
                    if case.verify and engine != "lmdb":
                        continue
                    directory = Path(scratch) / engine
                    if case.phase in ("steady", "fill"):
                        shutil.rmtree(directory, ignore_errors=True)
                        directory.mkdir()
                        os.sync()
                    results[case, engine].append(one(engine, case, directory, options))
    return results


def table(results: dict[tuple[Case, str], list[dict[str, Any]]], engines: list[str], rounds: int) -> str:
    about = machine()
    lines = [
        f"{about['when']}: {about['cores']} cores ({about['cpu']}), shared with others, "
        f"CPython {about['python']}, Linux {about['kernel']}, median of {rounds} interleaved rounds.",
        "",
        *HEAD,
    ]
    for case in CASES:
        for engine in engines:
            runs = results[case, engine]
            if not runs:
                continue
            own = {key: median(run[key] for run in runs) for key in runs[0]}
            segments = results[case, "segments"]
            base = median(run["cpu_us"] for run in segments) if segments else 0
            commits = [f"{own['commit_p50_ms']:.2f}", f"{own['commit_p99_ms']:.1f}"]
            writes = f"{own['amplification']:.2f}"
            cells = [
                case.title,
                KINDS[engine].title,
                f"{own['cpu_us']:.2f}",
                f"{own['cpu_us'] / base:.1f}x" if base else "-",
                f"{own['rate']:,.0f}",
                *(["-", "-"] if case.phase == "recover" else commits),
                "-" if case.phase == "recover" else writes,
                f"{own['disk_mib']:,.0f}",
                f"{own['rss_mib']:,.0f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    engines = []
    for name in options.only or KINDS:
        if reason := missing(name):
            print(f"bench.store: {reason}", file=sys.stderr)
        else:
            engines.append(name)
    print(f"bench.store: seed {options.seed}", file=sys.stderr)
    text = table(measure(engines, options), engines, options.rounds)
    print(text)
    if not (options.quick or options.only or options.no_table) and len(engines) == len(KINDS):
        rewrite(HERE / "README.md", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
