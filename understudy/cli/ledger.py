"""`understudy ledger check|compact|prune|convert`: maintains the files of ledgers. Connects to no broker. The
verdict on ledgers is the task of `understudy reconcile`.

Exit code: 0 done, and nothing is damaged; 1 something is damaged; 2 there is no ledger, or one without an end
(`check`); 3 wrong usage or a failure.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import DownloadColumn
from rich.table import Table

from understudy.cli.exit_codes import DONE, FOUND, NOTHING, UNDONE
from understudy.cli.options import (
    Judge,
    JudgeGroup,
    cell,
    duration_value,
    format_option,
    leave,
    ledger_folders,
    no_folder,
    progress_bar,
    stop,
    unreadable,
)
from understudy.ledger.compaction import Kept, compact, finish
from understudy.ledger.conversion import EVENTS, FIELDS, NEEDED, TIMES, Mapped, Unconvertible, convert
from understudy.ledger.inspection import Report, inspect_all
from understudy.ledger.retention import PruningPlan, Unprunable, plan, prune, tidy
from understudy.ledger.segments import JSONL, PARQUET, NeedsArrow, Series, arrow, find, finished, last_record
from understudy.ledger.writer import LedgerError, parse_writer_name
from understudy.shared.file_errors import of_file

fail = partial(stop, "ledger")
_PLAIN_WIDTH = 140


@click.group(cls=JudgeGroup)
def ledger() -> None:
    """Maintain the files of ledgers: check, compact, prune, convert."""


def _found(folders: tuple[Path, ...]) -> tuple[list[Series], int]:
    """The ledgers below the folders, and the number of other files. Without a ledger, ends the command."""
    for folder in folders:
        if (why := no_folder(folder)) is not None:
            fail(f"no ledger: {why}", NOTHING)
    if (fault := unreadable(folders)) is not None:
        fail(fault, UNDONE)
    series, foreign = find(folders)
    if not series:
        others = f" ({foreign} other files)" if foreign else ""
        fail(f"no ledger below {', '.join(map(str, folders))}{others}", NOTHING)
    return series, foreign


@contextmanager
def _working(what: str, octets: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar. A failing file or a missing package ends the command in one line."""
    try:
        with progress_bar(what, octets, DownloadColumn()) as progress:
            yield progress
    except NeedsArrow as error:
        fail(str(error), UNDONE)
    except OSError as error:
        fail(f"{what}: {of_file(error)}", UNDONE)


def _show(title: str, columns: dict[str, bool], rows: list[list[str]]) -> None:
    """Print a table. `columns` maps each name to whether the column holds numbers."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, number in columns.items():
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row))
    console = Console()
    (console if console.is_terminal else Console(width=_PLAIN_WIDTH)).print(table)


def _when(us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(us / 1_000_000)) if us else "-"


@ledger.command(cls=Judge)
@ledger_folders
@format_option
def check(folders: tuple[Path, ...], form: str) -> None:
    """Show the ledgers below each LEDGER_DIR, and whether they are whole.

    Exit code: 0 all whole; 1 damaged (gaps, invalid lines, duplicate numbers); 2 no ledger, or one without an
    end (still being written, or its writer crashed); 3 wrong usage, or a file cannot be read.
    """
    series, foreign = _found(folders)
    total = sum(segment.path.stat().st_size for each in series for segment in each.segments)
    reports: list[Report] = []
    with _working("reading", total) as progress:
        reports = inspect_all(series, progress)
    if form == "json":
        click.echo(json.dumps({"ledgers": [each.as_json() for each in reports], "other_files": foreign}))
    else:
        _show("ledgers", _CHECK_COLUMNS, [_check_row(each) for each in reports])
        for report in reports:
            for fault in report.faults():
                click.echo(fault)
        if foreign:
            click.echo(f"{foreign} other files")
    leave(
        FOUND
        if any(r.damaged for r in reports)
        else NOTHING
        if any(r.end in ("open", "none") for r in reports)
        else DONE
    )


_CHECK_COLUMNS = {
    "writer": False, "incarnation": True, "role": False, "files": True, "bytes": True, "records": True,
    "numbers": False, "from": False, "to": False, "pruned up to": False, "end": False,
}  # fmt: skip


def _check_row(report: Report) -> list[str]:
    found = report.as_json()
    numbers = "-" if report.first is None else f"{report.first}..{report.last}"
    return [
        found["writer"], str(found["incarnation"]), found["role"], f"{len(found['files']):,}",
        f"{found['bytes']:,}", f"{report.count:,}", numbers, _when(report.first_us), _when(report.last_us),
        _when(report.pruned_us or 0), report.end,
    ]  # fmt: skip


@ledger.command("compact", cls=Judge)
@ledger_folders
@click.option(
    "--older-than",
    callback=duration_value,
    metavar="DURATION",
    help="Only files older than this, such as 1d.",
)
@format_option
def compact_command(folders: tuple[Path, ...], older_than: float | None, form: str) -> None:
    """Convert finished files to Parquet, about a fifteenth of the size; never the file being written.

    A file with an invalid line is kept. Exit code: 0 done; 1 a file was kept because of a fault; 2 no ledger;
    3 wrong usage, or pyarrow is missing.
    """
    try:
        arrow()
    except NeedsArrow as error:
        fail(str(error), UNDONE)
    before = _now_us() - (older_than or 0.0) * 1e6
    series, _ = _found(folders)
    doubles = [s for each in series for s in each.doubles if s.form == JSONL]
    done: list[dict[str, Any]] = []
    kept: list[str] = []
    todo = [s for each in series for s in finished(each) if s.form == JSONL and not s.pruned]
    with _working("compacting", 2 * sum(s.path.stat().st_size for s in todo)) as progress:
        for segment in doubles:
            try:
                if segment.path.with_name(segment.stem + PARQUET).exists():
                    finish(segment, progress)
            except Kept as why:
                kept.append(f"{segment.path}: {why}")
        for segment in todo:
            last = last_record(segment)
            if older_than is not None and last is not None and last["ts_us"] >= before:
                continue
            size = segment.path.stat().st_size
            try:
                done.append({"file": str(segment.path), "bytes": size, "parquet": compact(segment, progress)})
            except Kept as why:
                kept.append(f"{segment.path}: {why}")
    if form == "json":
        click.echo(json.dumps({"compacted": done, "kept": kept}))
    else:
        _show_compacted(done)
    _tell_kept(kept)


def _show_compacted(done: list[dict[str, Any]]) -> None:
    if not done:
        click.echo("nothing to compact")
        return
    before, after = sum(each["bytes"] for each in done), sum(each["parquet"] for each in done)
    rows = [[each["file"], f"{each['bytes']:,}", f"{each['parquet']:,}"] for each in done]
    _show("compacted", {"file": False, "bytes": True, "as Parquet": True}, rows)
    click.echo(f"{len(done)} files: {before:,} bytes before, {after:,} bytes now")


def _tell_kept(kept: list[str]) -> None:
    for each in kept:
        click.echo(f"understudy ledger: kept {each}", err=True)
    leave(FOUND if kept else DONE)


@ledger.command("prune", cls=Judge)
@ledger_folders
@click.option(
    "--keep", callback=duration_value, required=True, metavar="DURATION", help="Age to keep, such as 30d."
)
@click.option("--damaged", is_flag=True, help="Also prune ledgers with gaps or invalid lines.")
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted.")
@format_option
def prune_command(
    folders: tuple[Path, ...], keep: float, damaged: bool, dry_run: bool, form: str
) -> None:  # fmt: skip
    """Delete whole finished files that are older than --keep.

    A small file takes their place. It records what was pruned, so that nothing looks like a gap. Messages
    published before then are no longer judged. Exit code: 0 done; 1 files were kept because of a fault; 2 no
    ledger; 3 wrong usage.
    """
    series, _ = _found(folders)
    done: list[dict[str, Any]] = []
    kept: list[str] = []
    with _working("reading", 0):
        plans = [plan(each, round(_now_us() - keep * 1e6)) for each in series]
    with _working("pruning", sum(each.size for each in plans)) as progress:
        for each in plans:
            pruned = [s for s in each.series.segments if s.pruned]
            if not dry_run and pruned:  # files that an earlier run left when it crashed
                tidy(each.series.doubles, pruned[-1].path)
            if each.going:
                entry = _pruned_json(each)
                try:
                    if not dry_run:
                        entry["file"] = str(prune(each, damaged=damaged, progress=progress))
                    done.append(entry)
                except Unprunable as why:
                    kept.append(f"{each.going[0].path} and {len(each.going) - 1} more: {why}")
    if form == "json":
        click.echo(json.dumps({"pruned": done, "kept": kept, "dry_run": dry_run}))
    elif done:
        rows = [
            [e["writer"], str(e["incarnation"]), str(e["files"]), f"{e['bytes']:,}", _when(e["horizon_us"])]
            for e in done
        ]
        columns = {"writer": False, "incarnation": True, "files": True, "bytes": True, "up to": False}
        _show("would be pruned" if dry_run else "pruned", columns, rows)
    else:
        click.echo("no finished file is older than --keep")
    _tell_kept(kept)


def _pruned_json(each: PruningPlan) -> dict[str, Any]:
    writer, incarnation = each.series.process
    return {
        "writer": writer, "incarnation": incarnation, "files": len(each.going), "bytes": each.size,
        "horizon_us": each.horizon_us,
    }  # fmt: skip


def _now_us() -> int:
    return time.time_ns() // 1000


def _writer(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        return parse_writer_name(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@ledger.command("convert", cls=Judge)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--writer", required=True, metavar="NAME", callback=_writer, help="Name of the client.")
@click.option("--role", type=click.Choice(list(EVENTS)), required=True)
@click.option(
    "--format", "form", type=click.Choice(["csv", "jsonl"]), required=True, help="Format of the FILEs."
)
@click.option(
    "--columns", default="", metavar="WHAT=COLUMN,...",
    help="Columns whose names differ from these. "
    + "; ".join(f"{role}: {', '.join(names)}" for role, names in FIELDS.items()),
)  # fmt: skip
@click.option("--time", "unit", type=click.Choice(TIMES), default="iso", show_default=True,
              help="Format of times; numbers count from 1970.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=Path("."), show_default=True,
              metavar="DIR", help="Folder for the ledger.")  # fmt: skip
def convert_command(
    files: tuple[Path, ...], writer: str, role: str, form: str, columns: str, unit: str, out: Path
) -> None:
    """Make a ledger from another client's log. The log has one row for each event of a message.

    A producer's row has time, event (sent, confirmed, nacked, returned), session (the client property
    `producer` of the connection, and /CHANNEL) and tag. It may have number (the same for a message that is
    sent again) and route (EXCHANGE|KEY). A consumer's row has time, event (received, acked), and id (the
    header `x-replication-id`), or queue, epoch and sequence. It may have redelivered, and the queue's name.
    Exit code: 0 done; 1 a row is invalid; 3 wrong usage, or a file cannot be read or written.
    """
    mapped = Mapped(role, form, _columns(role, columns, files[0], form), unit)
    size = sum(path.stat().st_size if path.is_file() else 0 for path in files)
    with _working("converting", size) as progress:
        try:
            done = convert(files, out, writer, mapped, progress)
        except Unconvertible as error:
            fail(str(error), FOUND)
        except LedgerError as error:
            fail(str(error), UNDONE)
        names = ", ".join(map(str, done.files))
        click.echo(f"{done.rows:,} rows became {done.records:,} records: {names}")


def _columns(role: str, given: str, first: Path, form: str) -> dict[str, str]:
    """The column of each field. A field that `given` does not name has the column of the same name in the
    first row, if there is one."""
    known = FIELDS[role]
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in given.split(","))):
        what, equals, column = part.partition("=")
        if not equals or not column or what not in known:
            fail(f"--columns {part}: not WHAT=COLUMN, where WHAT is one of {', '.join(known)}", UNDONE)
        found[what] = column
    header = _header(first, form)
    found = {name: name for name in known if name in header} | found
    for group in NEEDED[role]:
        if not any(name in found for name in group):
            fail(f"no column for {' or '.join(group)}: see --columns", UNDONE)
    return found


def _header(path: Path, form: str) -> list[str]:
    """Names of the columns of the first row."""
    from understudy.ledger.conversion import rows_of

    try:
        for _, row in rows_of(path, form, lambda octets: None):
            return [name for name in row if isinstance(name, str)]
    except OSError as error:
        fail(f"{path}: {error.strerror or error}", UNDONE)
    except Unconvertible as error:
        fail(str(error), FOUND)
    return []
