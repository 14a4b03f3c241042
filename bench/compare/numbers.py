"""What numbers of messages cost: `python -m bench.compare.numbers` (`make bench-numbers`).

A producer with a `producer_id` is compared with one without, at the same broker: alone and a pair, without a
ledger. The two take turns; a difference compares turns next to each other.
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import tracemalloc
from collections import defaultdict
from contextlib import ExitStack
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
from broker.hooks import Hooks
from broker.model.history.history import History
from broker.model.history.records import Numbering
from broker.model.vhost.vhosts import VirtualHosts

ROWS = ("alike-transient", "alike-persistent", "alike-persistent-1", "alike-transient-1")
PERCENT, US, OCTETS = 2.0, 1.0, 200
"""The most that numbers may cost: percent of CPU time with a window, microseconds with a window of one, and
octets of memory for each queue of a producer."""
BEGIN, END = "<!-- compare: numbers -->", "<!-- end of numbers -->"
KINDS = {"Understudy": brokers.alone, "Understudy pair": brokers.pair}
Spent = dict[tuple[str, str, bool], list[float]]
"""CPU us a message of each turn, by load, kind, and whether it had numbers."""


@click.command()
@click.option("--only", default="", metavar="REGEX", help="Loads by name.")
@click.option("--pure", is_flag=True, help="In plain Python, also if compiled modules are built.")
@click.option("--turns", default=9, show_default=True, type=click.IntRange(4), help="Of each of the two.")
@click.option("--seconds", default=1.0, show_default=True, help="Of the measured part of each turn.")
def main(only: str, pure: bool, turns: int, seconds: float) -> None:
    """What numbers of messages cost. A whole run writes its section of bench/README.md."""
    rows = [row for row in MAIN if row.name in ROWS and re.search(only, row.name)]
    if not rows:
        raise click.UsageError(f"no load is named {only!r}: {', '.join(ROWS)}")
    run = modules.pure() if pure else modules.best()
    spent: Spent = defaultdict(list)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-numbers-") as folder:
            load = Loader(seconds, "auto", 0, Files.made(Path(folder)))
            for kind in KINDS:
                _measure(kind, rows, run, turns, load, spent)
    except (brokers.BrokerError, LoadFailed) as error:
        raise click.ClickException(str(error)) from None
    about = machine()
    text = (
        f"{about['when']}: {about['cores']} cores ({about['cpu']}), CPython {about['python']}, "
        f"modules: {run}, median of {turns} turns, {seconds:g} s each.\n\n{table(rows, spent)}\n\n{marks()}"
    )
    if not (only or pure):
        rewrite(PAPER, text, BEGIN, END)
    click.echo(text)


def _measure(
    kind: str, rows: list[Row], run: modules.Modules, turns: int, load: Loader, spent: Spent
) -> None:
    settings = [*load.files.understudy(), "ledger.enabled=false"]
    with ExitStack() as stack:
        cluster = stack.enter_context(KINDS[kind](*settings, tls=True, environment=run.environment))
        started = understudy(cluster)
        for row in rows:
            for turn in range(turns):
                for numbered in (True, False) if turn % 2 else (False, True):
                    spent[row.name, kind, numbered].append(_turn(row, kind, started, load, numbered))
            without, with_ = (median(spent[row.name, kind, each]) for each in (False, True))
            click.echo(f"{kind} {row.name}: {without:.2f} us, with numbers {with_:.2f}", err=True)


def _turn(row: Row, kind: str, running: Started, load: Loader, numbered: bool) -> float:
    more = ["--numbers"] if numbered else []
    return load.run(row, System(kind, kind, lambda _files: running), running, *more).cpu_us


def table(rows: list[Row], spent: Spent) -> str:
    """A line for each load and kind, with the quartiles of the turns."""
    names = ["load", "broker", "CPU us", "with numbers", "more", "goal"]
    lines = [f"| {' | '.join(names)} |", "|---|---|--:|--:|--:|---|"]
    for row in rows:
        one = row.name.endswith("-1")
        for kind in KINDS:
            before, after = spent[row.name, kind, False], spent[row.name, kind, True]
            pairs = zip(before, after, strict=True)
            more = [each - less if one else 100 * (each / less - 1) for less, each in pairs]
            least, middle, most = quantiles(more, n=4)
            unit, goal = ("us", US) if one else ("%", PERCENT)
            said = f"{middle:+.1f} {unit} ({least:+.1f} to {most:+.1f})"
            verdict = "met" if middle <= goal else "missed"
            cells = [row.title, kind, f"{median(before):.2f}", f"{median(after):.2f}", said, verdict]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def marks() -> str:
    """A table of the memory of a mark, which says what a queue has had of a producer."""
    lines = ["| marks | octets each | goal |", "|---|--:|---|"]
    for title, producers, queues in (
        ("10,000 producers, each with a queue of its own", 10_000, 1),
        ("100 producers, each with 100 queues in turn", 100, 100),
    ):
        octets = octets_of_mark(producers, queues)
        lines.append(f"| {title} | {octets:.0f} | {'met' if octets <= OCTETS else 'missed'} |")
    return "\n".join(lines)


def octets_of_mark(producers: int, queues: int) -> float:
    """Mean octets, with its places in the tables. Each producer sends 50 runs of 20 to each queue."""
    made = iter(range(1, 1 << 30))
    vhosts = VirtualHosts(Hooks(), History(), lambda: next(made).to_bytes(16, "big"))
    vhosts.activate(1)
    targets = [vhosts.root.declare_queue(str(number), owner=vhosts) for number in range(queues)]
    names = [f"shop-{number}" for number in range(producers)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for name in names:
        for run in range(50 * queues):
            numbering = Numbering(name, 0, 1 + 20 * run)
            vhosts.producers.note(targets[run % queues], numbering, 20, stored=True)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / (producers * queues)


if __name__ == "__main__":
    # So that the brokers are ended, too, when this process is.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    main()
