"""`make bench-compare`: RabbitMQ and Understudy under the same loads, in turns, as tables and a plot.

All systems of a repeat run at the same time, and each load is given to one after the other, so that a
disturbance of the machine falls on all alike. Backlogs get fresh brokers, once, since memory that a process
has freed would not count again. Progress goes to standard error; the tables are printed last.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from bench import brokers
from bench.compare import modules, rabbitmq
from bench.compare.certificates import Files
from bench.compare.loader import Loader, LoadFailed
from bench.compare.modules import Modules
from bench.compare.report import Figures, plain, svg, tables
from bench.compare.rows import BREADTH, MAIN, Row
from bench.compare.systems import Started, System, systems
from bench.run import machine
from bench.table import rewrite

PAPER = brokers.ROOT / "bench" / "README.md"
PLOT = brokers.ROOT / "bench" / "compare" / "plot.svg"
BEGIN, END = "<!-- compare: table -->", "<!-- end of table -->"
Runs = dict[tuple[str, str], list[Figures]]


@click.command()
@click.option("--only", metavar="REGEX", help="Loads by name, such as mix or ^queues.")
@click.option("--main", "main_only", is_flag=True, help="The first seven loads only.")
@click.option("--backlog", default=300_000, show_default=True, help="Messages of the load `backlog`.")
@click.option(
    "--systems", "names", default="", metavar="NAMES", help="Separated by commas; all if none is given."
)
@click.option("--pure", is_flag=True, help="Understudy in plain Python, also if compiled modules are built.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=2.0, show_default=True, help="Of the measured part of each load.")
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
    main_only: bool,
    backlog: int,
    names: str,
    pure: bool,
    repeats: int,
    seconds: float,
    engine: str,
    out: Path,
) -> None:
    """Compare RabbitMQ from Debian's package with Understudy.

    A run of all loads on all systems also writes its section of bench/README.md.
    """
    rows = _loads(only or "", MAIN if main_only else [*MAIN, *BREADTH])
    run = modules.pure() if pure else modules.best()
    chosen = _chosen(names, systems(run))
    try:
        release = rabbitmq.version() if any("rabbitmq" in system.name for system in chosen) else "-"
        with tempfile.TemporaryDirectory(prefix="bench-compare-") as folder:
            load = Loader(seconds, engine, backlog, Files.made(Path(folder)))
            runs = _measure(rows, chosen, repeats, load)
    except (rabbitmq.MissingBroker, brokers.BrokerError) as error:
        raise click.ClickException(str(error)) from None
    about = _about(release, run, repeats, seconds)
    results = {key: Figures.middle(figures) for key, figures in runs.items()}
    text = f"{about}\n\n{tables(rows, chosen, results)}"
    plot = svg(rows, chosen, results, about)
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(text + "\n")
    (out / "plot.svg").write_text(plot)
    (out / "results.json").write_text(json.dumps({"about": about, "runs": plain(runs)}, indent=1) + "\n")
    click.echo(f"{out}/table.md, {out}/plot.svg, {out}/results.json", err=True)
    if not (main_only or only or names or pure):
        PLOT.write_text(plot)
        rewrite(PAPER, f"{text}\n\n![Messages a second and CPU time](compare/plot.svg)", BEGIN, END)
        click.echo(f"{PAPER}, {PLOT}", err=True)
    click.echo(text)
    due = {(row.name, system.name) for row in rows for system in chosen if system.offers(row)}
    if missing := len(due - results.keys()):
        raise click.ClickException(f"{missing} loads failed")


def _loads(pattern: str, every: list[Row]) -> list[Row]:
    if rows := [row for row in every if re.search(pattern, row.name)]:
        return rows
    raise click.UsageError(f"no load is named {pattern!r}: {', '.join(row.name for row in every)}")


def _chosen(names: str, every: list[System]) -> list[System]:
    known = {system.name: system for system in every}
    wanted = [name for name in names.split(",") if name] or list(known)
    if unknown := set(wanted) - set(known):
        raise click.UsageError(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [system for system in every if system.name in wanted]


def _about(release: str, run: Modules, repeats: int, seconds: float) -> str:
    about = machine()
    return (
        f"{about['when']}: {about['cores']} cores ({about['cpu']}), RabbitMQ {release}, "
        f"CPython {about['python']}, modules: {run}, "
        f"median of {repeats} interleaved repeats of {seconds:g} s."
    )


def _measure(rows: list[Row], chosen: list[System], repeats: int, load: Loader) -> Runs:
    """Every load on every system in turn, with fresh brokers for each repeat. Raises BrokerError."""
    runs: Runs = defaultdict(list)
    shared = [row for row in rows if not row.backlog]
    for repeat in range(repeats if shared else 0):
        with ExitStack() as stack:
            started = []
            for system in chosen:
                if any(system.offers(row) for row in shared):
                    click.echo(f"{repeat + 1}/{repeats}: starting {system.title}", err=True)
                    started.append((system, stack.enter_context(_running(system, load))))
            for number, row in enumerate(shared):
                for system, running in started:
                    if system.offers(row):
                        head = f"{repeat + 1}/{repeats} {number + 1}/{len(shared)}"
                        _give(runs, row, system, running, load, head)
    for row in rows:
        for system in chosen:
            if row.backlog and system.offers(row):
                with _running(system, load) as running:
                    _give(runs, row, system, running, load, "backlog", warm=True)
    return dict(runs)


@contextmanager
def _running(system: System, load: Loader) -> Iterator[Started]:
    running = system.start(load.files)
    try:
        yield running
    finally:
        running.close()


def _give(
    runs: Runs, row: Row, system: System, running: Started, load: Loader, head: str, warm: bool = False
) -> None:
    """One load to one system. A failure is one line of the progress."""
    head = f"{head} {row.name:20} {system.name:20}"
    try:
        if warm:
            load.warm(system, running)
        figures = load.run(row, system, running)
    except LoadFailed as error:
        click.echo(f"{head} failed: {error}", err=True)
        return
    runs[row.name, system.name].append(figures)
    click.echo(f"{head} {figures.rate:>9,.0f}/s {figures.cpu_us:8.2f} us", err=True)


if __name__ == "__main__":
    # So that the brokers are ended, too, when this process is.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    main()
