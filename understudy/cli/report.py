"""`understudy report`: latencies, rates, failovers and the ledgers' health over a period, from ledgers alone.

Called by the command line (`understudy.cli.main`). Connects to no broker. PySpark is imported only when the
command runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from understudy.cli.exit_codes import NOTHING, UNDONE
from understudy.cli.options import Judge, cell, ledger_folders, no_folder, stop, unreadable
from understudy.cli.reconcile import driven
from understudy.report import short_length, write
from understudy.shared.text import shown

_fail = partial(stop, "report")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
SHOWN = 20


def moment(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Option callback: `7d` (ago; units s, m, h, d, w) or ISO 8601, by default UTC. Returns microseconds
    since 1970."""
    ago = re.fullmatch(r"(\d{1,6})([smhdw])", value or "")
    try:
        if value is None:
            return None
        if ago:
            then = datetime.now(UTC) - timedelta(seconds=int(ago[1]) * UNITS[ago[2]])
        else:
            named = datetime.fromisoformat(value)
            then = named if named.tzinfo else named.replace(tzinfo=UTC)
        return int(then.timestamp() * 1e6)
    except (ValueError, OverflowError):
        message = f"{value!r} is neither like 7d or 12h nor like 2026-01-31T18:00"
        raise click.BadParameter(message) from None


@click.command(name="report", cls=Judge)
@ledger_folders
@click.option(
    "--since",
    callback=moment,
    default="7d",
    show_default=True,
    help="Start: 7d, 12h or 30m ago, or a time in ISO 8601, by default UTC.",
)
@click.option("--until", callback=moment, help="End, in the same formats. Default: now.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.html",
    help="Write an HTML page to this file, and the JSON beside it.",
)  # fmt: skip
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--master", metavar="URL", help="Spark master. Default: two threads of this machine.")
def report(
    folders: tuple[Path, ...],
    since: int,
    until: int | None,
    output: Path | None,
    form: str,
    master: str | None,
) -> None:
    """Report latencies, rates and failovers over a period, from the ledgers below each LEDGER_DIR.

    `understudy reconcile` proves whether anything was lost. Exit code: 0 reported; 2 no ledger, or no record
    in the period; 3 no report: wrong usage or a failure.
    """
    end = until if until is not None else int(datetime.now(UTC).timestamp() * 1e6)
    if since >= end:
        _fail("--since is not before --until", UNDONE)
    for folder in folders:
        if (why := no_folder(folder)) is not None:
            _fail(f"no ledger: {why}", NOTHING)
    if (fault := unreadable(folders)) is not None:
        _fail(fault, UNDONE)
    if output is not None and not output.parent.is_dir():
        _fail(f"no such folder for the report: {output.parent}", UNDONE)
    answer = _run(folders, since, end, master)
    if form == "json":
        click.echo(json.dumps(answer, indent=1))
    else:
        print_survey(answer, Console())
    if output is not None:
        try:
            write(answer, output)
        except OSError as error:
            _fail(f"cannot write {error.filename}: {error.strerror}", UNDONE)


def _run(folders: tuple[Path, ...], since: int, until: int, master: str | None) -> dict[str, Any]:
    from spark.insight.survey import NothingThere, survey_folders

    def work(progress: Any) -> dict[str, Any]:
        return survey_folders(folders, since, until, master=master, progress=progress)

    return driven(work, _fail, NothingThere)


def print_survey(answer: Mapping[str, Any], console: Console) -> None:
    """Print the summary sentence, latencies, consumers, failovers, and what the ledgers lack."""
    console.print(shown(answer["sentence"]), markup=False, highlight=False)
    table = _table("latency", "what", "messages", "p50", "p99", "longest")
    for name, measure in answer["latency"].items():
        for label, row in _labelled(name.replace("_", " "), measure):
            spans = (short_length(row[key]) for key in ("p50_us", "p99_us", "max_us"))
            table.add_row(cell(label), f"{row['n']:,}", *spans)
    console.print(table)
    table = _table("consumers", "consumer", "received", "per second", "redelivered")
    for consumer in answer["consumers"][:SHOWN]:
        rate = f"{100 * consumer['redelivery_rate']:.2g} %"
        table.add_row(
            cell(consumer["consumer"]), f"{consumer['received']:,}", f"{consumer['per_second']:,.4g}", rate
        )
    console.print(table)
    if answer["failovers"]:
        table = _table("failovers", "when, UTC", "from", "to", "reason", "outage")
        for failover in answer["failovers"]:
            when = datetime.fromtimestamp(failover["ts_us"] / 1e6, UTC)
            outage = "-" if failover["outage_ms"] is None else short_length(failover["outage_ms"] * 1000)
            names = failover["previous"] or "-", failover["node"], failover["reason"]
            table.add_row(f"{when:%Y-%m-%d %H:%M:%S}", *map(cell, names), outage)
        console.print(table)
    for sentence in answer["notes"]:
        console.print(f"note: {shown(sentence)}", markup=False, highlight=False)


def _labelled(name: str, measure: Mapping[str, Any] | None) -> list[tuple[str, Mapping[str, Any]]]:
    if measure is None:
        return []
    each = measure["by"][:SHOWN] if len(measure["by"]) > 1 else []
    return [(name, measure), *((f"  {row['key']}", row) for row in each)]


def _table(title: str, *names: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, name in enumerate(names):
        words = place == 0 or name in ("from", "to", "reason")
        table.add_column(name, justify="left" if words else "right", overflow="fold" if words else "ellipsis")
    return table
