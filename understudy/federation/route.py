"""Route: where a message would go, from node to node. Each node is asked what it would do with it. No
I/O: the owner of a `Route` carries its questions to the nodes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from understudy.federation.net import GIVES, TAKES, Net, NetLink

Step = dict[str, Any]
AGAIN = "it has come there by another way, too: its bindings get it twice"


@dataclass(slots=True, frozen=True)
class Visit:
    """The message is at a node: which exchange it is published to there, and by which nodes it came."""

    node: str
    vhost: str
    exchange: str
    by: tuple[str, ...] = ()


class Route:
    """Ask node `due.node` for `question()` while there is a `due`, and pass its answer to `take`."""

    def __init__(self, net: Net, start: Visit, key: str) -> None:
        self.steps: list[Step] = []
        self._net = net
        self._key = key
        self._due = deque([start])
        self._been: set[tuple[str, str, str]] = set()

    @property
    def due(self) -> Visit | None:
        return self._due[0] if self._due else None

    def question(self) -> dict[str, Any]:
        """Arguments of the management command `federation-trace`."""
        at = self._due[0]
        return {"vhost": at.vhost, "exchange": at.exchange, "key": self._key, "through": list(at.by)}

    def take(self, lines: list[Step]) -> None:
        """The steps that the due node has told."""
        at = self._due.popleft()
        self._been.add((at.node, at.vhost, at.exchange))
        for line in lines:
            step = {"hop": len(at.by), "node": self._net.label(at.node), **line, "note": ""}
            if line["to"] in ("node", "upstream"):
                step["note"] = self._follow(at, line)
            self.steps.append(step)

    def fail(self, why: str) -> None:
        """The due node cannot be asked."""
        at = self._due.popleft()
        self.steps.append(
            {
                "hop": len(at.by), "node": self._net.label(at.node), "from": at.exchange, "to": "?",
                "name": "", "binding": "", "path": "", "note": why,
            }
        )  # fmt: skip

    def _follow(self, at: Visit, line: Step) -> str:
        """Go on at the other end of that link. Returns what is to be said of it."""
        link = self._link(at, line)
        if link is None:
            return f"no link to {line['name']} is known here"
        if line["to"] == "node":
            there = Visit(link.agent, link.vhost, link.exchange, (*at.by, self._net.nodes[at.node].name))
        else:
            mine = (self._net.nodes[at.node].name,) if link.copy else ()
            there = Visit(link.upstream, link.upstream_vhost, link.exchange, (*at.by, *mine))
        if self._net.nodes[there.node].name in there.by:
            return "it has been there, and is left out"
        if (there.node, there.vhost, there.exchange) in self._been or there in self._due:
            return AGAIN if link.copy else ""
        self._due.append(there)
        waits = f", {link.waiting:,} waiting" if link.waiting else ""
        return "" if link.state == "running" and not waits else f"{link.state}{waits}"

    def _link(self, at: Visit, line: Step) -> NetLink | None:
        """The link of a line that a node has told."""
        for link in self._net.links:
            if link.exchange != line["from"]:
                continue
            gives = (link.agent, link.vhost, link.entry, link.way)
            takes = (link.upstream, link.upstream_vhost, self._net.nodes[link.agent].name, link.way)
            if gives == (at.node, at.vhost, line["name"], GIVES) and line["to"] == "upstream":
                return link
            if takes == (at.node, at.vhost, line["name"], TAKES) and line["to"] == "node":
                return link
        return None
