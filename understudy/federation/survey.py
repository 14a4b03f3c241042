"""Survey: asks every broker of the net that can be reached, and puts together what they say.

Owner: one command. It goes in rounds: all addresses that became known in one are asked in the next, several
at once. A backup says where its primary is; a primary, where its upstreams and those downstream are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from broker.model.queue.link import link_name, push_name
from broker.model.routing.node_routes import NODES
from understudy.federation.net import AWAY, GIVES, TAKES, Net, NetBroker, NetLink, NetNode
from understudy.management import SERVING, Unreachable
from understudy.shared.codes import Coded

AT_ONCE = 16
PLAIN = "amqp"
"""The protocol of an upstream that is another broker, and answers no questions."""
OTHER = "not asked: it speaks plain AMQP 0-9-1"
UNKNOWN = "none of its addresses is known here: give one with -b"
UNASKED = (
    "not asked: it is downstream, and says itself where it is; give --downstream, or its address with -b"
)
Answer = dict[str, Any]
Ask = Callable[[str], Answer]
"""The status of the broker at an address, with its queues in `queue_list`. Raises Unreachable."""
Tell = Callable[[int, int], None]
"""How many brokers were asked, and how many are known."""


@dataclass(slots=True)
class Survey:
    """`answers`, `faults`: of each address that was asked, in the order in which they became known.
    `downstream`: ask nodes downstream where they say that they are. They get the login of who asks, so that
    is for those who trust all of them."""

    ask: Ask
    tell: Tell = lambda asked, known: None
    downstream: bool = False
    answers: dict[str, Answer] = field(default_factory=dict)
    faults: dict[str, Coded] = field(default_factory=dict)

    def run(self, starts: Iterable[str]) -> None:
        """Ask, beginning at these addresses, until nobody knows of another."""
        due = list(dict.fromkeys(starts))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while due:
                for rest, (address, found) in enumerate(zip(due, pool.map(self._asked, due), strict=True), 1):
                    if isinstance(found, Coded):
                        self.faults[address] = found
                    else:
                        self.answers[address] = found
                    asked = len(self.answers) + len(self.faults)
                    self.tell(asked, asked + len(due) - rest)
                mentioned = dict.fromkeys(
                    at for found in self.answers.values() for at in self._mentioned(found)
                )
                due = [at for at in mentioned if at not in self.answers and at not in self.faults]

    def _asked(self, address: str) -> Answer | Coded:
        try:
            return self.ask(address)
        except Unreachable as error:
            return error.said

    def _mentioned(self, found: Answer) -> Iterator[str]:
        """Addresses of other brokers: those of its own node if it does not serve, else those of the net."""
        if found["status"] not in SERVING:
            yield from (member["address"] for member in found.get("members", []) if member.get("address"))
            return
        there = found["federation"]
        for upstream in there["upstreams"]:
            if upstream.get("protocol") != PLAIN:
                yield from upstream["addresses"]
        for link in there["links"] if self.downstream else ():
            yield from link.get("addresses", [])

    def net(self) -> Net:
        """What was found."""
        return _Drawn(self).net


class _Drawn:
    """The net, from the answers of a survey."""

    def __init__(self, survey: Survey) -> None:
        self.net = Net()
        self._survey = survey
        self._at: dict[str, str] = {}
        """The node at each address."""
        self._heads: dict[str, Answer] = {}
        """The answer of the broker that serves, by node."""
        self._named: dict[str, str] = {}
        """The first node of each name."""
        for address, found in survey.answers.items():
            self._node(address, found)
        for key, node in self.net.nodes.items():
            self._named.setdefault(node.name, key)
        for key, found in self._heads.items():
            for agent in found["federation"]["agents"]:
                self._agent(key, found, agent)
        for key, found in self._heads.items():
            self._links_in(key, found)

    # -- nodes

    def _node(self, address: str, found: Answer) -> None:
        key = found["cluster_id"] or found["node_id"]
        node = self.net.nodes.setdefault(key, NetNode(key, found["federation"]["node"] or found["name"]))
        self._at[address] = key
        serves = found["status"] in SERVING
        if not serves and (key in self._heads or node.brokers):
            return
        if serves:
            self._heads[key] = found
            node.serves, node.asked = found["name"], address
        node.reason = "" if serves else f"nobody serves: {found['reason']}"
        node.brokers = [
            NetBroker(member["name"], member.get("address") or address, member["status"])
            for member in found.get("members", [])
        ] or [NetBroker(found["name"], address, found["status"])]

    def _missing(self, name: str, addresses: list[str]) -> str:
        """A node that nobody could ask."""
        found = {self._at[address] for address in addresses if address in self._at}
        if found:
            return found.pop()
        if not addresses and name in self._named:
            return self._named[name]
        key = " ".join(sorted(addresses)) or f"node {name}"
        if key not in self.net.nodes:
            faults = [self._survey.faults[at].sentence for at in addresses if at in self._survey.faults]
            reason = "; ".join(faults) or (OTHER if addresses else UNKNOWN)
            brokers = [NetBroker("", address, "?") for address in addresses]
            self.net.nodes[key] = NetNode(key, name, brokers, reason=reason)
            self._named.setdefault(name, key)
        return key

    # -- links

    def _agent(self, key: str, found: Answer, agent: Answer) -> None:
        at = (agent["vhost"], agent["upstream"])
        upstreams = found["federation"]["upstreams"]
        entry = next((each for each in upstreams if (each["vhost"], each["name"]) == at), None)
        addresses = entry["addresses"] if entry is not None else []
        vhost = entry["upstream_vhost"] if entry is not None else agent["vhost"]
        up = self._upstream(key, found, at, vhost) or self._missing(agent["upstream"], addresses)
        ways = [(TAKES, agent["consume_mode"]), (GIVES, agent["forward_mode"])]
        for way, mode in ways:
            if mode == "none" and (way == GIVES or agent["forward_mode"] != "none"):
                continue
            link = NetLink(
                agent["exchange"], way, key, up, agent["upstream"], agent["vhost"], vhost, agent["state"],
                interest=agent["interest"] if way == TAKES else 0, copy=agent["copy"], mode=mode,
                reason=agent["reason"],
            )  # fmt: skip
            link.waiting = self._waiting(link)
            self.net.links.append(link)

    def _upstream(self, key: str, found: Answer, at: tuple[str, str], vhost: str) -> str:
        """The node of an upstream whose addresses lead nowhere from here, by the link queue that it has for
        this one; "" if that does not tell."""
        upstreams = {(each["vhost"], each["name"]): each for each in found["federation"]["upstreams"]}
        if at not in upstreams or any(address in self._at for address in upstreams[at]["addresses"]):
            return ""
        name = self.net.nodes[key].name
        agents = (each for each in found["federation"]["agents"] if (each["vhost"], each["upstream"]) == at)
        queues = {(vhost, link_name(agent["exchange"], name)) for agent in agents}
        holders = {
            other
            for other, head in self._heads.items()
            if other != key and any((q["vhost"], q["name"]) in queues for q in head["queue_list"])
        }
        return holders.pop() if len(holders) == 1 else ""

    def _waiting(self, link: NetLink) -> int | None:
        """What its link queue has, where that could be asked; None: nobody knows."""
        name = link_name(link.exchange, self.net.nodes[link.agent].name)
        where, vhost = link.upstream, link.upstream_vhost
        if link.way == GIVES:
            name, where, vhost = push_name(link.exchange, link.entry), link.agent, link.vhost
        found = self._heads.get(where)
        if found is None:
            return None
        queues = [q for q in found["queue_list"] if (q["vhost"], q["name"]) == (vhost, name)]
        return sum(int(q["ready"] + q["unacked"]) for q in queues)

    def _links_in(self, key: str, found: Answer) -> None:
        """Links of nodes downstream that could not be asked."""
        told = {
            (link.upstream_vhost, link.exchange, link.agent, link.way)
            for link in self.net.links if link.upstream == key
        }  # fmt: skip
        running = {
            (at["vhost"], at["exchange"], at["node"], at["way"]): at for at in found["federation"]["links"]
        }
        queued = {
            (q["vhost"], *_parts(q["name"]), TAKES) for q in found["queue_list"] if _is_taken(q["name"])
        }  # fmt: skip
        for vhost, exchange, name, way in sorted({*running, *queued}):
            if exchange == NODES:
                continue  # each upstream has such a link, besides its agents
            agent = self._named.get(name) or self._downstream(name, found)
            if (vhost, exchange, agent, way) in told:
                continue
            feed = running.get((vhost, exchange, name, way))
            state = "running" if feed is not None else AWAY
            link = NetLink(exchange, way, agent, key, "", vhost, vhost, state, mode="?")
            link.interest = feed["interest"] if feed is not None else 0
            link.waiting = self._waiting(link) if way == TAKES else None
            self.net.links.append(link)

    def _downstream(self, name: str, found: Answer) -> str:
        """A node that was not asked, or could not be, and that `found` has a link with."""
        links = [link for link in found["federation"]["links"] if link["node"] == name]
        told = list(dict.fromkeys(at for link in links for at in link.get("addresses", [])))
        if not told or any(at in self._survey.faults for at in told):
            return self._missing(name, told)
        node = NetNode(f"node {name}", name, [NetBroker("", at, "?") for at in told], reason=UNASKED)
        self.net.nodes[node.key] = node
        self._named[name] = node.key
        return node.key


def _is_taken(name: str) -> bool:
    """Is it a link queue from which a node downstream takes?"""
    return name.startswith("amq.link.") and "@" in name and "@>" not in name


def _parts(name: str) -> tuple[str, str]:
    """Exchange and node of such a link queue."""
    exchange, _, node = name.removeprefix("amq.link.").rpartition("@")
    return exchange, node
