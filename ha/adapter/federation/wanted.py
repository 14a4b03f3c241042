"""Which agents there are to be: of the directory, of policies, and for routes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from broker.model.patterns import matches
from broker.model.routing.exchange import INTERNAL
from broker.model.routing.node_routes import NODES
from broker.model.vhost.federation_entries import FederationAgent, agent_name, by_policy, routes_by
from broker.model.vhost.policy_rules import EVERY_UPSTREAM, UPSTREAM, UPSTREAM_PATTERN, UPSTREAM_SET

if TYPE_CHECKING:
    from broker.model.routing.exchange import Exchange
    from broker.model.vhost.vhosts import VirtualHosts

Key = tuple[str, str]
"""Virtual host and name of an entry."""


def all_agents(vhosts: VirtualHosts) -> dict[Key, FederationAgent]:
    """An entry of the directory comes before what a policy says."""
    directory = vhosts.directory
    routes = {
        (vhost, agent_name(NODES, name)): routes_by(name)
        for (vhost, name), upstream in directory.upstreams.items() if upstream.routes
    }  # fmt: skip
    return {**dict(_of_policies(vhosts)), **directory.agents, **routes}


def _of_policies(vhosts: VirtualHosts) -> Iterator[tuple[Key, FederationAgent]]:
    for vhost in vhosts:
        known = [name for there, name in vhosts.directory.upstreams if there == vhost.name]
        for exchange in vhost.exchanges.values() if known else ():
            for upstream in wanted_of(exchange, known):
                yield (vhost.name, agent_name(exchange.name, upstream)), by_policy(exchange.name, upstream)


def is_wanted(vhosts: VirtualHosts, vhost: str, exchange: str) -> bool:
    """Does a policy make an agent for that exchange?"""
    there = vhosts.get(vhost)
    found = there.exchanges.get(exchange) if there is not None else None
    known = [name for at, name in vhosts.directory.upstreams if at == vhost]
    return found is not None and bool(wanted_of(found, known))


def wanted_of(exchange: Exchange, known: Iterable[str]) -> list[str]:
    """The upstreams from which its policy has the exchange take; `known`: those that there are."""
    policy = exchange.ruled_by
    if policy is None or not exchange.name or exchange.internal or exchange.name in INTERNAL:
        return []
    return [name for name in known if _names(policy.definition, name)]


def _names(definition: Mapping[str, object], upstream: str) -> bool:
    pattern = definition.get(UPSTREAM_PATTERN)
    return (
        definition.get(UPSTREAM) == upstream
        or definition.get(UPSTREAM_SET) == EVERY_UPSTREAM
        or (isinstance(pattern, str) and matches(pattern, upstream))
    )
