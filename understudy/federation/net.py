"""Net: federated nodes and the links between them, as a survey found them. Values only.

A node is one broker or a pair. It is known by the cluster that has answered; one that nobody could ask is
known by its addresses, or by its name, as the others say it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

TAKES, GIVES = "takes", "gives"
"""What the agent of a link does. It is downstream, and has opened the connection."""
AWAY = "not connected"
"""State of a link of which only the upstream end could be asked, and which does not run."""


@dataclass(slots=True, frozen=True)
class NetBroker:
    """`status`: as the node that was asked has it."""

    name: str
    address: str
    status: str


@dataclass(slots=True)
class NetNode:
    """`name`: as the net calls it. `serves`: the broker that does, or "". `reason`: why nothing more is known
    of it; or ""."""

    key: str
    name: str
    brokers: list[NetBroker] = field(default_factory=list)
    serves: str = ""
    asked: str = ""
    """The address at which it answers questions; "" if it does not."""
    reason: str = ""

    @property
    def kind(self) -> str:
        if not self.brokers:
            return "?"
        return "single" if len(self.brokers) == 1 else "pair" if len(self.brokers) == 2 else "cluster"


@dataclass(slots=True)
class NetLink:
    """Messages of an exchange go from one node to another. `agent`, `upstream`: keys of the nodes at its
    ends; `entry`: what the agent's node calls its upstream. `waiting`: messages that are not taken yet, None
    where nobody could be asked. `vhost`: at the agent; `upstream_vhost`: at the other end."""

    exchange: str
    way: str
    agent: str
    upstream: str
    entry: str
    vhost: str
    upstream_vhost: str
    state: str
    waiting: int | None = None
    interest: int = 0
    copy: int = 1
    mode: str = ""
    """`all` or `unmatched`."""
    reason: str = ""

    @property
    def source(self) -> str:
        return self.upstream if self.way == TAKES else self.agent

    @property
    def target(self) -> str:
        return self.agent if self.way == TAKES else self.upstream


@dataclass(slots=True)
class Net:
    nodes: dict[str, NetNode] = field(default_factory=dict)
    """By key, in the order in which they were found."""
    links: list[NetLink] = field(default_factory=list)

    def label(self, key: str) -> str:
        """The name of a node; with its address, if another one has that name."""
        node = self.nodes[key]
        if sum(each.name == node.name for each in self.nodes.values()) == 1:
            return node.name
        return f"{node.name} at {','.join(broker.address for broker in node.brokers) or '?'}"

    def link_lines(self) -> list[dict[str, Any]]:
        return [
            {
                "exchange": link.exchange, "vhost": link.vhost, "from": self.label(link.source),
                "to": self.label(link.target), "agent": self.label(link.agent), "mode": link.mode,
                "state": link.state, "waiting": link.waiting, "interest": link.interest,
                "reason": link.reason,
            }
            for link in self.links
        ]  # fmt: skip

    def node_lines(self) -> list[dict[str, Any]]:
        return [
            {
                "node": self.label(key), "kind": node.kind, "serves": node.serves,
                "brokers": [asdict(broker) for broker in node.brokers], "reason": node.reason,
            }
            for key, node in self.nodes.items()
        ]  # fmt: skip

    def levels(self) -> list[list[str]]:
        """Nodes by their distance from those that have no upstream. The first one of a ring stands for
        these."""
        below: dict[str, list[str]] = {key: [] for key in self.nodes}
        for link in self.links:
            below[link.upstream].append(link.agent)
        has_upstream = {link.agent for link in self.links if link.agent != link.upstream}
        placed: dict[str, int] = {}
        for root in sorted(self.nodes, key=lambda key: key in has_upstream):
            if root in has_upstream and root in placed:
                continue
            placed[root], due = 0, [root]
            while due:
                key = due.pop(0)
                new = [each for each in below[key] if each not in placed]
                placed |= dict.fromkeys(new, placed[key] + 1)
                due += new
        found: list[list[str]] = [[] for _ in range(max(placed.values(), default=-1) + 1)]
        for key in placed:
            found[placed[key]].append(key)
        return found
