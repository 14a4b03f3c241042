"""`make bench-gate`: fails if a node takes clearly more CPU for a message than its baseline says.

Each build that is there is measured: plain Python, and the compiled modules in `UNDERSTUDY_COMPILED` or
build/compiled. A row that is too slow is measured once more, and the better figure counts. Exit code 1: a row
is slower. Exit code 2: nothing could be compared.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import click

from bench.brokers import ROOT
from bench.compare.rows import Row
from bench.gate import baseline
from bench.gate.measure import ROWS, OtherBuild, figures, measure
from bench.loads import LoadError
from bench.run import machine

COMPILED = ROOT / "build" / "compiled"


@click.command()
@click.option("--store", is_flag=True, help="Write the figures as the new baseline; compare nothing.")
@click.option(
    "--baseline",
    "path",
    default=baseline.FILE,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Another file of baselines.",
)
@click.option("--builds", default="pure,compiled", show_default=True, metavar="NAMES")
@click.option("--only", default="", metavar="REGEX", help="Rows by name, such as mix.")
@click.option(
    "--starts", default=3, show_default=True, type=click.IntRange(1), help="Processes of each build."
)
@click.option(
    "--tolerance", default=baseline.TOLERANCE, show_default=True, help="How much slower a row may be."
)
@click.option("--rounds", default=60, show_default=True, type=click.IntRange(1), help="Slices of each row.")
def main(store: bool, path: Path, builds: str, only: str, starts: int, tolerance: float, rounds: int) -> None:
    """Hold the CPU time of a message against a baseline."""
    rows = [row for row in ROWS if re.search(only, row.name)]
    if not rows:
        raise click.UsageError(f"no row is named {only!r}: {', '.join(row.name for row in ROWS)}")
    if unknown := set(builds.split(",")) - {"pure", "compiled"}:
        raise click.UsageError(f"no such build: {', '.join(sorted(unknown))}; there are pure, compiled")
    if store and only:
        raise click.UsageError("--store writes all rows, so it takes no --only")
    try:
        known = {} if store else baseline.load(path)
        slower = [
            line
            for build in ("pure", "compiled")
            if build in builds.split(",")
            for line in _gate(build, rows, known, path if store else None, (starts, rounds), tolerance)
        ]
    except (baseline.BadBaseline, LoadError, OSError) as error:
        click.echo(f"bench-gate: {error}", err=True)
        raise SystemExit(2) from None
    for line in slower:
        click.echo(f"slower: {line}")
    raise SystemExit(1 if slower else 0)


def _gate(
    build: str,
    rows: Sequence[Row],
    known: dict[str, baseline.Baseline],
    path: Path | None,
    effort: tuple[int, int],
    tolerance: float,
) -> list[str]:
    """A line for each row that is slower. `path`: where the figures are stored instead."""
    key = f"{build}-{'.'.join(platform.python_version_tuple()[:2])}"
    if path is None and key not in known:
        click.echo(f"{key}: not compared, there is no baseline; make one with ARGS=--store")
        return []
    if not _choose(build):
        click.echo(f"{key}: not measured, there are no compiled modules (make compiled)")
        return []
    try:
        now = figures(measure(rows, build, *effort))
        if path is not None:
            baseline.store(path, key, now, machine())
            click.echo(f"{key}: stored in {path}")
            return []
        cpu = machine()["cpu"]
        if cpu != known[key].cpu:
            click.echo(
                f"{key}: the baseline is from another processor ({known[key].cpu}); "
                "the tolerance is twice as large"
            )
        verdicts = baseline.compare(known[key], now, cpu, tolerance)
        if again := [row for row, verdict in zip(rows, verdicts, strict=True) if verdict.slower]:
            more = figures(measure(again, build, *effort))
            now |= {row: min(now[row], figure) for row, figure in more.items()}
            verdicts = baseline.compare(known[key], now, cpu, tolerance)
    except OtherBuild as error:
        click.echo(f"{key}: not measured, {error}")
        return []
    for verdict in verdicts:
        click.echo(f"{key:14} {verdict}")
    return [f"{key} {verdict}" for verdict in verdicts if verdict.slower]


def _choose(build: str) -> bool:
    """Let brokers run this build; False: it is not there."""
    if build == "pure":
        os.environ["UNDERSTUDY_PURE"] = "1"
        return True
    os.environ.pop("UNDERSTUDY_PURE", None)
    folder = Path(os.environ.setdefault("UNDERSTUDY_COMPILED", str(COMPILED)))
    return folder.is_dir()


if __name__ == "__main__":
    main()
