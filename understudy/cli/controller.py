"""`understudy controller`: how a node that promotes itself stands, and an operator's word to it."""

from __future__ import annotations

import json
from typing import Any

import click

from understudy.cli.node import primary_of, question, rows, status_of, tell_done, wide_console
from understudy.cli.options import broker_options, cell
from understudy.management import SERVING
from understudy.shared.addresses import HostPort


@click.group()
def controller() -> None:
    """The controller of a node that promotes itself (ha.authority pair and etcd).

    It decides when the node takes over. Nothing that was confirmed is lost by these commands.
    """


@controller.command()
@broker_options
def status(address: HostPort, user: str, password: str, timeout: float, form: str) -> None:
    """Show what the node sees, and why it waits."""
    found = _controller(address, user, password, timeout)[1]
    if form == "json":
        click.echo(json.dumps(found))
        return
    console = wide_console()
    running = "" if found["running"] else ", stopped"
    console.print(f"[bold]{found['state']}[/]{running}   wanted {found['wanted'] or '-'}", soft_wrap=True)
    if found["reason"]:
        console.print(f"  {cell(str(found['reason']))}", soft_wrap=True)
    peer = found["peer"] or {}
    here = {"node": "this", "role": found["role"], "state": found["state"], "clients": found["clients"]}
    there = {"node": peer.get("name"), **{key: peer.get(key) for key in ("role", "state", "clients")}}
    console.print(rows("", [here | {"votes": found["votes"]}, *([there] if peer else [])]))


@controller.command()
@broker_options
def start(address: HostPort, user: str, password: str, timeout: float, form: str) -> None:
    """Undo `stop`."""
    _do(address, "start", user, password, timeout, form)


@controller.command()
@broker_options
def stop(address: HostPort, user: str, password: str, timeout: float, form: str) -> None:
    """Keep the node from promoting itself.

    Until `start`, or until its process ends. A primary serves on.
    """
    _do(address, "stop", user, password, timeout, form)


@controller.command()
@broker_options
def active(address: HostPort, user: str, password: str, timeout: float, form: str) -> None:
    """Make the node the primary.

    By a switchover if the other one serves, else by a promotion.
    """
    found = _controller(address, user, password, timeout)[0]
    primary = primary_of(found)
    if found["status"] in SERVING or primary is None:
        _do(address, "active", user, password, timeout, form)
        return
    args = {"to": found["name"]}
    answer = question(primary, "switchover", user, password, timeout, args, "understudy status")
    tell_done(answer, f"switchover refused by {primary}", f"{primary}", form)


@controller.command()
@broker_options
def passive(address: HostPort, user: str, password: str, timeout: float, form: str) -> None:
    """Have the other node serve.

    A primary switches over. A backup that follows one stays as it is. A node that follows nobody does not
    take over until it has followed a primary, or only it can serve.
    """
    _do(address, "passive", user, password, timeout, form)


def _controller(
    address: HostPort, user: str, password: str, timeout: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The node's status, and the state of its controller. Raises Failed if it has none."""
    found = status_of(question(address, "controller", user, password, timeout, {"do": "status"}))
    return found, found["controller"]


def _do(address: HostPort, do: str, user: str, password: str, timeout: float, form: str) -> None:
    answer = question(
        address, "controller", user, password, timeout, {"do": do}, "understudy controller status"
    )
    tell_done(answer, f"controller {do} refused by {address}", f"{address}", form)
