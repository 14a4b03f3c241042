"""`understudy federate`: exchanges here take messages from the exchanges of the same names at other brokers.

Upstreams and agents are kept by the pair itself, on every node, as policies are. Logins are in the
configuration of each node (`federation.logins`), so no password is among them.
"""

from __future__ import annotations

import json
from typing import Any

import click

from broker.model.vhost.federation_entries import AGENT, PROTOCOLS, UPSTREAM, agent_name
from understudy.cli.federate_net import attach, map_net, traced
from understudy.cli.federate_options import agent_options, agent_settings
from understudy.cli.node import rows, wide_console
from understudy.cli.options import Wrong, broker_options
from understudy.cli.primary import PrimaryBroker, vhost_option
from understudy.definitions.parse import VHOST
from understudy.federation.route import Visit
from understudy.shared.addresses import parse_addresses

FEDERATION = "federation"
_COLUMNS = (
    "exchange",
    "vhost",
    "upstream",
    "consume_mode",
    "forward_mode",
    "state",
    "interest",
    "taken",
    "given",
    "waiting",
    "promise",
    "reason",
)


@click.group()
def federate() -> None:
    """Federate exchanges: take the messages that are published at another broker or pair.

    An upstream is that broker. An agent belongs to one exchange, and takes what this exchange is bound for
    from the exchange of the same name there. Only this side is configured.
    """


federate.add_command(map_net)
federate.add_command(attach)


@federate.command()
@click.argument("name")
@click.option(
    "--addresses", required=True, metavar="HOST:PORT[,HOST:PORT]", help="The addresses of all its nodes."
)
@click.option(
    "--login", required=True, metavar="LOGIN", help="One of federation.logins of the configuration."
)
@click.option("--upstream-vhost", default=VHOST, show_default=True, help="The virtual host there.")
@click.option(
    "--routes/--no-routes", default=True, show_default=True,
    help="Messages for queues of other nodes (QUEUE@NODE) go there and come from there.",
)  # fmt: skip
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    default=PROTOCOLS[0],
    show_default=True,
    help="amqp: any broker of AMQP 0-9-1, such as RabbitMQ. Messages come at least once, and no routes.",
)
@vhost_option
@broker_options
def upstream(
    name: str, addresses: str, login: str, upstream_vhost: str, routes: bool, protocol: str, vhost: str,
    **broker: Any,
) -> None:  # fmt: skip
    """Add upstream NAME, or change it."""
    try:
        found = parse_addresses(addresses)
    except ValueError as error:
        raise Wrong(str(error)) from None
    if not found or not all(at.port for at in found):
        raise Wrong(f"{addresses!r} is not HOST:PORT, or a list of HOST:PORT separated by commas")
    node = PrimaryBroker(**broker)
    value: dict[str, Any] = {"addresses": [str(at) for at in found], "login": login, "vhost": upstream_vhost}
    if not routes:
        value["routes"] = False
    if protocol != PROTOCOLS[0]:
        value["protocol"] = protocol
    node.change("put", UPSTREAM, vhost, name, value, f"upstream {name!r} exists in {vhost!r}")


@federate.command()
@click.option("--exchange", required=True, help="The exchange, here and there.")
@agent_options
@vhost_option
@broker_options
def agent(exchange: str, upstream_name: str, vhost: str, **options: Any) -> None:
    """Add the agent of EXCHANGE for an upstream, or change it."""
    settings, broker = agent_settings(options)
    value = {"exchange": exchange, "upstream": upstream_name, **settings}
    node = PrimaryBroker(**broker)
    name = agent_name(exchange, upstream_name)
    node.change("put", AGENT, vhost, name, value, f"exchange {exchange!r} has an agent for {upstream_name!r}")


@federate.command("list")
@click.option("--upstreams", is_flag=True, help="The upstreams.")
@click.option("--links", is_flag=True, help="The brokers that take from exchanges of this one.")
@click.option("--routes", is_flag=True, help="The ways to queues of other nodes (QUEUE@NODE).")
@broker_options
def list_agents(upstreams: bool, links: bool, routes: bool, **broker: Any) -> None:
    """Show the agents and their states."""
    if upstreams + links + routes > 1:
        raise Wrong("give --upstreams, --links or --routes, only one of them")
    node = PrimaryBroker(**broker)
    kind = "upstreams" if upstreams else "links" if links else "routes" if routes else "agents"
    found = node.listing(kind, FEDERATION)
    if broker["form"] == "json":
        click.echo(json.dumps(found))
    elif found and kind == "agents":
        shown = [{key: line.get(key) for key in _COLUMNS} for line in found]
        wide_console().print(rows(kind, shown))
    else:
        node.show(kind, found)


@federate.command()
@click.argument("exchange")
@click.argument("upstream_name", metavar="UPSTREAM")
@vhost_option
@broker_options
def pause(exchange: str, upstream_name: str, vhost: str, **broker: Any) -> None:
    """Stop the agent of EXCHANGE for UPSTREAM. What it would take waits there."""
    _set_paused(exchange, upstream_name, vhost, broker, paused=True)


@federate.command()
@click.argument("exchange")
@click.argument("upstream_name", metavar="UPSTREAM")
@vhost_option
@broker_options
def resume(exchange: str, upstream_name: str, vhost: str, **broker: Any) -> None:
    """Start the agent of EXCHANGE for UPSTREAM again."""
    _set_paused(exchange, upstream_name, vhost, broker, paused=False)


def _set_paused(exchange: str, upstream: str, vhost: str, broker: dict[str, Any], *, paused: bool) -> None:
    node = PrimaryBroker(**broker)
    name = agent_name(exchange, upstream)
    entries = [line for line in node.listing("parameters") if line["component"] == AGENT]
    found = next((line for line in entries if (line["vhost"], line["name"]) == (vhost, name)), None)
    if found is None:
        node.nothing(f"agent of exchange {exchange!r} for {upstream!r} in {vhost!r}")
    state = "is paused" if paused else "is not paused any more"
    done = f"the agent of exchange {exchange!r} for {upstream!r} {state}"
    node.change("put", AGENT, vhost, name, {**found["value"], "paused": paused}, done)


@federate.command()
@click.argument("exchange")
@click.argument("key")
@click.option("--net", is_flag=True, help="Go on from node to node, as far as these can be asked.")
@click.option(
    "--downstream",
    is_flag=True,
    help="The same, also at nodes downstream, where they say that they are. They get your user and password.",
)
@vhost_option
@broker_options
def trace(exchange: str, key: str, net: bool, downstream: bool, vhost: str, **broker: Any) -> None:
    """Show where a message to EXCHANGE with the routing key KEY would go from here: to which queues, to which
    nodes downstream and by which of their bindings, to which upstreams.

    With --net, `hop` says how many nodes it has come through. The other nodes are asked with the same user
    and password.
    """
    node = PrimaryBroker(**broker)
    if net or downstream:
        login = (broker["user"], broker["password"], broker["timeout"])
        node.show("steps", traced(node, login, Visit("", vhost, exchange), key, downstream=downstream))
        return
    answer = node.told(f"{FEDERATION}-trace", {"vhost": vhost, "exchange": exchange, "key": key})
    node.show("steps", answer["steps"])


@federate.group()
def remove() -> None:
    """Remove an agent, or an upstream with its agents."""


@remove.command("agent")
@click.argument("exchange")
@click.argument("upstream_name", metavar="UPSTREAM")
@vhost_option
@broker_options
def remove_agent(exchange: str, upstream_name: str, vhost: str, **broker: Any) -> None:
    """Remove the agent of EXCHANGE for UPSTREAM, and what waits for it there."""
    node = PrimaryBroker(**broker)
    what = f"agent of exchange {exchange!r} for {upstream_name!r}"
    if not node.change(
        "delete", AGENT, vhost, agent_name(exchange, upstream_name), {}, f"the {what} is removed"
    ):
        node.nothing(f"{what} in {vhost!r}")


@remove.command("upstream")
@click.argument("name")
@vhost_option
@broker_options
def remove_upstream(name: str, vhost: str, **broker: Any) -> None:
    """Remove upstream NAME with its agents, and what waits for them there."""
    node = PrimaryBroker(**broker)
    if not node.change("delete", UPSTREAM, vhost, name, {}, f"upstream {name!r} is removed"):
        node.nothing(f"upstream {name!r} in {vhost!r}")
