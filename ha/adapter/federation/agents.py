"""Agents: the agents of the directory, while this broker serves. Owner: Federation.

Agents are replicated entries, so a promoted backup goes on with them. Each has a `LinkTaker`, a `LinkGiver`,
or both. They share the connections to their upstream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.model.routing.node_routes import NODES
from broker.model.values import ROOT
from broker.model.vhost.links import queue_there
from ha.adapter import codes
from ha.adapter.federation.exchange_model import ExchangeModel
from ha.adapter.federation.plain.channels import PlainChannels
from ha.adapter.federation.plain.exchange import PlainExchange
from ha.adapter.federation.plain.push import PlainPush
from ha.adapter.federation.push_queue import PushQueue, waiting_for
from ha.adapter.federation.upstream_lines import UpstreamLines
from ha.adapter.federation.wanted import all_agents, is_wanted
from ha.core.federation.agent import Opener
from ha.core.federation.agent_end import AgentState
from ha.core.federation.giver import LinkGiver
from ha.core.federation.known import Known
from ha.core.federation.plain.giver import PlainGiver
from ha.core.federation.plain.taker import PlainTaker
from ha.core.federation.taker import LinkTaker

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.model.vhost.federation_entries import FederationAgent
    from broker.store.store import Store
    from ha.adapter.federation.origins import Origins
    from ha.adapter.federation.ports import FederationNode
    from ha.core.federation.agent_end import AgentEnd
    from ha.core.federation.ports import LinkWire

OFF = "the agent neither takes nor gives (consume-mode and forward-mode are none)"
ENDS_TAKING = "consume-mode is none: what waits at the upstream is still taken"
ENDS_GIVING = "forward-mode is none: what waits here is still given"
NONE = ("none", "none")
ONCE, AT_LEAST_ONCE = "once", "at least once"
"""How often a message comes: a plain broker gives no ids by which doubles are known."""
Key = tuple[str, str]
"""Virtual host and name of an entry."""


class Job(NamedTuple):
    """What an agent is to do. `ends_taking`, `ends_giving`: that mode is `none` now, and what waits from
    before is still taken, or given."""

    entry: FederationAgent
    ends_taking: bool
    ends_giving: bool

    @property
    def word(self) -> str:
        """What is special about it, for people."""
        what = ENDS_TAKING if self.ends_taking else ""
        return "; ".join(filter(None, (what, ENDS_GIVING if self.ends_giving else "")))


@dataclass(slots=True, eq=False)
class Agent:
    """An agent takes, gives, or does both. `told`: state and reason that the log said last."""

    job: Job
    upstream: Key
    model: ExchangeModel | PlainExchange | None = None
    taker: LinkTaker | PlainTaker | None = None
    push: PushQueue | None = None
    giver: LinkGiver | PlainGiver | None = None
    told: tuple[AgentState, str] = (AgentState.CONNECTING, "")

    @property
    def entry(self) -> FederationAgent:
        return self.job.entry

    @property
    def drained(self) -> bool:
        """Nothing is left of what was to end."""
        taken = self.taker is not None and self.taker.drained
        return taken or (self.push is not None and self.push.drained)

    @property
    def ends(self) -> list[AgentEnd]:
        return [end for end in (self.taker, self.giver) if end is not None]

    @property
    def shown(self) -> AgentEnd:
        """Whose state an operator sees: of two, the one that does not run."""
        ends = self.ends
        return next((end for end in ends if end.state is not AgentState.RUNNING), ends[0])

    @property
    def reason(self) -> str:
        return self.shown.reason or self.job.word

    def line(self) -> dict[str, Any]:
        """For people."""
        end = self.shown
        line: dict[str, Any] = {"state": end.state.value, "reason": self.reason, "source": end.source}
        if self.taker is not None and self.model is not None:
            taker, model = self.taker, self.model
            line |= {
                "interest": taker.interest, "taken": taker.taken, "routed": model.routed,
                "unrouted": model.unrouted, "refused": model.refused,
                "doubles": taker.doubles + model.doubled, "looped": model.looped, "spoilt": model.spoilt,
            }  # fmt: skip
        if isinstance(self.taker, LinkTaker) and isinstance(self.model, ExchangeModel):
            line |= {"offered": self.model.offered, "stands_by": sorted(self.taker.stands_by)}
        if self.push is not None:
            line |= {"waiting": self.push.waiting, "given": self.push.given}
        if isinstance(self.giver, PlainGiver):
            taken = self.giver
            line["given"] = taken.given
            for key, number in (("refused", taken.refused), ("spoilt", taken.spoilt)):
                line[key] = line.get(key, 0) + number
        return line


def _told(key: Key) -> str:
    """The name of an agent, for other brokers."""
    vhost, name = key
    return name if vhost == ROOT else f"{name} of virtual host {vhost}"


class Agents:
    """`owner`: see `ha.core.federation.wire.Open`; `origins`: by virtual host and exchange."""

    def __init__(
        self, node: FederationNode, store: Store, wire: LinkWire, owner: Callable[[], str],
        origins: Callable[[str, str], Origins],
    ) -> None:  # fmt: skip
        self._node = node
        self._store = store
        self._wire = wire
        self._owner = owner
        self._origins = origins
        self._channels = PlainChannels(node.peerings.sender, node.broker.settings.message_max)
        self._lines: dict[Key, UpstreamLines] = {}
        self._all: dict[Key, Agent] = {}
        self._streams = 0
        self._stale = False
        """An exchange was made: a policy may want an agent for it."""

    # -- the directory

    def follow_directory(self, now: float) -> None:
        """Begin and end agents as their entries say."""
        self._stale = False
        wanted = self._wanted()
        self._end_unwanted(wanted, now)
        self._connect({(key[0], job.entry.upstream) for key, job in wanted.items()})
        for key, job in wanted.items():
            if key not in self._all:
                self._begin(key, job, now)
        for vhost, exchange in {(key[0], agent.entry.exchange) for key, agent in self._all.items()}:
            self._forward(vhost, exchange)

    def _wanted(self) -> dict[Key, Job]:
        if not self._node.settings.federated.node:
            return {}
        upstreams = self._node.vhosts.directory.upstreams
        jobs = ((key, self._job(key, entry)) for key, entry in all_agents(self._node.vhosts).items())
        return {
            key: job for key, job in jobs
            if job is not None and (key[0], job.entry.upstream) in upstreams
        }  # fmt: skip

    def _job(self, key: Key, entry: FederationAgent) -> Job | None:
        vhosts = self._node.vhosts
        there = vhosts.get(key[0])
        if there is None:
            return None
        taking = entry.consume_mode == "none" and key in vhosts.directory.cursors
        giving = entry.forward_mode == "none" and waiting_for(there, entry) is not None
        idle = (entry.consume_mode, entry.forward_mode) == NONE and not taking and not giving
        return None if idle else Job(entry, taking, giving)

    def _end_unwanted(self, wanted: dict[Key, Job], now: float) -> None:
        """Also those that begin anew."""
        entries, upstreams = all_agents(self._node.vhosts), self._node.vhosts.directory.upstreams
        for key, agent in list(self._all.items()):
            upstream = upstreams.get(agent.upstream)
            if wanted.get(key) != agent.job or upstream != self._lines[agent.upstream].entry:
                self._end(key, agent, now, gone=key not in entries)

    def _connect(self, used: set[Key]) -> None:
        """Have connections to these upstreams, and no others."""
        upstreams = self._node.vhosts.directory.upstreams
        for name, lines in list(self._lines.items()):
            if name not in used or upstreams.get(name) != lines.entry:
                lines.close()
                del self._lines[name]
        for name in used - self._lines.keys():
            self._lines[name] = UpstreamLines(
                self._node, self._wire, self._channels, name[1], upstreams[name]
            )

    def _begin(self, key: Key, job: Job, now: float) -> None:
        node, entry = self._node, job.entry
        agent = self._all[key] = Agent(job, (key[0], entry.upstream))
        me = Opener(
            node.settings.federated.node,
            self._owner(),
            node.me.name,
            node.core.epoch,
            _told(key),
            entry.paused,
            node.settings.federated.addresses,
        )
        plain = self._lines[agent.upstream].entry.plain
        if entry.consume_mode == "all" or job.ends_taking:
            (self._begin_taking_plain if plain else self._begin_taking)(key, agent, me)
        if entry.forward_mode != "none" or job.ends_giving:
            self._begin_giving(key[0], agent, me, plain=plain)
        for end in agent.ends:
            self._lines[agent.upstream].join(end, now)

    def _begin_taking(self, key: Key, agent: Agent, me: Opener) -> None:
        entry, vhost = agent.entry, self._node.vhosts[key[0]]
        agent.model = model = ExchangeModel(
            self._node, self._store, vhost, key[1], entry.exchange, entry.upstream,
            self._origins(vhost.name, entry.exchange), 0 if agent.job.ends_taking else entry.max_hops,
        )  # fmt: skip
        agent.taker = LinkTaker(
            self._new_stream(), entry.exchange, model, self._wire, me, limits=entry.limits,
            members=self._members(), drops=entry.on_outage == "drop", ends=agent.job.ends_taking,
        )  # fmt: skip

    def _begin_taking_plain(self, key: Key, agent: Agent, me: Opener) -> None:
        entry, vhost = agent.entry, self._node.vhosts[key[0]]
        there, ends = self._lines[agent.upstream].entry.vhost, agent.job.ends_taking
        agent.model = model = PlainExchange(
            self._node, self._store, vhost, key[1], entry.exchange, there, 0 if ends else entry.max_hops
        )
        agent.taker = PlainTaker(
            self._new_stream(), entry.exchange, model, self._channels, node=me.node, paused=me.paused,
            queue=queue_there(entry.exchange, me.node, vhost.name), limits=entry.limits,
            drops=entry.on_outage == "drop", ends=ends,
        )  # fmt: skip

    def _begin_giving(self, vhost: str, agent: Agent, me: Opener, *, plain: bool) -> None:
        entry, there = agent.entry, self._node.vhosts[vhost]
        agent.push = push = PushQueue(
            self._node, there, entry, lambda: self._forward(vhost, entry.exchange), ends=agent.job.ends_giving
        )
        if plain:
            given = PlainPush(push, me.node, vhost, entry.exchange)
            agent.giver = PlainGiver(
                self._new_stream(), entry.exchange, given, self._channels, node=me.node, paused=me.paused
            )
        else:
            agent.giver = LinkGiver(self._new_stream(), entry.exchange, push, self._wire, me, echo=push.echo)

    def _end(self, key: Key, agent: Agent, now: float, *, gone: bool) -> None:
        del self._all[key]
        if agent.model is not None:
            agent.model.close()
        for end in agent.ends:
            end.stop("the agent is removed" if gone else "the agent is set anew", now, delete=gone)
            self._lines[agent.upstream].leave(end)
        self._forward(key[0], agent.entry.exchange)
        if gone and agent.push is not None:
            agent.push.remove()
        if gone and isinstance(agent.model, ExchangeModel):
            agent.model.forget()

    def _members(self) -> tuple[str, ...]:
        """Ids of the brokers of this node. One of them may have been a node alone before there was a pair."""
        core, me = self._node.core, self._node.me
        known = {me.node_id, *core.membership.members}
        if core.record is not None:
            known |= {core.record.owner.node_id, *core.record.names}
        return tuple(sorted(known))

    def _new_stream(self) -> int:
        self._streams = self._streams % 0xFFFF + 1
        return self._streams

    # -- where messages go

    def exchange_made(self, vhost: str, exchange: str) -> None:
        """Before anything is published to it."""
        if self._pushes(vhost, exchange):
            self._forward(vhost, exchange)
        self._stale = self._stale or is_wanted(self._node.vhosts, vhost, exchange)

    def interest_told(self, vhost: str, exchange: str) -> Known | None:
        """Whether all upstreams from which that exchange takes know what it wants as of now. None: it takes
        from nobody. A paused agent asks for nothing."""
        takers = [
            agent.taker for key, agent in self._all.items()
            if key[0] == vhost and agent.entry.exchange == exchange and agent.taker is not None
            and agent.entry.consume_mode == "all" and not agent.entry.paused
        ]  # fmt: skip
        return Known(takers) if takers else None

    def _forward(self, vhost: str, exchange: str) -> None:
        """Where messages of that exchange go besides its bindings, or instead."""
        there = self._node.vhosts.get(vhost)
        if there is None or not self._node.vhosts.serving:
            return
        prepared = [push.prepare() for push in self._pushes(vhost, exchange)]
        there.set_forwards(exchange, tuple(forward for forward in prepared if forward is not None))

    def _pushes(self, vhost: str, exchange: str) -> list[PushQueue]:
        return [
            agent.push for key, agent in self._all.items()
            if key[0] == vhost and agent.entry.exchange == exchange and agent.push is not None
        ]  # fmt: skip

    # -- ticks

    def tick(self, now: float) -> None:
        """Take what came from upstreams."""
        if not (self.there or self._stale):
            return
        for lines in self._lines.values():
            lines.hear(now)
        if self._stale or self._outlived():
            self.follow_directory(now)
        for agent in self._all.values():
            for end in agent.ends:
                end.timers(now)
            self._tell(agent)
        if drained := [agent for agent in self._all.values() if agent.drained]:
            for agent in drained:
                if agent.push is not None and agent.giver is not None and agent.push.drained:
                    agent.giver.stop("nothing is left", now, delete=True)
                    agent.push.remove()
            self.follow_directory(now)

    @property
    def there(self) -> bool:
        """There is an agent, or a connection for one."""
        return bool(self._all or self._lines)

    def _outlived(self) -> bool:
        """Is there an agent that a policy made, for an exchange that is gone?"""
        vhosts, entries = self._node.vhosts, self._node.vhosts.directory.agents
        return any(
            key not in entries and (there := vhosts.get(key[0])) is not None
            and agent.entry.exchange not in there.exchanges
            for key, agent in self._all.items() if agent.entry.exchange != NODES
        )  # fmt: skip

    def _tell(self, agent: Agent) -> None:
        """Log each change."""
        end = agent.shown
        stands = (end.state, agent.reason)
        if agent.told == stands or end.state is AgentState.STARTING:
            return
        agent.told = stands
        source = f", with {end.source}" if end.source else ""
        why = f": {stands[1]}" if stands[1] else source
        tell = self._node.warn if end.state is AgentState.REFUSED else self._node.log
        tell(
            codes.AGENT_STATE.say(
                exchange=agent.entry.exchange, upstream=agent.entry.upstream, state=end.state.value, why=why
            )
        )

    def end_tick(self, now: float, *, full: str) -> None:
        """History is flushed. `full`: why this broker can take no more for now."""
        for agent in self._all.values():
            if agent.taker is not None:
                agent.taker.end_tick(full=full)
                agent.taker.note_told()
            if agent.giver is not None and not self._node.broker.input_paused:
                agent.giver.end_tick(now)

    @property
    def hungry(self) -> bool:
        """There is more to give or to tell, and room for it."""
        pushes = (agent.push for agent in self._all.values() if agent.push is not None)
        ends = (end for agent in self._all.values() for end in agent.ends)
        return any(push.hungry for push in pushes) or any(end.hungry for end in ends)

    def deadlines(self) -> list[float | None]:
        return [end.next_deadline() for agent in self._all.values() for end in agent.ends]

    def rest(self) -> None:
        """This broker stops serving."""
        for lines in self._lines.values():
            lines.close()
        for agent in self._all.values():
            if agent.model is not None:
                agent.model.close()
        self._lines, self._all = {}, {}

    # -- for people

    def status(self) -> list[dict[str, Any]]:
        entries = all_agents(self._node.vhosts).items()
        return [self._line(key, entry) for key, entry in entries if entry.exchange != NODES]

    def for_routes(self) -> list[dict[str, Any]]:
        """The agents for routes."""
        entries = all_agents(self._node.vhosts).items()
        return [self._line(key, entry) for key, entry in entries if entry.exchange == NODES]

    def _line(self, key: Key, entry: FederationAgent) -> dict[str, Any]:
        agent = self._all.get(key)
        line: dict[str, Any] = {
            "exchange": entry.exchange, "vhost": key[0], "upstream": entry.upstream,
            "by": "entry" if key in self._node.vhosts.directory.agents else "policy",
            "consume_mode": entry.consume_mode, "forward_mode": entry.forward_mode, "copy": entry.copy,
            "state": "off", "reason": self._why_none(entry), "source": "", "interest": 0, "taken": 0,
            "routed": 0, "unrouted": 0, "refused": 0, "doubles": 0, "looped": 0, "spoilt": 0, "offered": 0,
            "stands_by": [], "waiting": 0, "given": 0, "promise": self._promise(key[0], entry),
        }  # fmt: skip
        return line if agent is None else line | agent.line()

    def _promise(self, vhost: str, entry: FederationAgent) -> str:
        there = self._node.vhosts.directory.upstreams.get((vhost, entry.upstream))
        return AT_LEAST_ONCE if there is not None and there.plain else ONCE

    def _why_none(self, entry: FederationAgent) -> str:
        if not self._node.settings.federated.node:
            return "this broker has no federation.node"
        if not self._node.vhosts.serving:
            return f"{self._node.me.name} does not serve"
        return OFF if (entry.consume_mode, entry.forward_mode) == NONE else ""
