"""`understudy replicate`: a queue of another broker, or pair, is copied to this one and followed."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from understudy.cli.node import question, rows, status_of, tell_done
from understudy.cli.options import Wrong, broker_options
from understudy.shared.addresses import HostPort, parse_addresses

_WIDTH = 140


@click.command()
@broker_options
@click.argument("source", metavar="[SOURCE", required=False)
@click.argument("queue", metavar="QUEUE]", required=False)
@click.option("--name", metavar="LOCAL", help="Name of the mirror here; by default the source's name.")
@click.option(
    "--stop", "stopped", metavar="LOCAL", help="Stop following: the mirror becomes an ordinary queue."
)
@click.option("--list", "listed", is_flag=True, help="List the queue mirrors, and who follows this broker.")
def replicate(
    address: HostPort, user: str, password: str, timeout: float, form: str, source: str | None,
    queue: str | None, name: str | None, stopped: str | None, listed: bool,
) -> None:  # fmt: skip
    """Make a mirror of QUEUE of another broker or pair. SOURCE is its address, or the addresses of all of its
    nodes, HOST:PORT,HOST:PORT. Returns once the mirror exists; messages follow.
    """
    asked = sum((listed, stopped is not None, source is not None))
    if asked != 1 or (source is not None) != (queue is not None) or (name is not None and source is None):
        raise Wrong("say SOURCE and QUEUE, or --list, or --stop QUEUE (--help tells more)")
    login = (user, password, timeout)
    if listed:
        _list(status_of(question(address, "status", *login)), form)
        return
    command, args = "replicate-stop", dict[str, Any](name=stopped)
    if stopped is None:
        addresses = [str(found) for found in _source(str(source))]
        command, args = "replicate", {"source": addresses, "queue": queue, "name": name}
    answer = question(address, command, *login, args, "understudy replicate --list")
    refused = "" if answer.get("changed") else "replicate refused by "
    tell_done(answer, f"{refused}{address}", f"{address}", form)


def _source(text: str) -> tuple[HostPort, ...]:
    try:
        found = parse_addresses(text)
    except ValueError as error:
        raise Wrong(str(error)) from None
    if not found or not all(at.port for at in found):
        raise Wrong(f"{text!r} is not an address HOST:PORT, or several with commas between them")
    return tuple(dict.fromkeys(found))


def _list(found: dict[str, Any], form: str) -> None:
    """What this node follows, and who follows it."""
    lists = {key: found.get(key) or [] for key in ("replications", "followers")}
    if form == "json":
        click.echo(json.dumps(lists))
        return
    console = Console(width=_WIDTH)
    if not any(lists.values()):
        console.print("no queue follows another broker's, and none is followed")
    for key, lines in lists.items():
        if lines:
            console.print(rows(key, lines))
