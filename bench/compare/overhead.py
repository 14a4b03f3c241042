"""What ledger and metrics cost: `python -m bench.compare.overhead`, the second part of `make bench-compare`.

Understudy alone and as a pair, each three times at once: without a ledger and without `broker.http`; with a
ledger; with a ledger and with a scrape of `/metrics` each second. A node counts for its metrics also when
nobody can ask for them, so what a scrape costs is all that can be switched off. Each load goes round three
times, first to another of the three each time; a percentage compares turns of the same round.
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles

import click

from bench import brokers
from bench.compare import modules
from bench.compare.__main__ import PAPER
from bench.compare.certificates import Files
from bench.compare.loader import Loader, LoadFailed
from bench.compare.rows import MAIN, Row
from bench.compare.systems import Started, System, understudy
from bench.run import machine
from bench.table import rewrite

VARIANTS = ("neither", "ledger", "both")
GOAL = 5.0
"""Percent of CPU time, with both."""
BEGIN, END = "<!-- compare: overhead -->", "<!-- end of overhead -->"
KINDS = {"Understudy": brokers.alone, "Understudy pair": brokers.pair}
Spent = dict[tuple[str, str, str], list[float]]
"""CPU us a message of each turn, by the names of load, kind and variant."""


@click.command()
@click.option("--only", default="", metavar="REGEX", help="Loads by name, of the first seven.")
@click.option("--pure", is_flag=True, help="In plain Python, also if compiled modules are built.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=1.0, show_default=True, help="Of the measured part of each load.")
@click.option(
    "--out",
    default=Path("build/compare"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for overhead.md.",
)
def main(only: str, pure: bool, repeats: int, seconds: float, out: Path) -> None:
    """What ledger and metrics cost, of the first seven loads.

    A run of all of them also writes its section of bench/README.md.
    """
    rows = [row for row in MAIN if re.search(only, row.name)]
    if not rows:
        raise click.UsageError(f"no load is named {only!r}: {', '.join(row.name for row in MAIN)}")
    run = modules.pure() if pure else modules.best()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-compare-") as folder:
            load = Loader(seconds, "auto", 0, Files.made(Path(folder)))
            spent = _measure(rows, run, repeats, load)
    except (brokers.BrokerError, LoadFailed) as error:
        raise click.ClickException(str(error)) from None
    about = machine()
    text = (
        f"{about['when']}: {about['cores']} cores ({about['cpu']}), CPython {about['python']}, "
        f"modules: {run}, median of {len(VARIANTS)} rounds in each of {repeats} repeats, "
        f"{seconds:g} s each.\n\n{table(rows, spent)}"
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "overhead.md").write_text(text + "\n")
    if not (only or pure):
        rewrite(PAPER, text, BEGIN, END)
        click.echo(PAPER, err=True)
    click.echo(text)


def _measure(rows: list[Row], run: modules.Modules, repeats: int, load: Loader) -> Spent:
    """Raises BrokerError or LoadFailed."""
    spent: Spent = defaultdict(list)
    for repeat in range(repeats):
        for kind in KINDS:
            with ExitStack() as stack:
                click.echo(f"{repeat + 1}/{repeats}: starting {kind} three times", err=True)
                started = {name: stack.enter_context(_running(kind, name, run, load)) for name in VARIANTS}
                for row in rows:
                    for turn in range(len(VARIANTS) ** 2):
                        name = VARIANTS[(turn + turn // len(VARIANTS)) % len(VARIANTS)]
                        spent[row.name, kind, name].append(_turn(row, kind, name, started[name], load))
                    said = [f"{name} {median(spent[row.name, kind, name][-3:]):.2f} us" for name in VARIANTS]
                    click.echo(f"{repeat + 1}/{repeats} {row.name:20} {kind:16} {', '.join(said)}", err=True)
    return dict(spent)


@contextmanager
def _running(kind: str, name: str, run: modules.Modules, load: Loader) -> Iterator[Started]:
    settings = [*load.files.understudy(), f"ledger.enabled={'false' if name == 'neither' else 'true'}"]
    cluster = KINDS[kind](*settings, http=name == "both", tls=True, environment=run.environment)
    with cluster:
        yield understudy(cluster)


def _turn(row: Row, kind: str, name: str, running: Started, load: Loader) -> float:
    """The publisher has a name, which the ledger then records."""
    system = System(name, kind, lambda _files: running)
    with ExitStack() as stack:
        if running.http is not None:
            stack.enter_context(scraped(f"http://{brokers.HOST}:{running.http}/metrics"))
        return load.run(row, system, running, "--producer", "bench.1.1").cpu_us


@contextmanager
def scraped(address: str) -> Iterator[None]:
    """Asked for each second meanwhile."""
    over = threading.Event()

    def scrape() -> None:
        while True:
            with urllib.request.urlopen(address, timeout=10) as answer:
                answer.read()
            if over.wait(1):
                return

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def table(rows: list[Row], spent: Spent) -> str:
    """A line for each load and kind. Percentages have the quartiles of the rounds."""
    names = ["load", "broker", "CPU us with neither", "with a ledger", "more", "with both", "more", "goal"]
    lines = [f"| {' | '.join(names)} |", "|---|---|--:|--:|--:|--:|--:|---|"]
    for row in rows:
        for kind in KINDS:
            neither, ledger, both = (spent[row.name, kind, name] for name in VARIANTS)
            cells = [row.title, kind, f"{median(neither):.2f}"]
            for each in (ledger, both):
                least, middle, most = _quartiles(neither, each)
                cells += [f"{median(each):.2f}", f"{middle:+.1f} % ({least:+.1f} to {most:+.1f})"]
            lines.append("| " + " | ".join([*cells, _verdict(*_quartiles(neither, both))]) + " |")
    return "\n".join(lines)


def _quartiles(before: list[float], after: list[float]) -> list[float]:
    """By how many percent `after` is more."""
    return quantiles([100 * (more / less - 1) for less, more in zip(before, after, strict=True)], n=4)


def _verdict(least: float, middle: float, most: float) -> str:
    if middle <= GOAL:
        return "met" if most <= GOAL else "met, within noise"
    return "missed" if least > GOAL else "missed, within noise"


if __name__ == "__main__":
    # So that the brokers are ended, too, when this process is.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    main()
