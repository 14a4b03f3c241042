"""The command `demo`: runs the demo, prints its table, keeps or clears its folder."""

from __future__ import annotations

import fcntl
import math
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from understudy import codes
from understudy.cli.exit_codes import FAILED, by_signal
from understudy.cli.options import Failed, Wrong, leave
from understudy.demo.demo import Demo, DemoOutcome, Options
from understudy.demo.progress import Progress
from understudy.demo.stage import DemoFailed
from understudy.demo.star import Star, StarOptions, StarOutcome
from understudy.report import beside
from understudy.shared.file_errors import of_file
from understudy.shared.folders import make_folders

FOLDER = Path("understudy-demo")
MARK = ".understudy-demo"
"""A folder with this file belongs to the demo, which may clear it."""
_PLAIN_WIDTH = 110
"""Columns of output that is not a terminal: a pipe, a log."""


@click.command()
@click.option(
    "--messages", type=click.IntRange(min=1), default=60_000, show_default=True, help="Number of messages."
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0),
    default=4000,
    show_default=True,
    help="Messages a second; 0: no limit.",
)
@click.option("--keep", is_flag=True, help="Keep data, ledgers and logs, not only the report.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default=True,
    help="Folder for all files.",
)
@click.option(
    "--authority",
    type=click.Choice(["manual", "pair", "etcd"]),
    default="manual",
    show_default=True,
    help="Who promotes: the demo, by the command; the backup; or the backup by an etcd that the demo starts.",
)
@click.option(
    "--federation",
    is_flag=True,
    help="The demo of federation instead: a pair and three brokers around it, over long lines.",
)
def demo(messages: int, rate: float, keep: bool, folder: Path, authority: str, federation: bool) -> None:
    """Run a pair of brokers and real clients, kill the primary, and show Spark's verdict on what was lost.

    With --federation, one of the lines is cut and mended, too, and each message is counted at each node. Then
    Spark judges all ledgers together.

    Exit code 0 only if it is proven that nothing confirmed was lost.
    """
    if not math.isfinite(rate):
        raise Wrong(f"Invalid value for '--rate': {rate} is not a number of messages a second.")
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    if federation:
        if authority != "manual" or not rate:
            raise Wrong("--federation needs a rate, and has no --authority: its demo promotes by the command")
        star(console, StarOptions(messages, rate, folder), keep=keep)
        return
    check_spark()
    prepare(folder)
    try:
        with ended_by_signals(), Progress(console) as progress:
            outcome = Demo(Options(messages, rate, folder, authority=authority), progress).run()
    except DemoFailed as error:
        raise Failed(codes.DEMO_FAILED.say(fault=f"{error}; see {folder / 'logs'}")) from None
    promoter = "the CLI" if authority == "manual" else "the backup itself, seen after"
    show(console, outcome, messages, promoter)
    if keep:
        console.print(f"ledgers, data and logs are in {escape(str(folder))}", soft_wrap=True)
    elif outcome.good:
        clear(folder, but=() if outcome.report is None else (outcome.report, beside(outcome.report)))
    if not outcome.good:
        leave(FAILED)


def star(console: Console, options: StarOptions, *, keep: bool) -> None:
    """The demo of federation."""
    check_spark()
    prepare(options.folder)
    try:
        with ended_by_signals(), Progress(console) as progress:
            outcome = Star(options, progress).run()
    except DemoFailed as error:
        raise Failed(codes.DEMO_FAILED.say(fault=f"{error}; see {options.folder / 'logs'}")) from None
    show_star(console, outcome)
    if keep:
        console.print(f"ledgers, data and logs are in {escape(str(options.folder))}", soft_wrap=True)
    elif outcome.good:
        report = outcome.verdict.report
        clear(options.folder, but=(outcome.map, *(() if report is None else (report, beside(report)))))
    if not outcome.good:
        leave(FAILED)


def show_star(console: Console, outcome: StarOutcome) -> None:
    """Print the table, and what happened, in a few lines."""
    table = Table(title="each message, at each node", title_justify="left")
    columns = ("", "due", "received", "lost", "doubled", "out of order", "p50 ms", "worst ms")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    for flow in outcome.flows:
        numbers = (
            flow.due,
            flow.received,
            flow.lost,
            flow.twice,
            flow.disordered,
        )
        table.add_row(flow.what, *map(_count, (*numbers, flow.p50_ms, flow.worst_ms)))
    console.print(table)
    counted = all(flow.good for flow in outcome.flows)
    again = (
        f"{outcome.resent:,} messages were in doubt and sent again; the queues left out those that they had; "
    )
    console.print(
        f"{outcome.waited:,} messages waited for the leaf that was cut off, which had them "
        f"{outcome.caught_up_s:.1f} s after that; promotion {outcome.promote_ms:,.0f} ms, and links "
        f"{outcome.linked_ms:,.0f} ms later; {outcome.octets:,.0f} octets a message on a line; "
        f"{again if outcome.resent else ''}{outcome.seconds:.0f} s in total",
        soft_wrap=True,
        highlight=False,
    )
    words = (
        "nothing is lost, nothing is doubled" if outcome.good else "messages are lost, doubled or disordered"
    )
    console.print(f"[bold {'green' if counted else 'red'}]{words}[/]", soft_wrap=True, highlight=False)
    verdict = outcome.verdict
    if verdict.answer is not None:
        colour = "red" if verdict.code else "green"
        sentence = escape(str(verdict.answer.get("sentence", "")))
        console.print(f"[bold {colour}]{sentence}[/]", soft_wrap=True, highlight=False)
    if verdict.report is not None:
        console.print(f"report: {escape(str(verdict.report.resolve()))}", soft_wrap=True, highlight=False)
    console.print(f"map: {escape(str(outcome.map.resolve()))}", soft_wrap=True, highlight=False)


def check_spark() -> None:
    """Check for PySpark and Java before anything starts, because only the last step needs them. Raises Failed
    with what to install."""
    from spark.session import SparkUnavailable, find_java

    if find_spec("pyspark") is None:
        fault = "PySpark is not installed: pip install 'understudy-amqp[spark]'"
        raise Failed(codes.SPARK_MISSING.say(fault=fault))
    try:
        find_java()
    except SparkUnavailable as error:
        raise Failed(codes.SPARK_MISSING.say(fault=error)) from None


def prepare(folder: Path, mark: str = MARK, whose: str = "demo") -> None:
    """Make an empty folder with the file `mark`. Removes what an earlier run left there. Raises Wrong if the
    folder holds anything and has no `mark`."""
    try:
        if folder.exists() and any(folder.iterdir()) and not (folder / mark).exists():
            raise Wrong(
                f"{folder} is not empty and was not made by `understudy {whose}`; choose another with --dir"
            )
        if (running := _node_on(folder)) is not None:
            raise Wrong(f"a node runs on {running}: stop it first, or choose another folder with --dir")
        clear(folder, mark=mark)
        make_folders(str(folder))
        (folder / mark).touch()
    except OSError as error:
        raise Wrong(f"cannot use {folder}: {of_file(error, folder)}") from None


def _node_on(folder: Path) -> Path | None:
    """A data directory in `folder` that a running node has locked: the node would lose its files."""
    for lock in sorted(folder.glob("**/lock")):
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.parent
    return None


def clear(folder: Path, but: tuple[Path, ...] = (), mark: str = MARK) -> None:
    """Remove what an earlier run left in its folder, except the paths in `but`."""
    if not (folder / mark).exists():
        return
    for entry in folder.iterdir():
        if entry in but or entry.name == mark:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does: by an exception, so that all children are ended."""
    by: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        by.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:
        if not by:
            raise
        click.echo(f"understudy: interrupted by {signal.Signals(by[0]).name}", err=True)
        leave(by_signal(by[0]))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_ROWS = {
    "published": "published",
    "confirmed": "confirmed",
    "received": "received, one copy for each queue",
    "lost": "lost",
    "duplicated": "received again",
    "doubled": "duplicated in the queues",
    "in_doubt": "in doubt",
}
"""Totals of the verdict, and what the demo calls them."""


def show(console: Console, outcome: DemoOutcome, messages: int, promoter: str) -> None:
    """Print the table, the verdict and the path of the report."""
    totals: dict[str, Any] = (outcome.verdict or {}).get("totals", {})
    plain = outcome.plain
    table = Table(title=f"{messages:,} messages, one primary killed", title_justify="left")
    table.add_column("")
    table.add_column("client kit", justify="right")
    table.add_column("plain kombu", justify="right")
    for key, label in _ROWS.items():
        table.add_row(label, _count(totals.get(key)), _count(plain.get(key)))
    table.add_row("outage ms", _count(outcome.outage_ms), _count(float(plain.get("outage", 0)) * 1000))
    console.print(table)
    resent = sum(int(counts.get("resent", 0)) for counts in outcome.publishers.values())
    console.print(
        f"promotion by {promoter} {outcome.promote_ms:,.0f} ms; rejoin {outcome.rejoin_ms:,.0f} ms; "
        f"{resent:,} messages in doubt were sent again, with their numbers; {outcome.seconds:.0f} s in total",
        soft_wrap=True,
        highlight=False,
    )
    kinds = totals.get("duplicates")
    if kinds and totals.get("duplicated"):
        console.print(
            f"received again: {kinds['redelivered']:,} flagged redelivered, "
            f"{kinds['in_doubt']:,} that only the killed primary had, {kinds['illegal']:,} unexplained",
            soft_wrap=True,
            highlight=False,
        )
    if outcome.verdict is not None:
        colour = "green" if outcome.verdict_code == 0 else "red"
        sentence = escape(str(outcome.verdict.get("sentence", "")))
        console.print(f"[bold {colour}]{sentence}[/]", soft_wrap=True, highlight=False)
    if outcome.plain.get("lost"):
        console.print("[bold red]Plain kombu lost messages that were confirmed to it.[/]", soft_wrap=True)
    if outcome.report is not None:
        console.print(f"report: {escape(str(outcome.report.resolve()))}", soft_wrap=True, highlight=False)


def _count(value: Any) -> str:
    return "-" if value is None else f"{value:,.0f}"
