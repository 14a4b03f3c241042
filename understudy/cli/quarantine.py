"""`understudy quarantine list|show|republish`: messages that a rejoining broker set aside, and how to publish
them again.

Reads the files of a data directory, whether its broker runs or not. Only `republish` connects to a broker, as
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

from broker.model.octets import as_octets
from understudy import codes
from understudy.cli.exit_codes import FAILED
from understudy.cli.options import (
    Failed,
    Wrong,
    cell,
    duration_value,
    format_option,
    given_tls,
    is_text,
    leave,
    progress_bar,
    text_value,
    tls_options,
)
from understudy.cli.process import stopping
from understudy.client.brokers import parse_brokers
from understudy.client_tls import ClientTls
from understudy.config.load import load
from understudy.config.settings import ConfigError
from understudy.quarantine.as_json import message_json, plain, summary_json, text_of
from understudy.quarantine.choice import published, unpublished
from understudy.quarantine.journal import NotesError
from understudy.quarantine.message import Message
from understudy.quarantine.reader import QuarantineFolder, QueueSummary, Unreadable
from understudy.quarantine.republish import Republishing, RepublishOutcome, Way
from understudy.shared.codes import Coded
from understudy.shared.text import shown

_PLAIN_WIDTH = 140
_RANGES_SHOWN = 4
_BODY_SHOWN = 60
_DAMAGE_SHOWN = 20
_LONGEST_NAME = 255


@click.group()
def quarantine() -> None:
    """Messages that a rejoining node had and the primary's history did not.

    The current primary has none of them. Their publishers may have sent them again: look before you
    republish.
    """


def _folder_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option(
            "-d", "--data-dir", type=click.Path(path_type=Path),
            help="The broker's data directory. [default: broker.data_dir of the configuration]",
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
    """Show one line for each queue with quarantined messages."""
    folder = _open(data_dir, config)
    with _reading(folder) as progress:
        found = folder.summary(progress)
    if form == "json":
        click.echo(json.dumps({"folder": str(folder.path), "queues": [summary_json(e) for e in found]}))
    elif not found:
        if not folder.damage:
            click.echo(f"nothing in quarantine in {folder.path}")
    else:
        console = Console()
        (console if console.is_terminal else Console(width=_PLAIN_WIDTH)).print(_summary_table(found, folder))
    _tell_damage(folder)


@quarantine.command()
@click.argument("queue", required=False)
@click.option("--id", "wanted", metavar="EPOCH-SEQUENCE", help="Only this message.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of messages."
)
@_folder_options
def show(
    queue: str | None, wanted: str | None, limit: int, data_dir: Path | None, config: Path | None, form: str
) -> None:
    """Show messages of QUEUE (a name or UUID), or of all queues: id, route, properties and body."""
    folder = _open(data_dir, config)
    with _reading(folder) as progress:
        chosen = _chosen(folder, (queue,) if queue else (), wanted, progress)
        found = list(islice(chosen, limit + 1))
    more, found = len(found) > limit, found[:limit]
    if not found and (queue or wanted):
        _tell_damage(folder, leaving=False)
        raise Failed(_none_such(folder, (queue,) if queue else (), wanted))
    if form == "json":
        click.echo(json.dumps({"messages": [message_json(m, folder) for m in found], "more": more}))
    elif not found and not folder.damage:
        click.echo(f"nothing in quarantine in {folder.path}")
    else:
        for message in found:
            _show(message, folder)
        if more:
            click.echo(f"there are more than {limit}: see --limit")
    _tell_damage(folder)


def _addresses_value(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """Option callback: checks the addresses. The client kit parses them again."""
    try:
        parse_brokers(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def _queue_value(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Option callback."""
    if value is None:
        return value
    if not value:
        raise click.BadParameter("the queue name is empty")
    if not is_text(value):
        raise click.BadParameter("not UTF-8")
    if len(value.encode()) > _LONGEST_NAME:
        raise click.BadParameter(f"a queue's name has at most {_LONGEST_NAME} octets")
    return value


@quarantine.command()
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@click.option(
    "-b", "--broker", "brokers", default="127.0.0.1:5672", show_default=True, callback=_addresses_value,
    metavar="[amqps://]HOST:PORT,...", help="The pair to publish to.",
)  # fmt: skip
@tls_options
@click.option("--user", envvar="UNDERSTUDY_USER", default="guest", show_default=True, callback=text_value,
              help="[env: UNDERSTUDY_USER]")  # fmt: skip
@click.option("--password", envvar="UNDERSTUDY_PASSWORD", default="guest", callback=text_value,
              help="[env: UNDERSTUDY_PASSWORD]")  # fmt: skip
@click.option("--timeout", callback=duration_value, default="30s", show_default=True, metavar="DURATION",
              help="How long to wait for a broker, and for a confirm.")  # fmt: skip
@click.option("--id", "wanted", metavar="EPOCH-SEQUENCE", help="Only this message.")
@click.option(
    "--to",
    metavar="QUEUE",
    callback=_queue_value,
    help="Publish to this queue instead of the one with the original queue's name.",
)
@click.option("--route", is_flag=True, help="Publish to the exchange and with the key of the first publish.")
@click.option("--again", is_flag=True, help="Also republish messages that were republished before.")
@click.option(
    "--in-doubt",
    is_flag=True,
    help="Also republish messages sent earlier but never confirmed (may create duplicates).",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be published.")
@click.option("--ledger", type=click.Path(path_type=Path), help="Write a ledger in this folder.")
@_folder_options
def republish(
    queues: tuple[str, ...], brokers: str, user: str, password: str, timeout: float, wanted: str | None,
    to: str | None, route: bool, again: bool, in_doubt: bool, dry_run: bool, ledger: Path | None,
    data_dir: Path | None, config: Path | None, form: str,
) -> None:  # fmt: skip
    """Publish the messages of the QUEUEs (all, if none is named) again, with confirms.

    Each message goes to the queue with the original queue's name, in the original virtual host, in the order
    of ids, with its properties and a header `x-quarantined`. Confirmed messages are noted, and are not
    published a second time. The files stay.
    """
    if to is not None and route:
        raise Wrong("--to and --route cannot be combined")
    folder = _open(data_dir, config)
    if folder.notes is None:
        raise Failed(codes.QUARANTINE_UNREADABLE.say(fault=folder.notes_damage))
    with _reading(folder) as progress:
        chosen = list(_chosen(folder, queues, wanted, progress))
    if not chosen and (queues or wanted):
        _tell_damage(folder, leaving=False)
        raise Failed(_none_such(folder, queues, wanted))
    chosen.sort(key=lambda m: (m.vhost, m.name, m.queue, m.epoch, m.sequence))
    todo, doubtful = unpublished(chosen, folder.notes, again=again, in_doubt=in_doubt)
    outcome, code = RepublishOutcome(len(todo), *published(chosen, folder.notes, again=again)), 0
    if todo and not dry_run:
        way = Way(brokers, user, password, timeout, to=to, route=route, ledger=ledger, tls=_tls_for(brokers))
        try:
            with stopping() as stop, folder.notes.writing():
                todo, doubtful = unpublished(chosen, folder.notes, again=again, in_doubt=in_doubt)
                outcome.wanted = len(todo)
                outcome.before, outcome.last_at = published(chosen, folder.notes, again=again)
                with progress_bar("republishing", len(todo), MofNCompleteColumn()) as progress:
                    Republishing(folder.notes, outcome, way, stop).run(todo, progress)
        except NotesError as error:
            raise Failed(codes.QUARANTINE_UNREADABLE.say(fault=error)) from None
        code = stop.code
    _tell_outcome(outcome, form, doubtful, folder, dry_run=dry_run)
    if code or outcome.why or outcome.refused or doubtful or folder.damage:
        leave(code or FAILED)


def _tls_for(brokers: str) -> ClientTls | None:
    """The TLS files of the options, if an address is an `amqps://` one."""
    return given_tls(click.get_current_context()) if "amqps://" in brokers else None


def _tell_outcome(
    outcome: RepublishOutcome, form: str, doubtful: int, folder: QuarantineFolder, *, dry_run: bool
) -> None:
    """Print the outcome. `doubtful`: number of messages left out because they are in doubt."""
    if form == "json":
        click.echo(json.dumps({
            "messages": outcome.wanted, "dry_run": dry_run, "republished": outcome.confirmed,
            "noted": outcome.noted, "in_doubt": outcome.in_doubt, "left_in_doubt": doubtful,
            "before": outcome.before, "last_at": outcome.last_at or None,
            "refused": outcome.refused, "unreadable": len(folder.damage), "reason": outcome.why,
            "code": codes.REPUBLISH_STOPPED.name if outcome.why else None,
        }))  # fmt: skip
    elif not outcome.wanted and not doubtful and not folder.damage:
        click.echo(_nothing_to_do(outcome, folder))
    elif dry_run:
        click.echo(f"{outcome.wanted:,} messages would be republished")
    else:
        click.echo(f"{outcome.confirmed:,} of {outcome.wanted:,} messages republished and confirmed")
    for reason, count in outcome.refused.items():
        click.echo(f"understudy: {count:,} refused: {reason}", err=True)
    if doubtful:
        click.echo(
            f"understudy: {doubtful:,} left out: an earlier run sent them and got no confirm, so the broker "
            "may have them; --in-doubt republishes them too",
            err=True,
        )
    _tell_damage(folder, leaving=False)
    if outcome.why:
        click.echo(
            f"understudy: {_stopped(outcome)}",
            err=True,
        )


def _stopped(outcome: RepublishOutcome) -> Coded:
    return codes.REPUBLISH_STOPPED.say(
        why=outcome.why,
        confirmed=outcome.confirmed,
        noted=outcome.noted,
        in_doubt=outcome.in_doubt,
        not_sent=outcome.not_sent,
    )


def _nothing_to_do(outcome: RepublishOutcome, folder: QuarantineFolder) -> str:
    if not outcome.before:
        return f"nothing in quarantine in {folder.path}"
    many = f"all {outcome.before:,} messages were" if outcome.before > 1 else "the message was"
    when = f", the last at {outcome.last_at}" if outcome.last_at else ""
    return f"nothing to publish: {many} republished before{when}; --again republishes them"


# -- choosing and showing


def _none_such(folder: QuarantineFolder, queues: tuple[str, ...], wanted: str | None) -> Coded:
    """The error that no message matches the arguments."""
    what = "messages" if wanted is None else f"message {wanted}"
    names = " or ".join(repr(queue) for queue in queues)
    return codes.QUARANTINE_NONE.say(what=what + f" of queue {names}" * bool(queues), folder=folder.path)


def _open(data_dir: Path | None, config: Path | None) -> QuarantineFolder:
    try:
        path = data_dir if data_dir is not None else load(config, (), {}).broker.data_dir
        return QuarantineFolder(path)
    except ConfigError as error:
        raise Wrong(codes.CONFIG_INVALID.say(fault=error)) from None
    except Unreadable as error:
        raise Wrong(codes.QUARANTINE_UNREADABLE.say(fault=error)) from None


@contextmanager
def _reading(folder: QuarantineFolder) -> Iterator[Callable[[int], None]]:
    """Show a progress bar. A file that cannot be read ends the command in one line."""
    try:
        with progress_bar("reading", folder.size(), DownloadColumn()) as progress:
            yield progress
    except Unreadable as error:
        raise Failed(codes.QUARANTINE_UNREADABLE.say(fault=error)) from None


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


def _tell_damage(folder: QuarantineFolder, *, leaving: bool = True) -> None:
    """Print one line for each of the first faults. If there is any and `leaving`, end with exit code 1."""
    for damage in folder.damage[:_DAMAGE_SHOWN]:
        click.echo(f"understudy: {shown(str(damage))}", err=True)
    if len(folder.damage) > 1:
        click.echo(f"understudy: {len(folder.damage):,} places in {folder.path} cannot be read", err=True)
    if folder.notes_damage:
        click.echo(f"understudy: {folder.notes_damage}", err=True)
    if leaving and (folder.damage or folder.notes_damage):
        leave(FAILED)


def _summary_table(found: list[QueueSummary], folder: QuarantineFolder) -> Table:
    table = Table(title=f"quarantine in {cell(str(folder.path))}", title_justify="left")
    for column, side in (("queue", "left"), ("uuid", "left"), ("ids", "left"), ("messages", "right"),
                         ("bytes", "right"), ("republished", "right"), ("in doubt", "right"),
                         ("enqueued", "left")):  # fmt: skip
        table.add_column(column, justify=side, overflow="fold")  # type: ignore[arg-type]
    for entry in found:
        table.add_row(
            cell(entry.name), entry.queue[:8], _ranges(entry), f"{entry.messages:,}", f"{entry.size:,}",
            f"{entry.republished:,}", f"{entry.in_doubt:,}", _stretch(entry),
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


def _show(message: Message, folder: QuarantineFolder) -> None:
    body, text = message.body, text_of(message.body)
    again = ""
    if folder.notes is not None and folder.notes.is_republished(message):
        again = "  (republished)"
    elif folder.notes is not None and folder.notes.is_in_doubt(message):
        again = "  (in doubt: republished, not confirmed)"
    click.echo(f"{shown(message.title)} {message.id}{again}")
    key = shown(as_octets(message.routing_key).decode(errors="backslashreplace"))
    route = f"exchange {shown(message.exchange) or '(default)'}  key {key}"
    when = f"  enqueued {message.enqueued}" if message.enqueued else ""
    click.echo(f"  {route}  {'persistent' if message.persistent else 'transient'}{when}")
    for key, value in plain(message.properties()).items():
        click.echo(f"  {shown(key)}: {json.dumps(value)}")
    head = json.dumps(text[:_BODY_SHOWN]) if text is not None else body[: _BODY_SHOWN // 2].hex(" ")
    most = _BODY_SHOWN if text is not None else _BODY_SHOWN // 2
    size = len(text) if text is not None else len(body)
    click.echo(f"  body, {len(body):,} octets: {head}{' ...' if size > most else ''}")
