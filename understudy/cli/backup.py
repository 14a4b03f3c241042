"""`understudy backup` and `understudy restore`: archive a node with its messages, and make a node from an
archive.

Exit codes: 2 for a folder that cannot be used; 1 if the command would lose something, the archive is damaged,
or the disk fails.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

import click
from rich.console import Console
from rich.progress import DownloadColumn
from rich.table import Table

from understudy import codes
from understudy.archive.manifest import BackupFailed, BackupMisuse, Manifest
from understudy.archive.restore import restore as make_node
from understudy.archive.take import take
from understudy.cli.exit_codes import by_signal
from understudy.cli.options import Failed, Wrong, cell, format_option, progress_bar
from understudy.config.types import parse_node_name

_PLAIN_WIDTH = 140
_SHOWN = 50
"""Queues in the table: those with the most messages."""
_FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("data_dir", type=_FOLDER)
@click.argument("out", type=_FOLDER)
@click.option("--stale", is_flag=True, help="Accept a node that may lack confirmed messages.")
@format_option
def backup(data_dir: Path, out: Path, stale: bool, form: str) -> None:
    """Make an archive in OUT of the node in DATA_DIR, with its messages, whether the node runs or not.

    The archive has every message that was confirmed before the command began and is not consumed. OUT is a
    new folder, best on another disk.
    """
    with _ending():
        manifest = take(data_dir, out, stale=stale, bar=_bar)
    _tell(manifest, form, {"copy": str(out.resolve())}, f"archive of {manifest.node_name} in {out}")
    if form == "table":
        click.echo(f"{manifest.size:,} bytes; to restore it: understudy restore {quote(str(out))} DATA_DIR")


@click.command()
@click.argument("copy", metavar="ARCHIVE", type=_FOLDER)
@click.argument("data_dir", type=_FOLDER)
@click.option("--name", help="Name of the new node. [default: the name of the archived node]")
@format_option
def restore(copy: Path, data_dir: Path, name: str | None, form: str) -> None:
    """Make a new node in DATA_DIR, which must be new or empty, from ARCHIVE."""
    if name is not None:
        try:
            parse_node_name(name)
        except ValueError as error:
            raise Wrong(f"--name: {error}") from None
    with _ending():
        manifest = make_node(copy, data_dir, name, bar=_bar)
    called = name or manifest.node_name
    _tell(manifest, form, {"data_dir": str(data_dir.resolve()), "name": called}, f"restored to {data_dir}")
    if form == "table":
        click.echo(
            f"Start it: understudy serve --data-dir {quote(str(data_dir))} --name {quote(called)}\n"
            f"In a pair: start the other nodes with new, empty data directories, then promote this one"
        )


@contextmanager
def _ending() -> Iterator[None]:
    """A failure ends in one line. SIGTERM cleans up first, as SIGINT does."""

    def end(number: int, _frame: object) -> None:
        sys.exit(by_signal(number))

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except BackupMisuse as error:
        raise Wrong(str(error)) from None
    except BackupFailed as error:
        raise Failed(codes.ARCHIVE_FAILED.say(fault=error)) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _bar(what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    return progress_bar(what, total, DownloadColumn())


def _tell(manifest: Manifest, form: str, more: dict[str, Any], title: str) -> None:
    if form == "json":
        told = manifest.model_dump(exclude={"files"})
        click.echo(json.dumps(more | told | {"messages": manifest.messages, "bytes": manifest.size}))
        return
    console = Console()
    click.echo(title)
    (console if console.is_terminal else Console(width=_PLAIN_WIDTH)).print(_table(manifest))
    if len(manifest.queues) > _SHOWN:
        click.echo(
            f"and {len(manifest.queues) - _SHOWN:,} more queues with no more messages; --format json has all"
        )
    taken = f"taken at {manifest.taken_at} of {manifest.node_name}, epoch {manifest.epoch}"
    click.echo(f"{taken}; exchanges: {manifest.exchanges}, bindings: {manifest.bindings}")
    if manifest.stale:
        click.echo("understudy: the node was not in sync: the archive may lack confirmed messages", err=True)


def _table(manifest: Manifest) -> Table:
    most = sorted(manifest.queues, key=lambda queue: -queue.messages)[:_SHOWN]
    shown = sorted(most, key=lambda queue: queue.name)
    table = Table(show_footer=True)
    table.add_column("queue", "all", overflow="fold")
    table.add_column("uuid", overflow="fold")
    table.add_column("messages", f"{manifest.messages:,}", justify="right")
    for queue in shown:
        table.add_row(cell(queue.name), queue.uuid[:8], f"{queue.messages:,}")
    return table
