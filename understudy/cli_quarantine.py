"""`understudy quarantine list|show|republish`: what a rejoining broker set aside, and its way back.

Works on the files of a data folder, whether its broker runs or not; only `republish` speaks to a broker, as
an ordinary publisher.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import DownloadColumn, MofNCompleteColumn
from rich.table import Table

from broker.errors import shown
from understudy.cli_options import (
    Failed,
    Wrong,
    cell,
    duration_value,
    format_option,
    given_tls,
    leave,
    progress_bar,
    tls_options,
)
from understudy.client_tls import ClientTls
from understudy.config import ConfigError, load
from understudy.quarantine import Message, QuarantineFolder, QueueSummary, Unreadable
from understudy.republish import Outcome, Republishing

_PLAIN_WIDTH = 140
_RANGES_SHOWN = 4
_BODY_SHOWN = 60


@click.group()
def quarantine() -> None:
    """Messages that a rejoining broker held and its new primary never had.

    None of them is in the primary that serves now. Their publishers may have sent them again, so look before
    you republish.
    """


def _folder_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option(
            "-d", "--data-dir", type=click.Path(path_type=Path),
            help="The broker's data folder. [default: broker.data_dir of the configuration]",
        ),
        click.option("--config", "config", type=click.Path(path_type=Path), help="The broker's TOML file."),
        format_option,
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@quarantine.command("list")
@_folder_options
def list_(data_dir: Path | None, config: Path | None, form: str) -> None:
    """One line for each queue of which there are messages."""
    folder = _open(data_dir, config)
    with _reading(folder) as progress:
        found = folder.summary(progress)
    if form == "json":
        click.echo(json.dumps({"folder": str(folder.path), "queues": [_summary_json(e) for e in found]}))
    elif not found:
        click.echo(f"nothing in quarantine in {folder.path}")
    else:
        console = Console()
        (console if console.is_terminal else Console(width=_PLAIN_WIDTH)).print(_summary_table(found, folder))
    _tell_damage(folder)


@quarantine.command()
@click.argument("queue", required=False)
@click.option("--id", "wanted", metavar="EPOCH-SEQUENCE", help="Only this message.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many.")
@_folder_options
def show(
    queue: str | None, wanted: str | None, limit: int, data_dir: Path | None, config: Path | None, form: str
) -> None:
    """Messages of QUEUE (a name or UUID), or of all: id, route, properties and body."""
    folder = _open(data_dir, config)
    with _reading(folder) as progress:
        chosen = _chosen(folder, (queue,) if queue else (), wanted, progress)
        shown = list(islice(chosen, limit + 1))
    more, shown = len(shown) > limit, shown[:limit]
    if not shown and (queue or wanted):
        raise Failed(f"no such message in {folder.path}")
    if form == "json":
        click.echo(json.dumps({"messages": [_message_json(m, folder) for m in shown], "more": more}))
    elif not shown and not folder.damage:
        click.echo(f"nothing in quarantine in {folder.path}")
    else:
        for message in shown:
            _show(message, folder)
        if more:
            click.echo(f"there are more than {limit}: see --limit")
    _tell_damage(folder)


@quarantine.command()
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@click.option(
    "-b", "--broker", "brokers", default="127.0.0.1:5672", show_default=True,
    metavar="[amqps://]HOST:PORT,...", help="The pair to publish to.",
)  # fmt: skip
@tls_options
@click.option(
    "--user", envvar="UNDERSTUDY_USER", default="guest", show_default=True, help="[env: UNDERSTUDY_USER]"
)
@click.option("--password", envvar="UNDERSTUDY_PASSWORD", default="guest", help="[env: UNDERSTUDY_PASSWORD]")
@click.option("--timeout", callback=duration_value, default="30s", show_default=True, metavar="DURATION",
              help="How long to wait for a broker, and for a confirm.")  # fmt: skip
@click.option("--id", "wanted", metavar="EPOCH-SEQUENCE", help="Only this message.")
@click.option("--to", metavar="QUEUE", help="Into this queue instead of the one of the same name.")
@click.option("--route", is_flag=True, help="To the exchange and with the key of its first publisher.")
@click.option("--again", is_flag=True, help="Those, too, that were republished before.")
@click.option("--dry-run", is_flag=True, help="Only say what would be published.")
@click.option("--ledger", type=click.Path(path_type=Path), help="Keep a ledger of it in this folder.")
@_folder_options
def republish(
    queues: tuple[str, ...], brokers: str, user: str, password: str, timeout: float, wanted: str | None,
    to: str | None, route: bool, again: bool, dry_run: bool, ledger: Path | None, data_dir: Path | None,
    config: Path | None, form: str,
) -> None:  # fmt: skip
    """Publish the messages of the QUEUEs (all, if none is named) again, with confirms.

    Each goes to the queue of its queue's name, in that queue's virtual host, in the order of its ids, with
    its properties and a header `x-quarantined`. What the broker has confirmed is noted, and not published a
    second time; the files stay.
    """
    if to is not None and route:
        raise Wrong("--to and --route exclude each other")
    folder = _open(data_dir, config)
    with _reading(folder) as progress:
        todo = [m for m in _chosen(folder, queues, wanted, progress) if again or not folder.is_republished(m)]
    if not todo and (queues or wanted) and not any(True for _ in _chosen(folder, queues, wanted)):
        raise Failed(f"no such message in {folder.path}")
    todo.sort(key=lambda m: (m.vhost, m.name, m.queue, m.epoch, m.sequence))
    outcome = Outcome(len(todo))
    if todo and not dry_run:
        with progress_bar("republishing", len(todo), MofNCompleteColumn()) as progress:
            Republishing(folder, outcome, user=user, to=to, route=route).run(
                todo, brokers, password, timeout, ledger, progress, tls=_tls_for(brokers)
            )
    _tell_outcome(outcome, form, dry_run=dry_run)
    _tell_damage(folder)


def _tls_for(brokers: str) -> ClientTls | None:
    """The files that were given, if they are asked for."""
    return given_tls(click.get_current_context()) if "amqps://" in brokers else None


def _tell_outcome(outcome: Outcome, form: str, *, dry_run: bool) -> None:
    refused = sum(outcome.refused.values())
    if form == "json":
        click.echo(json.dumps({
            "messages": outcome.wanted, "dry_run": dry_run, "republished": outcome.confirmed,
            "refused": outcome.refused, "reason": outcome.why,
        }))  # fmt: skip
    elif dry_run:
        click.echo(f"{outcome.wanted:,} messages would be republished")
    else:
        click.echo(f"{outcome.confirmed:,} of {outcome.wanted:,} messages republished and confirmed")
    for reason, count in outcome.refused.items():
        click.echo(f"understudy: {count:,} not taken: {reason}", err=True)
    if outcome.why:
        raise Failed(f"stopped after {outcome.confirmed:,} messages: {outcome.why}")
    if refused:
        leave(1)


# -- choosing and showing


def _open(data_dir: Path | None, config: Path | None) -> QuarantineFolder:
    try:
        path = data_dir if data_dir is not None else load(config, (), {}).broker.data_dir
        return QuarantineFolder(path)
    except (ConfigError, Unreadable) as error:
        raise Wrong(str(error)) from None


@contextmanager
def _reading(folder: QuarantineFolder) -> Iterator[Callable[[int], None]]:
    """With a bar; what cannot be read ends the command in one line."""
    try:
        with progress_bar("reading", folder.size(), DownloadColumn()) as progress:
            yield progress
    except Unreadable as error:
        raise Failed(str(error)) from None


def _chosen(
    folder: QuarantineFolder, queues: tuple[str, ...], wanted: str | None,
    progress: Callable[[int], None] = lambda octets: None,
) -> Iterator[Message]:  # fmt: skip
    if wanted is not None and not all(part.isdecimal() for part in [*wanted.split("-", 1), "0"]):
        raise Wrong(f"{wanted!r} is not EPOCH-SEQUENCE, such as 65537-12")
    for message in folder.messages(progress):
        if queues and message.title not in queues and message.queue not in queues:
            continue
        if wanted is None or message.id == wanted:
            yield message


def _tell_damage(folder: QuarantineFolder) -> None:
    for damage in folder.damage:
        click.echo(f"understudy: {damage}", err=True)
    if folder.damage:
        leave(1)


def _summary_json(entry: QueueSummary) -> dict[str, Any]:
    return {
        "queue": entry.queue, "name": entry.name, "messages": entry.messages, "bytes": entry.size,
        "republished": entry.republished, "oldest_ms": entry.oldest_ms or None,
        "newest_ms": entry.newest_ms or None,
        "ids": {str(epoch): ids.ranges() for epoch, ids in sorted(entry.ids.items())},
    }  # fmt: skip


def _summary_table(found: list[QueueSummary], folder: QuarantineFolder) -> Table:
    table = Table(title=f"quarantine in {cell(str(folder.path))}", title_justify="left")
    for column, side in (("queue", "left"), ("uuid", "left"), ("ids", "left"), ("messages", "right"),
                         ("bytes", "right"), ("republished", "right"), ("enqueued", "left")):  # fmt: skip
        table.add_column(column, justify=side, overflow="fold")  # type: ignore[arg-type]
    for entry in found:
        table.add_row(
            cell(entry.name), entry.queue[:8], _ranges(entry), f"{entry.messages:,}", f"{entry.size:,}",
            f"{entry.republished:,}", _stretch(entry),
        )  # fmt: skip
    return table


def _ranges(entry: QueueSummary) -> str:
    texts = [
        f"{epoch}-{first}" if first == last else f"{epoch}-{first}..{last}"
        for epoch, ids in sorted(entry.ids.items())
        for first, last in ids.ranges()
    ]
    more = len(texts) - _RANGES_SHOWN
    return ", ".join(texts[:_RANGES_SHOWN]) + (f", and {more} ranges more" if more > 0 else "")


def _stretch(entry: QueueSummary) -> str:
    if not entry.oldest_ms:
        return "-"
    form = "%Y-%m-%d %H:%M:%S"
    first, last = (time.strftime(form, time.gmtime(ms / 1000)) for ms in (entry.oldest_ms, entry.newest_ms))
    return (
        f"{first} UTC"
        if first == last
        else f"{first} to {last[11:] if last[:10] == first[:10] else last} UTC"
    )


def _message_json(message: Message, folder: QuarantineFolder) -> dict[str, Any]:
    text = _text(message.body)
    return {
        "queue": message.queue, "name": message.title, "id": message.id, "epoch": message.epoch,
        "sequence": message.sequence, "exchange": message.exchange, "routing_key": message.routing_key,
        "persistent": message.persistent, "enqueued": message.enqueued or None,
        "republished": folder.is_republished(message), "properties": _plain(message.properties()),
        "body": text if text is not None else None,
        "body_hex": message.body.hex() if text is None else None,
    }  # fmt: skip


def _show(message: Message, folder: QuarantineFolder) -> None:
    body, text = message.body, _text(message.body)
    again = "  (republished)" if folder.is_republished(message) else ""
    click.echo(f"{shown(message.title)} {message.id}{again}")
    route = f"exchange {shown(message.exchange) or '(default)'}  key {shown(message.routing_key)}"
    when = f"  enqueued {message.enqueued}" if message.enqueued else ""
    click.echo(f"  {route}  {'persistent' if message.persistent else 'transient'}{when}")
    for key, value in _plain(message.properties()).items():
        click.echo(f"  {shown(key)}: {json.dumps(value)}")
    head = json.dumps(text[:_BODY_SHOWN]) if text is not None else body[: _BODY_SHOWN // 2].hex(" ")
    most = _BODY_SHOWN if text is not None else _BODY_SHOWN // 2
    size = len(text) if text is not None else len(body)
    click.echo(f"  body, {len(body):,} octets: {head}{' ...' if size > most else ''}")


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _plain(value: Any) -> Any:
    """What JSON can say of it."""
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
