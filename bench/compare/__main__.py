"""`make bench-compare`: RabbitMQ and Understudy under the same loads, in turns, as a table and a plot.

All systems of a repeat run at the same time, and each load is given to one after the other, so that a
disturbance of the machine falls on all alike. Progress goes to standard error; the table is printed last.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import click

from bench import brokers
from bench.compare import rabbitmq
from bench.compare.report import Figures, svg, table
from bench.compare.rows import ROWS, Row
from bench.compare.systems import SYSTEMS, Started, System
from bench.run import machine

SPARE = 120.0
"""Seconds that a load may take beside its measured part."""


class LoadFailed(Exception):
    """The generator failed: it says why."""


@click.command()
@click.option("--only", default="", metavar="REGEX", help="Loads by name, such as mix or alike-transient.")
@click.option("--systems", default="", metavar="NAMES", help="Separated by commas; all if none is given.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=3.0, show_default=True, help="Of the measured part of each load.")
@click.option(
    "--engine", default="auto", type=click.Choice(["auto", "c", "python"]), help="Of the generator."
)
@click.option(
    "--out",
    default=Path("build/compare"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for table.md, plot.svg and results.json.",
)
def main(only: str, systems: str, repeats: int, seconds: float, engine: str, out: Path) -> None:
    """Compare RabbitMQ from Debian's package with Understudy."""
    rows = [row for row in ROWS if re.search(only, row.name)]
    chosen = _chosen(systems)
    if not rows:
        raise click.UsageError(f"no load is named {only!r}: {', '.join(row.name for row in ROWS)}")
    try:
        release = rabbitmq.version() if any("rabbitmq" in system.name for system in chosen) else "-"
        runs = _measure(rows, chosen, repeats, seconds, engine)
    except rabbitmq.MissingBroker as error:
        raise click.ClickException(str(error)) from None
    except brokers.BrokerError as error:
        raise click.ClickException(str(error)) from None
    about = _about(release, repeats, seconds)
    results = {key: Figures.middle(figures) for key, figures in runs.items()}
    text = f"{about}\n\n{table(rows, chosen, results)}"
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(text + "\n")
    (out / "plot.svg").write_text(svg(rows, chosen, results, about))
    click.echo(f"{out}/table.md, {out}/plot.svg", err=True)
    click.echo(text)
    if missing := sum((row.name, system.name) not in results for row in rows for system in chosen):
        raise click.ClickException(f"{missing} loads failed")


def _chosen(names: str) -> list[System]:
    known = {system.name: system for system in SYSTEMS}
    wanted = [name for name in names.split(",") if name] or list(known)
    if unknown := set(wanted) - set(known):
        raise click.UsageError(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [system for system in SYSTEMS if system.name in wanted]


def _about(release: str, repeats: int, seconds: float) -> str:
    about = machine()
    return (
        f"{about['when']}: {about['cores']} cores ({about['cpu']}), RabbitMQ {release}, "
        f"CPython {about['python']}, median of {repeats} interleaved repeats of {seconds:g} s."
    )


def _measure(
    rows: list[Row], systems: list[System], repeats: int, seconds: float, engine: str
) -> dict[tuple[str, str], list[Figures]]:
    """Every load on every system in turn, with fresh brokers for each repeat. Raises BrokerError."""
    runs: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    for repeat in range(repeats):
        with ExitStack() as stack:
            started = []
            for system in systems:
                click.echo(f"{repeat + 1}/{repeats}: starting {system.title}", err=True)
                running = system.start()
                stack.callback(running.close)
                started.append((system, running))
            for number, row in enumerate(rows):
                for system, running in started:
                    head = f"{repeat + 1}/{repeats} {number + 1}/{len(rows)} {row.name:20} {system.name:16}"
                    try:
                        figures = _load(row, system, running, seconds, engine)
                    except LoadFailed as error:
                        click.echo(f"{head} failed: {error}", err=True)
                        continue
                    runs[row.name, system.name].append(figures)
                    click.echo(f"{head} {figures.rate:>9,.0f}/s {figures.cpu_us:8.2f} us", err=True)
    return dict(runs)


def _load(row: Row, system: System, running: Started, seconds: float, engine: str) -> Figures:
    """One load in a generator process of its own. Raises LoadFailed."""
    command = [sys.executable, "-m", "bench.generator", "--port", str(running.port), "--engine", engine]
    command += row.command(seconds)
    if system.quorum:
        command.append("--quorum")
    for pid in running.pids:
        command += ["--pid", f"server={pid}"]
    limit = SPARE + 3 * seconds
    try:
        done = subprocess.run(
            command, cwd=brokers.ROOT, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"it took longer than {limit:g} s") from None
    if done.returncode:
        raise LoadFailed(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no reason given")
    result = json.loads(done.stdout)
    if result["nacked"]:
        raise LoadFailed(f"{result['nacked']:,} messages were nacked")
    return Figures(
        rate=result["rate"],
        cpu_us=result["cpu_us_per_message"]["server"],
        p50=result["confirm_us"]["p50"],
        p99=result["confirm_us"]["p99"],
    )


if __name__ == "__main__":
    main()
