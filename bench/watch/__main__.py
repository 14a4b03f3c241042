"""`python -m bench.watch`: 125 planted losses at 50,000 ids a second, a kill -9 of the driver among them,
and how soon each was told. `python -m bench.watch steady`: an hour at a lower rate, and what the state
costs.

Writes its table, and the plot of a steady run, to bench/watch/README.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles

from bench.watch.measure import Outcome, Sample, measure
from bench.watch.plot import plot
from bench.watch.traffic import Plan

HERE = Path(__file__).parent
README, PICTURE = HERE / "README.md", HERE / "steady.svg"
KEPT = 400
"""Points of a plot."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.watch", description=__doc__)
    parser.add_argument("part", nargs="?", choices=["losses", "steady"], default="losses")
    parser.add_argument("--rate", type=int, help="ids a second: 50000, steady 4000")
    parser.add_argument("--minutes", type=float, help="2.5, steady 60")
    parser.add_argument("--losses", type=int, default=125)
    parser.add_argument("--retention", default="10m", help="of a steady run")
    parser.add_argument("--folder", type=Path, help="where ledgers go, and stay; else a temporary one")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="watch-"))
    try:
        outcome = _losses(folder, given) if given.part == "losses" else _steady(folder, given)
    finally:
        if given.folder is None:
            shutil.rmtree(folder)
    return 1 if outcome.missed or outcome.doubled or outcome.false else 0


def _losses(folder: Path, given: argparse.Namespace) -> Outcome:
    minutes, rate = given.minutes or 2.5, given.rate or 50_000
    plan = Plan("", rate=rate, seconds=minutes * 60, losses=given.losses, seed=given.seed)
    outcome = measure(folder, plan, kill_at=minutes * 30, idle=30)
    _write("losses", table(outcome, plan, "kill -9 of the driver half-way"))
    return outcome


def _steady(folder: Path, given: argparse.Namespace) -> Outcome:
    minutes, rate = given.minutes or 60, given.rate or 4_000
    plan = Plan(
        "",
        rate=rate,
        seconds=minutes * 60,
        losses=given.losses,
        failover_every=120,
        held=2000,
        seed=given.seed,
    )
    outcome = measure(folder, plan, every=10, idle=30, options=("--retention", given.retention))
    report_steady(outcome, plan, given.retention)
    return outcome


def report_steady(outcome: Outcome, plan: Plan, retention: str) -> None:
    PICTURE.write_text(picture(outcome.samples, f"{plan.rate:,} ids a second, retention {retention}"))
    rest = outcome.samples[len(outcome.samples) // 4 :]
    rows = [sample.state_rows for sample in rest]
    memory = [sample.resident_mib for sample in rest]
    size = max(sample.state_bytes for sample in rest) / 1024
    more = [
        "",
        f"After the first quarter the state had {min(rows):,.0f}-{max(rows):,.0f} rows, at most {size:,.0f} "
        f"KiB as saved, and all processes together {min(memory):,.0f}-{max(memory):,.0f} MiB of memory.",
        "",
        "![memory and state](steady.svg)",
    ]
    _write("steady", table(outcome, plan, f"retention {retention}") + more)


def picture(samples: list[Sample], title: str) -> str:
    kept = samples[:: max(1, len(samples) // KEPT)]
    return plot(
        title,
        [sample.at / 60 for sample in kept],
        [
            ("memory of all processes", "MiB", [sample.resident_mib for sample in kept]),
            ("state", "rows", [sample.state_rows for sample in kept]),
            ("state as saved", "KiB", [sample.state_bytes / 1024 for sample in kept]),
        ],
    )


def table(outcome: Outcome, plan: Plan, how: str) -> list[str]:
    found = sorted(outcome.latencies)
    if not found:
        raise SystemExit("no loss was told: was the machine too busy for a single batch?")
    p95 = quantiles(found, n=20)[-1] if len(found) > 1 else found[0]
    others = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.others.items())) or "none"
    load = os.getloadavg()[2]
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores, CPython {platform.python_version()}, load of "
        f"the machine in these 15 minutes {load:.0f}. {plan.rate:,} ids a second for "
        f"{plan.seconds / 60:.1f} minutes, {how}, seed {plan.seed}.",
        "",
        "| planted | missed | doubled | false | other alarms | median s | p95 s | longest s | cores | idle |",
        "|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|",
        f"| {outcome.planted} | {len(outcome.missed)} | {outcome.doubled} | {len(outcome.false)} | {others} "
        f"| {median(found):.1f} | {p95:.1f} | {found[-1]:.1f} | {outcome.cpu_share:.2f} "
        f"| {outcome.idle_share:.3f} |",
    ]
    print("\n".join(lines), file=sys.stderr)
    return lines


def _write(part: str, lines: list[str]) -> None:
    """Between the part's marks in the README."""
    begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
    before, _, rest = README.read_text().partition(begin)
    after = rest.partition(end)[2]
    README.write_text(before + "\n".join([begin, *lines, end]) + after)


if __name__ == "__main__":
    sys.exit(main())
