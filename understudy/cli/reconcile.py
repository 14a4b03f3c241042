"""`understudy reconcile`: Spark's verdict on a folder of ledgers, for people and for programs.

Called by the command line (`understudy.cli.main`). Connects to no broker. PySpark is imported only when the
command runs.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from spark.exit_codes import OF_VERDICT
from understudy.cli.exit_codes import NOTHING, UNDONE
from understudy.cli.options import Judge, cell, ledger_folders, no_folder, stop, unreadable
from understudy.shared.text import shown

_fail = partial(stop, "reconcile")

COLORS = {"proven": "green", "violated": "red", "not provable": "yellow"}
SHOWN_QUEUES = 40
SHOWN_FINDINGS = 20


@click.command(name="reconcile", cls=Judge)
@ledger_folders
@click.option(
    "--master",
    metavar="URL",
    help="Spark master, or sc://HOST:PORT of Spark Connect. Default: two threads of this machine.",
)
@click.option(
    "--output",
    "report",
    metavar="FILE.html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an HTML report, and the JSON beside it.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    help="What to print.",
    show_default=True,
)
def reconcile_command(folders: tuple[Path, ...], master: str | None, report: Path | None, form: str) -> None:
    """Prove from the ledgers below each LEDGER_DIR that no confirmed message was lost.

    Exit code: 0 proven; 1 violated; 2 not provable (or no ledger); 3 no verdict: wrong usage or a failure;
    141 nobody reads the output.
    """
    for folder in folders:
        if (why := no_folder(folder)) is not None:
            _fail(f"no ledger: {why}", NOTHING)
    if (fault := unreadable(folders)) is not None:
        _fail(fault, UNDONE)
    if report is not None and not report.parent.is_dir():
        _fail(f"no such folder for the report: {report.parent}", UNDONE)
    answer = _run(folders, master, report is not None)
    if form == "json":
        click.echo(json.dumps(answer, indent=1))
    else:
        print_result(answer, Console())
    if report is not None:
        _write_report(answer, folders, report)
    sys.exit(OF_VERDICT[answer["verdict"]])


def _run(folders: tuple[Path, ...], master: str | None, latency: bool) -> dict[str, Any]:
    from spark.reconcile.job import NoLedgers, reconcile_folders

    def work(progress: Callable[[str], None]) -> dict[str, Any]:
        return reconcile_folders(folders, master=master, latency=latency, progress=progress)

    return driven(work, _fail, NoLedgers)


def driven(
    work: Callable[[Callable[[str], None]], dict[str, Any]],
    fail: Callable[[str, int], None],
    nothing: type[Exception],
) -> dict[str, Any]:
    """Run `work`, which drives Spark, and return its result. `work` gets a callable that shows its progress.

    On a failure, `fail` gets one line and an exit code. `work` raises `nothing` if there is no ledger.
    """
    from spark.session import SparkUnavailable, said_by_spark

    # py4j logs an interrupted call with a traceback to the root logger. Keep that off the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    console = Console(stderr=True)
    try:
        with console.status("looking for ledgers") as status:
            return work(status.update)
    except nothing as error:
        fail(str(error), NOTHING)
    except SparkUnavailable as error:
        fail(str(error), UNDONE)
    except Exception as error:
        if (said := said_by_spark(error)) is None:
            raise
        fail(said, UNDONE)
    raise AssertionError("unreachable")


def _write_report(answer: Mapping[str, Any], folders: Sequence[Path], path: Path) -> None:
    from understudy.report import write
    from understudy.report.evidence import with_lines

    try:
        write(with_lines(answer, folders), path)
    except OSError as error:
        _fail(f"cannot write {error.filename or path}: {error.strerror}", UNDONE)


def print_result(answer: Mapping[str, Any], console: Console) -> None:
    """Print the verdict, the totals, the queues, the findings, and what is missing."""
    color = COLORS[answer["verdict"]]
    console.print(f"[bold {color}]{answer['verdict'].upper()}[/]", highlight=False)
    console.print(shown(answer["sentence"]), markup=False, highlight=False)
    totals = answer["totals"]
    summary = Table(title="messages", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
    outage = "-" if answer["outage_ms"] is None else f"{answer['outage_ms']:,.0f} ms"
    for name in ("published", "confirmed", "received", "lost", "duplicated", "in doubt", "outage"):
        summary.add_column(name, justify="right")
    numbers = (
        totals[name] for name in ("published", "confirmed", "received", "lost", "duplicated", "in_doubt")
    )
    row = [*(f"{number:,}" for number in numbers), outage]
    if totals.get("numbered"):  # producers number their messages
        summary.add_column("left out", justify="right")
        summary.add_column("doubled in queues", justify="right")
        row += [f"{totals[name]:,}" for name in ("left_out", "doubled")]
    summary.add_row(*row)
    console.print(summary)
    console.print(_queue_table(answer))
    if answer.get("hops"):
        console.print(_hop_table(answer))
    said = set()
    for finding in answer["findings"][:SHOWN_FINDINGS]:
        said.add(finding["sentence"])
        console.print(f"{finding['severity']}: {shown(finding['sentence'])}", markup=False, highlight=False)
    for sentence in answer["missing"]:
        if sentence not in said:
            console.print(f"missing: {shown(sentence)}", markup=False, highlight=False)
    for clock in answer["clocks"]:
        if clock["sentence"]:
            console.print(f"clocks: {shown(clock['sentence'])}", markup=False, highlight=False)


def _hop_table(answer: Mapping[str, Any]) -> Table:
    table = Table(title="federation links", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("link queue", overflow="fold")
    for name in ("from", "to"):
        table.add_column(name, overflow="fold")
    names = ("transferred", "arrived", "unplaced")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for hop in answer["hops"][:SHOWN_QUEUES]:
        ends = (cell(hop["name"] or hop["queue"]), cell(hop["from"] or "?"), cell(hop["to"] or "?"))
        table.add_row(*ends, *(f"{hop[name]:,}" for name in names), hop["verdict"])
    return table


def _queue_table(answer: Mapping[str, Any]) -> Table:
    table = Table(title="queues", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("queue", overflow="fold")
    names = ("epoch", "enqueued", "confirmed", "received", "present", "lost")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for queue in answer["queues"][:SHOWN_QUEUES]:
        for place, row in enumerate(queue["epochs"]):
            cells = [str(row["epoch"]), *(f"{row[name]:,}" for name in names[1:])]
            table.add_row("" if place else cell(queue["name"]), *cells, "" if place else queue["verdict"])
    if len(answer["queues"]) > SHOWN_QUEUES:
        table.caption = f"and {len(answer['queues']) - SHOWN_QUEUES} more; all of them are in the JSON"
    return table
