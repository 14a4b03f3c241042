"""`make bench-compare`: RabbitMQ and Understudy under the same loads, in turns, as a table and a plot.

All systems of a repeat run at the same time, and each load is given to one after the other, so that a
disturbance of the machine falls on all alike. Progress goes to standard error; the table is printed last.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from bench import brokers
from bench.compare import rabbitmq
from bench.compare.certificates import Files
from bench.compare.report import Figures, svg, tables
from bench.compare.rows import BREADTH, MAIN, Row
from bench.compare.systems import SYSTEMS, Started, System
from bench.run import machine

SPARE = 120.0
"""Seconds that a load may take beside its measured part."""


SLOWEST = 2_000
"""Messages a second at which a backlog is given up."""


class LoadFailed(Exception):
    """The generator failed: it says why."""


@click.command()
@click.option("--only", metavar="REGEX", help="Loads by name, of all, such as mix or ^queues.")
@click.option("--all", "everything", is_flag=True, help="All loads; without it the first seven.")
@click.option("--backlog", default=10_000_000, show_default=True, help="Messages of the load `backlog`.")
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
def main(
    only: str | None,
    everything: bool,
    backlog: int,
    systems: str,
    repeats: int,
    seconds: float,
    engine: str,
    out: Path,
) -> None:
    """Compare RabbitMQ from Debian's package with Understudy."""
    rows = [*MAIN, *BREADTH] if everything or only else MAIN
    rows = [row for row in rows if re.search(only or "", row.name)]
    chosen = _chosen(systems)
    if not rows:
        raise click.UsageError(
            f"no load is named {only!r}: {', '.join(row.name for row in [*MAIN, *BREADTH])}"
        )
    try:
        release = rabbitmq.version() if any("rabbitmq" in system.name for system in chosen) else "-"
        with tempfile.TemporaryDirectory(prefix="bench-compare-") as folder:
            load = Loader(seconds, engine, backlog, Files.made(Path(folder)))
            runs = _measure(rows, chosen, repeats, load)
    except rabbitmq.MissingBroker as error:
        raise click.ClickException(str(error)) from None
    except brokers.BrokerError as error:
        raise click.ClickException(str(error)) from None
    about = _about(release, repeats, seconds)
    results = {key: Figures.middle(figures) for key, figures in runs.items()}
    text = f"{about}\n\n{tables(rows, chosen, results)}"
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(text + "\n")
    (out / "plot.svg").write_text(svg(rows, chosen, results, about))
    click.echo(f"{out}/table.md, {out}/plot.svg", err=True)
    click.echo(text)
    due = {(row.name, system.name) for row in rows for system in chosen if _offers(system, row)}
    if missing := len(due - results.keys()):
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


def _offers(system: System, row: Row) -> bool:
    return row.quorum or not system.quorum


def _measure(
    rows: list[Row], systems: list[System], repeats: int, load: Loader
) -> dict[tuple[str, str], list[Figures]]:
    """Every load on every system in turn, with fresh brokers for each repeat. Raises BrokerError."""
    runs: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    for repeat in range(repeats):
        with ExitStack() as stack:
            started = []
            for system in systems:
                click.echo(f"{repeat + 1}/{repeats}: starting {system.title}", err=True)
                running = system.start(load.files)
                stack.callback(running.close)
                started.append((system, running))
            for number, row in enumerate(rows):
                for system, running in started:
                    if not _offers(system, row):
                        continue
                    head = f"{repeat + 1}/{repeats} {number + 1}/{len(rows)} {row.name:20} {system.name:16}"
                    try:
                        figures = load.run(row, system, running)
                    except LoadFailed as error:
                        click.echo(f"{head} failed: {error}", err=True)
                        continue
                    runs[row.name, system.name].append(figures)
                    click.echo(f"{head} {figures.rate:>9,.0f}/s {figures.cpu_us:8.2f} us", err=True)
    return dict(runs)


@dataclass(slots=True, frozen=True)
class Loader:
    """Runs the generator, each time in a process of its own."""

    seconds: float
    engine: str
    backlog: int
    files: Files

    def run(self, row: Row, system: System, running: Started) -> Figures:
        """Raises LoadFailed."""
        port = running.tls_port if row.tls else running.port
        command = [sys.executable, "-m", "bench.generator", "--port", str(port)]
        if row.tls:
            command += ["--tls-ca", str(self.files.ca)]
        command += ["--engine", self.engine, *row.command(self.seconds, self.backlog)]
        if system.quorum:
            command.append("--quorum")
        for pid in running.pids:
            command += ["--pid", f"server={pid}"]
        limit = SPARE + 3 * self.seconds + (self.backlog / SLOWEST if row.backlog else 0)
        try:
            done = subprocess.run(
                command, cwd=brokers.ROOT, capture_output=True, text=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired:
            raise LoadFailed(f"it took longer than {limit:g} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise LoadFailed(said[-1] if said else "no reason given")
        result = json.loads(done.stdout)
        if result["nacked"]:
            raise LoadFailed(f"{result['nacked']:,} messages were nacked")
        return Figures(
            rate=result["rate"],
            cpu_us=result["cpu_us_per_message"]["server"],
            p50=result["confirm_us"]["p50"],
            p99=result["confirm_us"]["p99"],
            drain_rate=result.get("drain_rate", 0),
            drain_cpu_us=result.get("drain_cpu_us_per_message", {}).get("server", 0),
            memory=result.get("memory_bytes_per_message", {}).get("server", 0),
        )


if __name__ == "__main__":
    # So that the brokers are ended, too, when this process is.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    main()
