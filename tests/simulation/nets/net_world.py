"""One run of a net: its sites under their faults, lines that are slow and break, a publisher at each site.

start        all sites start, and their agents
work         publishers send, sites have their faults, lines are cut
quiet        each site has what was confirmed at each site that reaches it; nothing waits or goes on moving
finish       each cluster ends as a run of its own does, with all its checkers
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

from tests.ha.federation.graphs import Edge, draw_graph
from tests.ha.federation.nets import agent, entry
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.network import Cut
from tests.simulation.harness.plan import NetworkPlan, Plan, draw_plan
from tests.simulation.nets.sender import EXCHANGE
from tests.simulation.nets.sites import LOGIN, ClusterSite, Sent, SingleSite, Site
from tests.simulation.nets.wan import Wan

MOST = 4
"""Sites."""
PORTS = 100
"""From the first of one site to that of the next."""
LATENCIES = (0.001, 0.02, 0.1, 0.3, 0.6)
LOOK, SELDOM_LOOK = 0.1, 2.0
"""Seconds between two looks at what is waited for; and while a line is down for long."""
START_LIMIT, WORK_LIMIT, QUIET_LIMIT = 60.0, 300.0, 300.0
SELDOM = 2.0
"""Seconds between two messages of a publisher, while a line is down for long."""
STILL = 5.0
"""Seconds in which nothing moves in a quiet net."""


class BrokenNet(Exception):
    """What a net promises does not hold."""


class NetWorld:
    """Build with a seed, then `run`. Raises BrokenNet, Violation, or whatever else went wrong. `outage`:
    seconds for which one line is down, besides its short ones; then clusters are small, and have few clients,
    which do little."""

    def __init__(self, seed: int, outage: float = 0.0) -> None:
        self.seed = seed
        self.outage = outage
        self.look = SELDOM_LOOK if outage else LOOK
        self.rng = rng = Random(f"{seed}/net")
        self.clock = Clock()
        self.graph = draw_graph(rng, MOST)
        latency = rng.choice(LATENCIES)
        plan = NetworkPlan(
            latency, latency * rng.random() * 0.2, cut=rng.choice((0.0, 0.2)), slow=0.0,
            give_up=rng.choice((4.0, 15.0)),
        )  # fmt: skip
        self.wan = Wan(self.clock, plan, lambda purpose: Random(f"{seed}/wan/{purpose}"))
        self.sites: dict[str, Site] = {}
        for at, name in enumerate(self.graph.nodes):
            kind = rng.choice((ClusterSite, ClusterSite, SingleSite))
            drawn = draw_plan(seed * PORTS + at)
            drawn = _small(seed * PORTS + at) if outage else drawn
            # A weaker level may lose what is confirmed where all lose their power.
            drawn = replace(drawn, confirm="all-disks", levels=0.0)
            self.sites[name] = kind(self.clock, self.wan, name, drawn, 5001 + PORTS * at)
            if outage:
                self.sites[name].sender.interval = SELDOM
        self.forwarded = 0
        """Messages that came to another site than that of their publisher."""
        self._cuts = 0

    def __str__(self) -> str:
        ways = ", ".join(f"{e.source}{'=>' if e.gives else '->'}{e.target}" for e in self.graph.edges)
        sites = "; ".join(map(str, self.sites.values()))
        return f"net {self.seed}: {ways}, {self.wan.plan.latency} s; {sites}"

    def run(self) -> None:
        sites = list(self.sites.values())
        for site in sites:
            site.start()
        self._federate()
        for site in sites:
            site.sender.start()
            site.begin_work()
        self._break_lines()
        self._until(WORK_LIMIT, lambda: all(s.worked for s in sites) and not self._cuts, "faults to end")
        for site in sites:
            site.end_work()
        self._quiet()
        for site in sites:
            site.finish()

    # -- the phases

    def _federate(self) -> None:
        sites = self.sites.values()
        self._until(START_LIMIT, lambda: all(s.primary is not None for s in sites), "every site to serve")
        for site in sites:
            answers: list[dict[str, Any]] = []
            site.define(self._entries(site.name), answers)
            self._until(START_LIMIT, lambda: bool(answers), f"an answer of {site.name}")  # noqa: B023
            if not answers[0]["ok"]:
                raise BrokenNet(f"{self}: {answers[0]}")
        self._until(START_LIMIT, lambda: not self._complaints(), "agents to run", self._complaints)
        hops = len(self.sites)
        self.clock.run(self.clock.now + 1.0 + 3 * hops * self.wan.plan.latency)  # all interest is known

    def _entries(self, site: str) -> list[dict[str, Any]]:
        """Upstreams and agents there."""
        modes: dict[str, dict[str, str]] = {}
        for edge in self.graph.edges:
            here, there = (edge.source, edge.target) if edge.gives else (edge.target, edge.source)
            if here == site:
                mode = modes.setdefault(there, {"forward_mode": "none", "consume_mode": "none"})
                mode["forward_mode" if edge.gives else "consume_mode"] = "all"
        found: list[dict[str, Any]] = []
        for there, mode in modes.items():
            addresses = [f"{host}:{port}" for host, port in self.sites[there].addresses]
            found += [
                entry("federation-upstream", there, addresses=addresses, login=LOGIN),
                agent(EXCHANGE, there, **mode),
            ]
        return found

    def _break_lines(self) -> None:
        for _ in range(self.rng.choice((0, 1, 2, 4))):
            length = self.rng.choice((0.2, 2.0, 12.0)) * self.rng.random()
            self._cut_later(self.rng.random() * 8, self.rng.choice(self.graph.edges), length)
        if self.outage:
            self._cut_later(1.0, self.rng.choice(self.graph.edges), self.outage)

    def _cut_later(self, delay: float, edge: Edge, length: float) -> None:
        one, other = (
            frozenset(f"{name}.{machine.name}" for machine in self.sites[name].machines)
            for name in (edge.source, edge.target)
        )
        cuts = [Cut(one, other), Cut(other, one)]
        if self.rng.random() < 0.2:
            cuts = cuts[:1]
        self._cuts += 1

        def cut() -> None:
            self.clock.note(f"FAULT: no line between {edge.source} and {edge.target} for {length:.1f} s")
            for each in cuts:
                self.wan.apply(each)
            self.clock.after(length, mend)

        def mend() -> None:
            self.clock.note(f"the line between {edge.source} and {edge.target} is there again")
            for each in cuts:
                self.wan.mend(each)
            self._cuts -= 1

        self.clock.after(delay, cut)

    def _quiet(self) -> None:
        senders = [site.sender for site in self.sites.values()]
        for sender in senders:
            sender.finishing = True
        self._until(QUIET_LIMIT, lambda: all(s.finished for s in senders), "every confirm")
        for sender in senders:
            sender.stop()
        self._until(QUIET_LIMIT, lambda: not self._open(), "the net to be quiet", self._open)
        had = {name: set(site.got()) for name, site in self.sites.items()}
        for site in self.sites.values():
            self._check(site, got := site.got())
            self.forwarded += sum(name != site.name for name, _, _ in got)
            if early := [sent for sent in got if not self.sites[sent[0]].lossy and sent not in had[sent[0]]]:
                raise BrokenNet(f"{self}: {site.name} has what was lost where it was sent: {early[:5]}")
        before = [(site.got(), site.waiting()) for site in self.sites.values()]
        self.clock.run(self.clock.now + STILL)
        if before != [(site.got(), site.waiting()) for site in self.sites.values()]:
            raise BrokenNet(f"{self}: a message moves in a quiet net")

    def _complaints(self) -> list[str]:
        return [text for site in self.sites.values() for text in site.complaints()]

    def _open(self) -> list[str]:
        """What is still to come."""
        found = self._complaints()
        for site in self.sites.values():
            found += [f"{name}: {count}" for name, count in site.waiting().items()]
            missing = self._expected(site) - {(at, number) for at, number, _ in site.got()}
            if missing:
                found.append(f"{site.name} lacks {len(missing)}: {sorted(missing)[:5]}")
        return found

    def _expected(self, site: Site) -> set[tuple[str, int]]:
        """Site and number of what was confirmed anywhere whence messages come here by sites that keep their
        promises."""
        safe = self.graph._replace(
            edges=tuple(
                edge for edge in self.graph.edges
                if not self.sites[edge.source].lossy and not self.sites[edge.target].lossy
            )
        )  # fmt: skip
        return {
            (name, number) for name, other in self.sites.items()
            if site.name in safe.reach(name) and not other.lossy
            for number in other.sender.confirmed_ones
        }  # fmt: skip

    def _check(self, site: Site, got: list[Sent]) -> None:
        where = f"{self}: {site.name}"
        if len(set(got)) != len(got):
            raise BrokenNet(f"{where}: twice: {sorted(m for m in set(got) if got.count(m) > 1)[:5]}")
        strange = {name for name, _, _ in got if site.name not in self.graph.reach(name)}
        if strange:
            raise BrokenNet(f"{where}: messages of {strange}")
        for name in self.sites:
            attempts = [attempt for at, _, attempt in got if at == name]
            if attempts != sorted(attempts) and not any(s.lossy for s in self.sites.values()):
                raise BrokenNet(f"{where}: out of order: {attempts}")

    # -- helpers

    def _until(
        self, limit: float, done: Callable[[], bool], what: str, why: Callable[[], object] = lambda: ""
    ) -> None:
        end = self.clock.now + limit + self.outage
        while not done():
            if self.clock.now >= end:
                raise BrokenNet(f"{self}: waited {limit:g} s for {what}: {why()}")
            self.clock.run(self.clock.now + self.look)


def _small(seed: int) -> Plan:
    """A pair with few clients: these work as long as the line is down."""
    plans = (draw_plan(seed + 10 * PORTS * PORTS * more) for more in count())
    plan = next(plan for plan in plans if plan.nodes == 2 and plan.authority in ("manual", "pair"))
    return replace(
        plan, publishers=plan.publishers[:1], consumers=(), pollers=(), temporaries=(), churners=(), rules=(),
        movers=(), repeaters=(), numberers=(), trespassers=(), registrar=0.0,
        operator=replace(plan.operator, every=1.0),
    )  # fmt: skip
