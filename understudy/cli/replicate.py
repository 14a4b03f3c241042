"""`understudy replicate`: mirrors a queue of another broker or pair."""

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
@click.option("--name", metavar="LOCAL", help="Name of the mirror. Default: the name of the source queue.")
@click.option(
    "--peering",
    metavar="NAME",
    help="Log in at SOURCE as `peerings.NAME` of this broker's configuration. Default: as `ha.username`.",
)
@click.option("--stop", "stopped", metavar="LOCAL", help="Stop mirroring: LOCAL becomes an ordinary queue.")
@click.option(
    "--list",
    "listed",
    is_flag=True,
    help="List the queue mirrors, and the mirrors elsewhere that follow this broker.",
)
def replicate(
    address: HostPort, user: str, password: str, timeout: float, form: str, source: str | None,
    queue: str | None, name: str | None, peering: str | None, stopped: str | None, listed: bool,
) -> None:  # fmt: skip
    """Mirror QUEUE of another broker or pair. SOURCE is the address of that broker, or the addresses of all
    nodes of that pair: HOST:PORT,HOST:PORT. Returns once the mirror exists; messages follow."""
    asked = sum((listed, stopped is not None, source is not None))
    for_source = (queue, name, peering) if source is None else (None,)
    if asked != 1 or (source is not None and queue is None) or any(text is not None for text in for_source):
        raise Wrong("give SOURCE and QUEUE, or --list, or --stop LOCAL (see --help)")
    login = (user, password, timeout)
    if listed:
        _list(status_of(question(address, "status", *login)), form)
        return
    command, args = "replicate-stop", dict[str, Any](name=stopped)
    if stopped is None:
        addresses = [str(found) for found in _source(str(source))]
        command, args = "replicate", {"source": addresses, "queue": queue, "name": name, "peering": peering}
    answer = question(address, command, *login, args, "understudy replicate --list")
    refused = "" if answer.get("changed") else "replicate refused by "
    tell_done(answer, f"{refused}{address}", f"{address}", form)


def _source(text: str) -> tuple[HostPort, ...]:
    try:
        found = parse_addresses(text)
    except ValueError as error:
        raise Wrong(str(error)) from None
    if not found or not all(at.port for at in found):
        raise Wrong(f"{text!r} is not HOST:PORT, or a list of HOST:PORT separated by commas")
    return tuple(dict.fromkeys(found))


def _list(found: dict[str, Any], form: str) -> None:
    """Print the queue mirrors of this node, and the mirrors elsewhere that follow its queues."""
    lists = {key: found.get(key) or [] for key in ("replications", "followers")}
    if form == "json":
        click.echo(json.dumps(lists))
        return
    console = Console(width=_WIDTH)
    if not any(lists.values()):
        console.print("no queue mirrors here, and none elsewhere of a queue of this broker")
    for key, lines in lists.items():
        if lines:
            console.print(rows(key, lines))
