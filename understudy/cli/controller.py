"""`understudy controller`: how a node that promotes itself stands, and an operator's word to it."""

from __future__ import annotations

import json
from typing import Any

import click

from understudy.cli.node import primary_of, question, rows, status_of, tell_done, wide_console
from understudy.cli.options import broker_options, cell
from understudy.management import SERVING
from understudy.shared.addresses import HostPort

_COLUMNS = ("role", "state", "wanted", "clients", "votes", "reason")


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
    this = _line("this", found) | {"reason": "see above" if found["reason"] else ""}
    console.print(rows("", [this, *_others(found)]))


def _others(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The other nodes: as they say themselves, or as this node sees one that does not answer."""
    others: dict[str, dict[str, Any]] = found.get("others") or {}
    lines = [_line(name, other) for name, other in sorted(others.items())]
    peer = found["peer"]
    if peer and peer["name"] not in others:
        lines.append(_line(peer["name"], peer) | {"reason": "does not answer; as this node sees it"})
    return lines


def _line(name: str, of: dict[str, Any]) -> dict[str, Any]:
    return {"node": name, **{key: of.get(key) for key in _COLUMNS}}


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
