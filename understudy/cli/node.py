"""Commands that ask one running node something: status, ready, promote, demote, switchover, query, ping."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import click
from rich.box import ROUNDED
from rich.console import Console, JustifyMethod
from rich.table import Table

from understudy import codes
from understudy.cli.exit_codes import FAILED
from understudy.cli.options import Failed, broker_options, cell, duration_value, given_tls, leave
from understudy.client_tls import parse_broker
from understudy.management import SERVING, STATUSES, Unanswered, Unreachable, ask, could_serve, refusal_of
from understudy.shared.addresses import HostPort

_COLOURS = {"active": "green", "standalone": "green", "ready": "green", "recovering": "yellow"}
_MEMBER_COLUMNS = (
    "name",
    "address",
    "status",
    "in_sync",
    "lag",
    "queues_left",
    "trouble",
)
_HIDDEN_COLUMNS = ("uuid", "node_id")
_NAMES = ("epoch", "position", "applied", "durable", "incarnation", "version")
"""Numbers that identify something: printed without separators."""
_TIMES = ("last_write",)
"""Times, in seconds since 1970."""
_PLAIN_WIDTH = 1000
_STATUS_KEYS = ("name", "status", "epoch", "link", "members", "promotable", "reason")


def question(
    address: HostPort,
    command: str,
    user: str,
    password: str,
    timeout: float,
    args: dict[str, Any] | None = None,
    told_by: str = "",
) -> dict[str, Any]:
    """The node's answer. Raises Failed if the node is unreachable or does not answer in time.

    `told_by`: the command that shows whether the node did what was asked, for the case that no answer came.
    """
    try:
        return ask(address, command, args, user=user, password=password, timeout=timeout)
    except Unanswered as error:
        if not told_by:
            raise Failed(error.said) from None
        doubt = f"the node may have done it: check with {told_by} --broker {address}"
        cause = f"{command}: {error.said.sentence}; {doubt}"
        raise Failed(codes.NODE_NO_ANSWER.say(cause=cause)) from None
    except Unreachable as error:
        raise Failed(error.said) from None


@click.command()
@broker_options
@click.option(
    "--expect", type=click.Choice(STATUSES), help="Exit with 1 unless the node has exactly this status."
)
def status(
    address: HostPort, user: str, password: str, timeout: float, form: str, expect: str | None
) -> None:
    """Show a node: its status and the reason, its epoch, its link, and the members of its pair."""
    found = status_of(question(address, "status", user, password, timeout))
    if form == "json":
        click.echo(json.dumps(found))
    else:
        show_status(found, address)
    if expect is not None and found["status"] != expect:
        click.echo(f"understudy: status is {found['status']}, expected {expect}", err=True)
        leave(FAILED)


@click.command()
@broker_options
@click.option(
    "--wait",
    metavar="DURATION",
    callback=duration_value,
    help="Wait up to this long for the node to be ready.",
)
def ready(address: HostPort, user: str, password: str, timeout: float, form: str, wait: float | None) -> None:
    """Exit with 0 if the node serves, or is ready and could serve at once."""
    deadline = time.monotonic() + (wait or 0)
    while True:
        last = time.monotonic() >= deadline
        try:
            found = status_of(ask(address, "status", user=user, password=password, timeout=timeout))
            is_ready = could_serve(found)
            but = ", but could not serve now" if found["status"] == "ready" and not is_ready else ""
            said = codes.NOT_READY.say(
                name=found["name"], status=found["status"], but=but, reason=found["reason"]
            )
        except Unreachable as error:
            is_ready, said = False, error.said
        if is_ready or last:
            break
        time.sleep(0.1)
    if form == "json":
        code = {} if is_ready else {"code": said.code}
        click.echo(json.dumps({"ready": is_ready, **code, "reason": said.sentence}))
    if not is_ready:
        raise Failed(said)
    if form == "table":
        click.echo(said.sentence)


@click.command()
@broker_options
@click.option(
    "--force-lossy",
    is_flag=True,
    help="Promote although confirmed messages may be missing here. The log and the ledger record it.",
)
def promote(
    address: HostPort, user: str, password: str, timeout: float, form: str, force_lossy: bool
) -> None:
    """Make the node the primary. Returns once it serves clients. Succeeds if it is the primary already."""
    _do(address, "promote", user, password, timeout, form, {"force_lossy": force_lossy})


@click.command()
@broker_options
def demote(address: HostPort, user: str, password: str, timeout: float, form: str) -> None:
    """Make the primary close its clients, stop serving, and rejoin as a backup."""
    _do(address, "demote", user, password, timeout, form, {})


@click.command()
@broker_options
@click.option("--to", metavar="NAME", help="Name of the target. Default: the best backup.")
def switchover(
    address: HostPort, user: str, password: str, timeout: float, form: str, to: str | None
) -> None:
    """Move the primary role to a backup, without loss. Returns once the backup serves clients. Any node may
    be asked: a node that does not serve names the primary."""
    if to == "":
        raise click.BadParameter("the name is empty", param_hint="'--to'")
    found = status_of(question(address, "status", user, password, timeout))
    if found["status"] not in SERVING:
        address = primary_of(found) or address
    _do(address, "switchover", user, password, timeout, form, {"to": to})


def primary_of(found: dict[str, Any]) -> HostPort | None:
    """The address of the primary, if the node knows it. For TLS, with the files that the options gave."""
    _, at, where = str(found.get("primary") or "").rpartition(" at ")
    try:
        return parse_broker(where, given_tls(click.get_current_context())) if at else None
    except ValueError:
        return None


def everything(address: HostPort, user: str, password: str, timeout: float) -> dict[str, Any]:
    """The node's answer to `query`: its status, with all queues in `queue_list`. One answer has only some of
    the queues, so that no other client of the node waits for long."""
    found = status_of(question(address, "query", user, password, timeout))
    queues = {(row["vhost"], row["name"]): row for row in found["queue_list"]}
    while (begin := found.pop("more", None)) is not None:
        more = status_of(question(address, "query", user, password, timeout, {"from": begin}))
        queues |= {(row["vhost"], row["name"]): row for row in more["queue_list"]}
        found["more"] = more["more"]
    return found | {"queue_list": list(queues.values())}


@click.command()
@broker_options
def query(address: HostPort, user: str, password: str, timeout: float, form: str) -> None:
    """Show everything that the node reports: its status and its queues."""
    found = everything(address, user, password, timeout)
    if form == "json":
        click.echo(json.dumps(found))
        return
    show_status(found, address)
    console = wide_console()
    plain = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
    plain.add_column(overflow="fold")
    plain.add_column(overflow="fold")
    for key, value in found.items():
        if key in _STATUS_KEYS:
            continue
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            console.print(rows(key.replace("_", " "), value))
        elif isinstance(value, dict):
            for name, inner in value.items():
                plain.add_row(cell(f"{key} {name}".replace("_", " ")), cell(_text(inner, name)))
        elif value != []:
            plain.add_row(cell(key.replace("_", " ")), cell(_text(value, key)))
    console.print(plain)


@click.command()
@broker_options
def ping(address: HostPort, user: str, password: str, timeout: float, form: str) -> None:
    """Exit with 0 if the node answers, whatever its status."""
    began = time.monotonic()
    checked(question(address, "ping", user, password, timeout))
    took = (time.monotonic() - began) * 1000
    if form == "json":
        click.echo(json.dumps({"ok": True, "broker": str(address), "ms": round(took, 2)}))
    else:
        click.echo(f"{address} answered in {took:.1f} ms")


def _do(
    address: HostPort, command: str, user: str, password: str, timeout: float, form: str, args: dict[str, Any]
) -> None:
    answer = question(address, command, user, password, timeout, args, "understudy status")
    tell_done(answer, f"{command} refused by {address}", f"{address}", form)


def tell_done(answer: dict[str, Any], refused: str, subject: str, form: str) -> None:
    """Print the outcome of a command. Raises Failed if the node refused, with `refused` before the reason."""
    reason = str(answer.get("reason", ""))
    said = None if answer.get("ok") else refusal_of(answer)
    if form == "json":
        click.echo(json.dumps({"ok": True, "reason": reason} if said is None else said.answer()))
    if said is not None:
        raise Failed(said.about(refused))
    if form == "table":
        click.echo(f"{subject}: {reason}")


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer. Raises Failed if the node refused."""
    if not answer.get("ok"):
        raise Failed(refusal_of(answer))
    return answer


def status_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The status object of an answer. The seven keys that programs rely on come first."""
    found = checked(answer).get("status")
    if not isinstance(found, dict):
        raise Failed(codes.BAD_ANSWER.say(fault="it has no status"))
    return {**{key: found.get(key) for key in _STATUS_KEYS}, **found}


def show_status(found: dict[str, Any], address: HostPort) -> None:
    console = wide_console()
    colour = _COLOURS.get(str(found["status"]), "yellow")
    console.print(
        f"[bold]{cell(str(found['name']))}[/bold] at {address}: [bold {colour}]{found['status']}[/]"
        f"   epoch {found['epoch']}   link {found['link']}   promotable {_text(found['promotable'])}"
    )
    console.print(f"  {cell(str(found['reason']))}")
    if (ledger := found.get("ledger")) and (ledger["lost"] or ledger["failing"]):
        state = "cannot be written" if ledger["failing"] else "is written again"
        console.print(
            f"  [yellow]the ledger {state}: {ledger['lost']:,} records are missing from "
            f"{cell(ledger['path'])}[/]",
            soft_wrap=True,
        )
    members = found.get("members") or []
    for key in ("replications", "followers"):
        if found.get(key):
            console.print(rows(key, found[key]))
    if members:
        shown = [{key: row[key] for key in _MEMBER_COLUMNS if key in row} for row in members]
        console.print(rows("members", shown))


def wide_console() -> Console:
    """A console as wide as the terminal, without highlighting. If the output is not a terminal, lines are not
    wrapped, and tables have no borders (`rows`)."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=_PLAIN_WIDTH, highlight=False)


def rows(title: str, rows: list[dict[str, Any]], *, plain: bool | None = None) -> Table:
    """A table of dicts. Its columns are their keys, in order of appearance. `plain`: without borders, for
    programs; None: if standard output is not a terminal."""
    columns = [key for key in dict.fromkeys(key for row in rows for key in row) if key not in _HIDDEN_COLUMNS]
    if plain is None:
        plain = not Console().is_terminal
    table = Table(
        title=title or None, title_justify="left", box=None if plain else ROUNDED, pad_edge=not plain
    )
    if plain:
        table.padding = (0, 2, 0, 0)
    for column in columns:
        numbers = all(isinstance(row.get(column), int | float | None) for row in rows)
        side: JustifyMethod = "right" if numbers else "left"
        table.add_column(cell(column.replace("_", " ")), justify=side, overflow="fold")
    for row in rows:
        table.add_row(*(cell(_text(row.get(column), column)) for column in columns))
    return table


def _text(value: Any, key: str = "") -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() | float() if key in _TIMES:
            return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if value else "-"
        case int() if key in _NAMES:
            return str(value)
        case int():
            return f"{value:,}"
        case dict():
            return ", ".join(f"{name} {_text(item, str(name))}" for name, item in value.items()) or "-"
        case list() | tuple():
            return ", ".join(_text(item, key) for item in value)
        case _:
            return str(value)
