"""Federation, as the ledgers show it: which brokers are one node, and which link queues join two nodes.

Pure, on the driver: rows of EVENT_SCHEMA in, values out. Epochs, positions and in-sync sets mean something
within one cluster only. So the job judges each cluster by itself, and then what went from one to another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark.reconcile.ledgers.state import Process
from spark.schema import LINK

Row = Mapping[str, Any]


def origin(prod: object) -> tuple[str, int] | None:
    """The link queue and epoch of a session; None if a client publishes in it."""
    found = LINK.fullmatch(prod) if isinstance(prod, str) else None
    return (found[1], int(found[2])) if found else None


@dataclass(slots=True, frozen=True)
class Cluster:
    """`brokers`: their processes. `queues`: those that they define. `nodes`: names of the federation node."""

    brokers: frozenset[Process]
    queues: frozenset[str]
    nodes: frozenset[str]


@dataclass(slots=True)
class Link:
    """A link queue, and the nodes at both ends. `source`, `target`: indices of their clusters, None if their
    ledgers are not here. `here`, `there`: the names of the nodes, "" if unknown."""

    queue: str
    source: int | None = None
    target: int | None = None
    here: str = ""
    there: str = ""


@dataclass(slots=True)
class Net:
    """Clusters, their links, and which clients belong to which clusters."""

    clusters: list[Cluster]
    links: list[Link]
    names: dict[str, str] = field(default_factory=dict)
    """Of link queues."""
    sessions: dict[str, set[int]] = field(default_factory=dict)
    """Session of a client -> the clusters whose brokers know it."""
    clients: dict[Process, set[int]] = field(default_factory=dict)
    """A client without an entry may belong to any cluster."""
    sent: dict[Process, set[str]] = field(default_factory=dict)
    """The sessions of a client."""

    def into(self, cluster: int) -> list[Link]:
        """Links with both ends here by which messages came to that cluster."""
        return [link for link in self.links if link.target == cluster and link.source is not None]

    def strange(self, cluster: int) -> tuple[list[str], list[str]]:
        """Of clients of several clusters: the sessions and queues that belong to others only."""
        shared = [who for who, at in self.clients.items() if cluster in at and len(at) > 1]
        if not shared:
            return [], []
        prods = {prod for who in shared for prod in self.sent.get(who, ())}
        mine = self.clusters[cluster].queues
        others = (each.queues for place, each in enumerate(self.clusters) if place != cluster)
        return (
            sorted(prod for prod in prods if cluster not in self.sessions.get(prod, (cluster,))),
            sorted({queue for queues in others for queue in queues - mine}),
        )


class _Sets:
    """Disjoint sets."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}

    def root(self, one: Hashable) -> Hashable:
        above = self._above.setdefault(one, one)
        if above == one:
            return one
        found = self._above[one] = self.root(above)
        return found

    def join(self, one: Hashable, other: Hashable) -> None:
        self._above[self.root(one)] = self.root(other)


def net_of(rows: Sequence[Row], seen: Iterable[Row]) -> Net | None:
    """None if no broker here has a link. `rows`: events of STATE_KINDS, `hull` and `receipts`. `seen`:
    writer, incarnation, kind and prod of all that was sent or unrouted."""
    if not any(row["kind"] == "link" for row in rows):
        return None
    brokers = {_process(row) for row in rows if row["kind"] == "open" and row["name"] == "broker"}
    clusters = _clusters([row for row in rows if _process(row) in brokers], brokers)
    at = {process: place for place, each in enumerate(clusters) for process in each.brokers}
    home = {queue: place for place, each in enumerate(clusters) for queue in each.queues}
    net = Net(clusters, [])
    seen = list(seen)
    net.names = {row["queue"]: row["name"] or "" for row in rows if row["kind"] == "definition"}
    links = _links(rows, clusters, _arrivals(rows, seen, at, home), at, home)
    net.links = sorted(links, key=lambda link: (link.here, link.there, link.queue))
    _enter_clients(net, rows, seen, at, home)
    return net


def _links(
    rows: Sequence[Row], clusters: Sequence[Cluster], arrivals: Mapping[str, set[int]],
    at: Mapping[Process, int], home: Mapping[str, int],
) -> Iterable[Link]:  # fmt: skip
    links = {queue: Link(queue) for queue in arrivals}
    for row in rows:
        if row["kind"] == "link" and row["queue"] is not None:
            link = links.setdefault(row["queue"], Link(row["queue"]))
            link.source, link.here, link.there = at.get(_process(row)), row["peer"] or "", row["name"] or ""
    for link in links.values():
        named = {i for i, each in enumerate(clusters) if link.there and link.there in each.nodes}
        found = arrivals.get(link.queue) or named
        link.source = home.get(link.queue, link.source)
        if len(found) == 1:
            (link.target,) = found
        if link.target is not None and not link.there:
            link.there = min(clusters[link.target].nodes, default="")
    return links.values()


def _process(row: Row) -> Process:
    return row["writer"], row["incarnation"]


def _clusters(rows: Sequence[Row], brokers: Iterable[Process]) -> list[Cluster]:
    """One id of a cluster, or one queue, makes brokers one cluster. A broker without an id belongs to the one
    cluster that has, or mentions, its name."""
    sets, named, known = _Sets(), defaultdict[str, set[Process]](set), set[Process]()
    queues, nodes = defaultdict[Process, set[str]](set), defaultdict[Process, set[str]](set)
    mentions = defaultdict[str, set[Process]](set)
    for process in brokers:
        named[process[0]].add(process)
        sets.root(process)
    for row in rows:
        kind, process = row["kind"], _process(row)
        if kind == "open" and row["reason"]:
            sets.join(process, ("cluster", row["reason"]))
            known.add(process)
        elif kind == "definition":
            sets.join(process, ("queue", row["queue"]))
            queues[process].add(row["queue"])
        elif kind == "link":
            nodes[process].add(row["peer"] or "")
        elif kind == "insync" or kind == "promote":
            for name in [row["peer"] or "", *((row["name"] or "").split(",") if kind == "insync" else ())]:
                mentions[name.strip()].add(process)
    for process in sorted(set(brokers) - known):
        _adopt(sets, process, named[process[0]] | mentions[process[0]], known)
    members = defaultdict[Hashable, set[Process]](set)
    for process in brokers:
        members[sets.root(process)].add(process)
    return [
        Cluster(
            frozenset(each), frozenset(q for process in each for q in queues[process]),
            frozenset(node for process in each for node in nodes[process]) - {""},
        )
        for each in sorted(members.values(), key=min)
    ]  # fmt: skip


def _adopt(sets: _Sets, process: Process, others: Iterable[Process], known: Iterable[Process]) -> None:
    """A broker without an id joins those that have, or mention, its name; not if they are of two clusters."""
    about = {sets.root(other) for other in others}
    with_id = about & {sets.root(other) for other in known}
    if len(with_id) < 2:
        for other in with_id or about:
            sets.join(process, other)


def _arrivals(
    rows: Sequence[Row], seen: Sequence[Row], at: Mapping[Process, int], home: Mapping[str, int]
) -> dict[str, set[int]]:
    """Link queue -> the clusters that messages came to."""
    out: dict[str, set[int]] = {}
    for row in rows:
        if row["kind"] == "hull" and (came := origin(row["prod"])):
            out.setdefault(came[0], set()).update({home[row["queue"]]} if row["queue"] in home else ())
    for row in seen:
        if came := origin(row["prod"]):
            out.setdefault(came[0], set()).update({at[_process(row)]} if _process(row) in at else ())
    return out


def _enter_clients(
    net: Net, rows: Sequence[Row], seen: Sequence[Row], at: Mapping[Process, int], home: Mapping[str, int]
) -> None:
    for row in rows:
        if row["kind"] == "hull" and row["queue"] in home:
            net.sessions.setdefault(row["prod"], set()).add(home[row["queue"]])
        elif row["kind"] == "receipts" and row["queue"] in home:
            net.clients.setdefault(_process(row), set()).add(home[row["queue"]])
    for row in seen:
        if row["kind"] == "unrouted" and _process(row) in at:
            net.sessions.setdefault(row["prod"], set()).add(at[_process(row)])
    for row in seen:
        if row["kind"] == "sent":
            net.sent.setdefault(_process(row), set()).add(row["prod"])
        if row["kind"] == "sent" and row["prod"] in net.sessions:
            net.clients.setdefault(_process(row), set()).update(net.sessions[row["prod"]])
