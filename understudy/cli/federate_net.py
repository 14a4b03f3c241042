"""`understudy federate map` and `attach`, and the hops of `trace`: commands that look at the whole net, or at
all exchanges of a node."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from broker.model.vhost.federation_entries import AGENT, agent_name
from understudy import codes
from understudy.cli.federate_options import agent_options, agent_settings
from understudy.cli.node import question, rows, wide_console
from understudy.cli.options import (
    Failed,
    Wrong,
    address_values,
    broker_options,
    cell,
    format_option,
    given_tls,
    login_options,
)
from understudy.cli.primary import PrimaryBroker, vhost_option
from understudy.client_tls import parse_broker
from understudy.definitions.export import COMMAND, Listing, ListingRefused
from understudy.federation.net import Net
from understudy.federation.picture import svg
from understudy.federation.route import Route, Visit
from understudy.federation.survey import Survey
from understudy.management import SERVING, Unreachable, ask, refusal_of
from understudy.shared.addresses import HostPort, TlsHostPort
from understudy.shared.file_errors import of_file

TRACE = "federation-trace"
BUILT_IN = "amq."
AT_ONCE = 100
"""Agents that one question adds."""


# -- map


@click.command("map")
@click.option(
    "-b",
    "--broker",
    "addresses",
    metavar="[amqps://]HOST[:PORT]",
    callback=address_values,
    multiple=True,
    default=("127.0.0.1:5672",),
    show_default=True,
    help="A node to begin with. Give several for a net in parts.",
)
@login_options
@format_option
@click.option(
    "--downstream",
    is_flag=True,
    help="Ask nodes downstream, too, where they say that they are. They get your user and password.",
)
@click.option(
    "--svg", "picture", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Draw the net there, too.",
)  # fmt: skip
def map_net(
    addresses: list[HostPort],
    user: str,
    password: str,
    timeout: float,
    form: str,
    downstream: bool,
    picture: Path | None,
) -> None:
    """Show the whole net: its nodes, the links between them, and what waits in these.

    Begins with the node given, and asks its upstreams, theirs, and so on, with the same user and password;
    over TLS, if the first address is amqps://. A node that is not asked, or cannot be, is shown with the
    reason.
    """
    survey = surveyed(addresses, user, password, timeout, downstream=downstream)
    net = survey.net()
    if picture is not None:
        try:
            picture.write_text(svg(net))
        except OSError as error:
            raise Failed(codes.FILE_FAILED.say(fault=of_file(error))) from None
    if form == "json":
        click.echo(json.dumps({"nodes": net.node_lines(), "links": net.link_lines()}))
        return
    _show(net)
    if picture is not None:
        click.echo(f"picture: {picture}")


def _show(net: Net) -> None:
    console = wide_console()
    nodes = [
        {
            **line,
            "brokers": [f"{at['name']} {at['address']}: {at['status']}".strip() for at in line["brokers"]],
        }
        for line in net.node_lines()
    ]
    console.print(rows("nodes", nodes))
    if net.links:
        console.print(rows("links", net.link_lines()))
    else:
        click.echo("no links")


def surveyed(
    addresses: list[HostPort], user: str, password: str, timeout: float, *, downstream: bool = False
) -> Survey:
    """What all brokers of the net say. Raises Failed if the first ones say nothing at all."""
    tls = given_tls(click.get_current_context())
    scheme = "amqps://" if isinstance(addresses[0], TlsHostPort) else ""

    def queried(address: str) -> dict[str, Any]:
        where = parse_broker(address if "://" in address else f"{scheme}{address}", tls)

        def asked(begin: int) -> dict[str, Any]:
            answer = ask(where, "query", {"from": begin}, user=user, password=password, timeout=timeout)
            if not answer.get("ok"):
                raise Unreachable(refusal_of(answer))
            return dict(answer["status"])

        found = asked(0)
        more = found["more"] if found["status"] in SERVING else None
        while more is not None:
            piece = asked(more)
            found["queue_list"] += piece["queue_list"]
            more = piece["more"]
        return found

    starts = [str(address) for address in addresses]
    with _progress() as tell:
        survey = Survey(queried, tell, downstream)
        survey.run(starts)
    if not survey.answers:
        raise Failed(survey.faults[starts[0]])
    return survey


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """How far the survey is, on a terminal only."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda asked, known: None
        return
    with console.status("asking") as status:
        yield lambda asked, known: status.update(f"asked {asked:,} of {known:,} brokers")


# -- trace


def traced(
    node: PrimaryBroker, login: tuple[str, str, float], at: Visit, key: str, *, downstream: bool
) -> list[dict[str, Any]]:
    """The steps of a message from node to node. `at.node` is "": it is the one that was given."""
    node.told(TRACE, {"vhost": at.vhost, "exchange": at.exchange, "key": key})  # else it says why not
    net = surveyed([node.address], *login, downstream=downstream).net()
    start = next((key for key, found in net.nodes.items() if found.asked == str(node.address)), None)
    if start is None:
        raise Failed(codes.NODE_REFUSES.say(reason=f"{node.address} does not serve any more"))
    route = Route(net, Visit(start, at.vhost, at.exchange), key)
    while (due := route.due) is not None:
        there = net.nodes[due.node]
        if not there.asked:
            route.fail(there.reason)
            continue
        where = parse_broker(there.asked, given_tls(click.get_current_context()))
        answer = question(where, TRACE, *login, route.question())
        if answer.get("ok"):
            route.take(answer["steps"])
        elif len(due.by):
            route.fail(refusal_of(answer).sentence)
        else:
            raise Failed(refusal_of(answer).about(there.asked))
    return route.steps


# -- attach


@click.command()
@click.argument("pattern")
@agent_options
@vhost_option
@broker_options
def attach(pattern: str, vhost: str, upstream_name: str, form: str, **options: Any) -> None:
    """Add an agent for an upstream to each exchange whose name matches PATTERN, as a policy would match it.

    PATTERN is a regular expression. Exchanges amq.* and internal ones are left out. An exchange that has an
    agent for this upstream keeps it as it is. Exchanges that are declared later get none: give the command
    again, or set a policy with federation-upstream instead.
    """
    try:
        matches = re.compile(pattern)
    except re.error as error:
        raise Wrong(f"{pattern!r} is no regular expression: {error}") from None
    settings, broker = agent_settings(options)
    node = PrimaryBroker(**broker, form=form)
    has = {
        (line["vhost"], line["exchange"], line["upstream"]) for line in node.listing("agents", "federation")
    }
    found = sorted(
        line["name"] for line in _exchanges(node)
        if line["vhost"] == vhost and not line["internal"] and not line["name"].startswith(BUILT_IN)
        and matches.search(line["name"])
    )  # fmt: skip
    if not found:
        node.nothing(f"exchange in {vhost!r} that matches {pattern!r}")
    new = [name for name in found if (vhost, name, upstream_name) not in has]
    changes = [
        {
            "action": "put", "kind": AGENT, "vhost": vhost, "name": agent_name(name, upstream_name),
            "value": {"exchange": name, "upstream": upstream_name, **settings},
        }
        for name in new
    ]  # fmt: skip
    for at in range(0, len(changes), AT_ONCE):
        node.change_all(changes[at : at + AT_ONCE])
    if form == "json":
        click.echo(
            json.dumps({"ok": True, "attached": new, "kept": [name for name in found if name not in new]})
        )
        return
    for name in found:
        how = "has an agent" if name in new else "has an agent already"
        click.echo(f"{node.address}: exchange {cell(name)} {how} for {cell(upstream_name)}")


def _exchanges(node: PrimaryBroker) -> list[dict[str, Any]]:
    listing = Listing()
    try:
        while not listing.take(node.asked(COMMAND, listing.question())):
            pass
    except ListingRefused as error:
        raise Failed(error.said) from None
    return listing.found["exchanges"]
