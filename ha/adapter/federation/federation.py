"""Federation: the federation links of this broker, at both ends.

Owner: Node, for its life. As upstream it serves whoever asks: it feeds (`LinkFeeders`), and takes what is
given (`LinkReceivers`). As downstream it has a `LinkTaker`, a `LinkGiver`, or both, for each agent of the
directory, while this broker serves: agents are replicated entries, so a promoted backup goes on with them.
All agents of one upstream share its connections, one to each address.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from broker.model.routing.node_routes import NODES
from broker.model.vhost.federation_entries import FederationAgent, Home, Upstream, agent_name, routes_by
from ha.adapter import codes
from ha.adapter.federation.exchange_model import ExchangeModel
from ha.adapter.federation.link_queues import LinkQueues
from ha.adapter.federation.ports import FederationNode
from ha.adapter.federation.push_queue import PushQueue
from ha.adapter.federation.receiving import Origins, ReceivingExchanges
from ha.adapter.federation.trace import routes, trace
from ha.adapter.inbox import Arrived, DialFailed, DialOpen, Inbox, PeerLost
from ha.adapter.mirror.mirrors import dial_failure, is_near, split_address
from ha.adapter.peering.peering import PeeringKind
from ha.core.deadlines import earliest
from ha.core.errors import LinkError
from ha.core.federation.agent import AgentState, LinkAgent
from ha.core.federation.feeder import LinkFeeders
from ha.core.federation.giver import LinkGiver
from ha.core.federation.receivers import LinkReceivers
from ha.core.federation.taker import LinkTaker
from ha.core.federation.wire import LinkMethod, on_stream, stream_of
from understudy.shared.octets import cut

if TYPE_CHECKING:
    from broker.store.store import Store

FEDERATION_METHODS = frozenset(LinkMethod)
CHANNEL = 1
NO_LOGIN = "the configuration of this broker has no federation.logins.{name}"
IN_CLEAR = (
    "federation.logins.{name}.password would go there in the clear: set federation.logins.{name}.tls, or, on "
    "a network that you trust, auth.allow_plain_without_tls"
)
RIGHTS = "federation.logins.{name}: that user needs the tag federation there, and permissions"
OFF = "the agent neither takes nor gives (consume-mode and forward-mode are none)"
Key = tuple[str, str]
"""Virtual host and name of an entry."""


@dataclass(slots=True, eq=False)
class _Upstream:
    """The connections to one upstream. `open`: address of each that is logged in, by peer."""

    entry: Upstream
    inbox: Inbox
    fault: str = ""
    """Why there are none, in a sentence."""
    open: dict[int, str] = field(default_factory=dict)
    heard: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """By address: why the last login there failed, and whether somebody refused it."""


@dataclass(slots=True, eq=False)
class _Agent:
    """An agent takes, gives, or does both. `told`: state and reason that the log said last."""

    entry: FederationAgent
    upstream: Key
    model: ExchangeModel | None = None
    taker: LinkTaker | None = None
    push: PushQueue | None = None
    giver: LinkGiver | None = None
    told: tuple[AgentState, str] = (AgentState.CONNECTING, "")

    @property
    def ends(self) -> list[LinkAgent]:
        return [end for end in (self.taker, self.giver) if end is not None]

    @property
    def shown(self) -> LinkAgent:
        """Whose state an operator sees: of two, the one that does not run."""
        ends = self.ends
        return next((end for end in ends if end.state is not AgentState.RUNNING), ends[0])

    @property
    def reason(self) -> str:
        return self.shown.reason or (self.model.twice if self.model is not None else "")


class Federation:
    """Call `tick` before the broker's end of tick, so that what came is history of that tick; `end_tick`
    after it. Implements `LinkWire`."""

    def __init__(self, node: FederationNode, store: Store) -> None:
        self._node = node
        self._store = store
        node.vhosts.node = node.settings.federated.node
        self._queues = LinkQueues(node)
        self.feeders = LinkFeeders(self._queues, self)
        exchanges = ReceivingExchanges(node, store, self._queues.standing, self._origins_of)
        self.receivers = LinkReceivers(exchanges, self)
        self._upstreams: dict[Key, _Upstream] = {}
        self._agents: dict[Key, _Agent] = {}
        self._origins: dict[Key, Origins] = {}
        """By virtual host and exchange: of each node that published, the brokers from which that came."""
        self._held: deque[tuple[int, int, bytes]] = deque()
        """What brokers downstream sent during a switchover, and before the tick after it. It is heard if that
        comes to nothing."""
        self._streams = 0
        self._epoch = 0
        self._seen = -1
        """The generation of the directory that agents were made for."""

    # -- the wire

    def send(self, peer: int, stream: int, method: int, payload: bytes) -> None:
        self.send_pieces(peer, stream, method, [payload])

    def send_pieces(self, peer: int, stream: int, method: int, parts: list[bytes]) -> None:
        head = on_stream(stream)
        inbound = self._node.hooks.peers.get(peer)
        if inbound is not None:
            for piece in cut(parts, inbound.extension_room - len(head)):
                inbound.send_extension(CHANNEL, method, head + piece)
            return
        client = self._node.peerings.sender(peer)
        if client is not None:
            for piece in cut(parts, client.extension_room - len(head)):
                client.send_extension(method, head + piece)

    def close(self, peer: int, code: int, text: str) -> None:
        inbound = self._node.hooks.peers.get(peer)
        client = self._node.peerings.client(peer)
        if inbound is not None:
            inbound.expel(code, text)
        elif client is not None:
            client.close(code, text)

    # -- the upstream end

    def hear(self, peer: int, method: int, payload: bytes) -> None:
        """One method of a broker downstream. What it may not send costs it the connection, and nothing
        else."""
        if self._node.broker.input_paused or self._held:
            self._held.append((peer, method, payload))
        else:
            self._take(peer, method, payload)

    def _take(self, peer: int, method: int, payload: bytes) -> None:
        try:
            stream, rest = stream_of(payload)
            gives = method == LinkMethod.OFFER or self.receivers.has(peer, stream)
            (self.receivers if gives else self.feeders).hear(peer, method, stream, rest)
        except LinkError as error:
            self.lost(peer)
            self.close(peer, error.code, f"FRAME_ERROR - {error}")

    def lost(self, peer: int) -> None:
        """An inbound connection is gone."""
        self._held = deque(held for held in self._held if held[0] != peer)
        self.feeders.lost(peer)
        self.receivers.lost(peer)

    # -- ticks

    def serve(self, now: float) -> None:
        """This broker begins to serve. No client has published yet."""
        self._settle_home()
        self._seen = self._node.vhosts.directory.generation
        self._epoch = self._node.core.epoch
        self._follow_directory(now)

    def _settle_home(self) -> None:
        """A broker that was alone goes on with its link queues when it founds a cluster. One that was
        restored from a copy does not: it is a new broker, of no cluster or of a new one."""
        vhosts, owner, me = self._node.vhosts, self._owner, self._node.me.node_id
        home = vhosts.directory.home
        if not self._node.settings.federated.node or home.owner == owner:
            return
        known = home.owner in ("", me)
        vhosts.set_home(Home(owner, home.salt if known else owner))

    @property
    def _owner(self) -> str:
        return self._node.core.cluster_id or self._node.me.node_id

    def exchange_made(self, vhost: str, exchange: str) -> None:
        """Before anything is published to it."""
        if any(key[0] == vhost and agent.entry.exchange == exchange for key, agent in self._agents.items()):
            self._forward(vhost, exchange)

    def tick(self, now: float) -> None:
        """Take what came from upstream."""
        if not self._node.vhosts.serving:
            return
        if self._node.broker.input_paused:
            return  # a switchover: no change may become history
        while self._held:
            self._take(*self._held.popleft())
        if self._epoch != self._node.core.epoch or self._seen != self._node.vhosts.directory.generation:
            self.serve(now)
        for key, upstream in self._upstreams.items():
            self._hear(key, upstream, now)
        for agent in self._agents.values():
            for end in agent.ends:
                end.timers(now)
            self._tell(agent)

    def end_tick(self, now: float) -> None:
        """History is flushed: links get their share, and the other ends hear what is taken for good."""
        broker = self._node.broker
        full = "" if not broker.pausing else broker.block_reason if broker.blocked else "paging is behind"
        if not broker.input_paused:
            self.feeders.end_tick()
        self.receivers.end_tick(full=full)
        for agent in self._agents.values():
            if agent.taker is not None:
                agent.taker.end_tick(full=full)
            if agent.giver is not None and not broker.input_paused:
                agent.giver.end_tick(now)

    def next_deadline(self) -> float | None:
        """Without the deadlines of the peerings."""
        broker = self._node.broker
        if not broker.output_fenced and not broker.input_paused:  # else nothing is handed out
            pushes = [agent.push for agent in self._agents.values() if agent.push is not None]
            if self._queues.hungry or any(push.hungry for push in pushes):
                return self._node.now
        return earliest(*(end.next_deadline() for agent in self._agents.values() for end in agent.ends))

    def rest(self) -> None:
        """This broker stops serving, at once: nothing that comes from now on is for it."""
        self.feeders.stop()
        self.receivers.stop()
        if self._agents or self._upstreams:
            for upstream in self._upstreams.values():
                self._node.peerings.remove(upstream.inbox)
            for agent in self._agents.values():
                if agent.model is not None:
                    agent.model.close()
            self._upstreams, self._agents = {}, {}
        self._origins, self._held = {}, deque()
        self._epoch, self._seen = 0, -1

    # -- agents

    def _follow_directory(self, now: float) -> None:
        directory, me = self._node.vhosts.directory, self._node.settings.federated.node
        entries = self._entries()
        wanted = {
            key: agent for key, agent in entries.items()
            if me and (agent.consume_mode, agent.forward_mode) != ("none", "none")
            and (key[0], agent.upstream) in directory.upstreams
        }  # fmt: skip
        for key, agent in list(self._agents.items()):
            entry = directory.upstreams.get(agent.upstream)
            if wanted.get(key) != agent.entry or entry != self._upstreams[agent.upstream].entry:
                self._end(key, agent, now, gone=key not in entries)
        used = {(key[0], agent.upstream) for key, agent in wanted.items()}
        for name, upstream in list(self._upstreams.items()):
            if name not in used or directory.upstreams.get(name) != upstream.entry:
                self._node.peerings.remove(upstream.inbox)
                del self._upstreams[name]
        for name in used - self._upstreams.keys():
            self._upstreams[name] = self._connect(directory.upstreams[name])
        for key, entry_ in wanted.items():
            if key not in self._agents and self._node.vhosts.get(key[0]) is not None:
                self._begin(key, entry_, now)
        for vhost, exchange in {(key[0], agent.entry.exchange) for key, agent in self._agents.items()}:
            self._forward(vhost, exchange)

    def _entries(self) -> dict[Key, FederationAgent]:
        """All agents, with that for routes of each upstream."""
        directory = self._node.vhosts.directory
        routes = {
            (vhost, agent_name(NODES, name)): routes_by(name)
            for (vhost, name), upstream in directory.upstreams.items() if upstream.routes
        }  # fmt: skip
        return {**directory.agents, **routes}

    def _connect(self, entry: Upstream) -> _Upstream:
        node, inbox = self._node, Inbox()
        made = _Upstream(entry, inbox)
        login = node.settings.federated.logins.get(entry.login)
        if login is None:
            made.fault = NO_LOGIN.format(name=entry.login)
            return made
        brokers = [split_address(address) for address in entry.addresses]
        clear = login.tls or node.broker.settings.allow_plain_without_tls
        if not clear and not all(is_near(host) for host, _ in brokers):
            made.fault = IN_CLEAR.format(name=entry.login)
            return made
        node.peerings.add(brokers, replace(login, vhost=entry.vhost), inbox, PeeringKind.FEDERATION)
        node.peerings.due(node.now)
        return made

    def _begin(self, key: Key, entry: FederationAgent, now: float) -> None:
        node = self._node
        vhost = node.vhosts[key[0]]
        agent = self._agents[key] = _Agent(entry, (key[0], entry.upstream))
        me: dict[str, Any] = {
            "agent": key[1], "node": node.settings.federated.node,
            "owner": self._owner, "name": node.me.name,
            "epoch": node.core.epoch, "paused": entry.paused,
        }  # fmt: skip
        if entry.consume_mode == "all":
            origins = self._origins_of(vhost.name, entry.exchange)
            agent.model = ExchangeModel(
                node, self._store, vhost, key[1], entry.exchange, entry.upstream, origins, entry.max_hops
            )
            agent.taker = LinkTaker(
                self._new_stream(),
                entry.exchange,
                agent.model,
                self,
                limits=entry.limits,
                members=self._members(),
                drops=entry.on_outage == "drop",
                **me,
            )
        if entry.forward_mode != "none":
            agent.push = PushQueue(node, vhost, entry, lambda: self._forward(vhost.name, entry.exchange))
            agent.giver = LinkGiver(
                self._new_stream(), entry.exchange, agent.push, self, echo=entry.copy == 0, **me
            )
        there = self._upstreams[agent.upstream]
        for end in agent.ends:
            for address, (why, refused) in there.heard.items():
                end.failed(address, why, refused=refused)
            for peer, address in there.open.items():
                end.opened(peer, address, now)
            if there.fault:
                for address in there.entry.addresses:
                    end.failed(address, there.fault, refused=True)

    def _end(self, key: Key, agent: _Agent, now: float, *, gone: bool) -> None:
        del self._agents[key]
        if agent.model is not None:
            agent.model.close()
        for end in agent.ends:
            end.stop("the agent is removed" if gone else "the agent is set anew", now, delete=gone)
        self._forward(key[0], agent.entry.exchange)
        if gone and agent.push is not None:
            agent.push.remove()

    def _forward(self, vhost: str, exchange: str) -> None:
        """Where messages of that exchange go besides its bindings, or instead."""
        there = self._node.vhosts.get(vhost)
        if there is None or not self._node.vhosts.serving:
            return
        of_it = [
            agent.push for key, agent in self._agents.items()
            if key[0] == vhost and agent.entry.exchange == exchange and agent.push is not None
        ]  # fmt: skip
        prepared = [push.prepare() for push in of_it]
        there.set_forwards(exchange, tuple(forward for forward in prepared if forward is not None))

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

    def _origins_of(self, vhost: str, exchange: str) -> Origins:
        return self._origins.setdefault((vhost, exchange), {})

    # -- what comes from upstreams

    def _ends(self, upstream: Key) -> Iterator[LinkAgent]:
        for agent in list(self._agents.values()):
            if agent.upstream == upstream:
                yield from agent.ends

    def _hear(self, key: Key, upstream: _Upstream, now: float) -> None:
        for item in upstream.inbox.take():
            match item:
                case DialOpen(peer=peer, address=address):
                    upstream.open[peer] = address
                    upstream.heard.pop(address, None)
                    for end in self._ends(key):
                        end.opened(peer, address, now)
                case DialFailed(address=address):
                    self._failed(key, upstream, item)
                case Arrived(peer=peer, method=method, payload=payload):
                    self._method(key, peer, method, payload, now)
                case PeerLost(peer=peer):
                    self._lost(key, peer, now)
                case _:
                    pass

    def _failed(self, key: Key, upstream: _Upstream, dial: DialFailed) -> None:
        login = upstream.entry.login
        why = dial_failure(dial, f"federation.logins.{login}.handshake_timeout")
        if dial.refusal.startswith("403 "):
            why += f" ({RIGHTS.format(name=login)})"
        refused = bool(dial.refusal or dial.distrust)
        upstream.heard[dial.address] = why, refused
        for end in self._ends(key):
            end.failed(dial.address, why, refused=refused)

    def _lost(self, key: Key, peer: int, now: float) -> None:
        upstream = self._upstreams[key]
        address = upstream.open.pop(peer, "")
        if address:
            upstream.heard[address] = "the connection is lost", False
        for end in self._ends(key):
            end.lost(peer, now)

    def _method(self, key: Key, peer: int, method: int, payload: bytes, now: float) -> None:
        try:
            stream, rest = stream_of(payload)
            for end in self._ends(key):
                if end.stream == stream:
                    end.method(peer, method, rest, now)
        except LinkError as error:
            self.close(peer, error.code, f"FRAME_ERROR - {error}")
            self._lost(key, peer, now)

    def _tell(self, agent: _Agent) -> None:
        """Log each change."""
        end = agent.shown
        stands = (end.state, agent.reason)
        if agent.told == stands or end.state is AgentState.STARTING:
            return
        agent.told = stands
        source = f", with {end.source}" if end.source else ""
        why = f": {stands[1]}" if stands[1] else source
        self._node.log(
            codes.AGENT_STATE.say(
                exchange=agent.entry.exchange, upstream=agent.entry.upstream, state=end.state.value, why=why
            )
        )

    # -- for people

    def status(self) -> dict[str, Any]:
        """`node`, `upstreams`, `agents`, `routes`, `ways` and `links`: see docs/reference/http-api.md."""
        directory = self._node.vhosts.directory
        return {
            "node": self._node.settings.federated.node,
            "upstreams": [
                {
                    "name": name, "vhost": vhost, "addresses": list(entry.addresses), "login": entry.login,
                    "upstream_vhost": entry.vhost,
                }
                for (vhost, name), entry in directory.upstreams.items()
            ],
            "agents": [self._line(key, entry) for key, entry in directory.agents.items()],
            "routes": [line for vhost in self._node.vhosts for line in routes(vhost)],
            "ways": [
                self._line(key, entry) for key, entry in self._entries().items() if entry.exchange == NODES
            ],
            "links": [
                *self._queues.status(),
                *(
                    {
                        "exchange": link.offered.exchange, "vhost": self._vhost_of(place[0]),
                        "node": link.offered.node, "way": "gives",
                        "messages": 0, "unacknowledged": 0, "sent": link.intake.taken, "interest": 0,
                    }
                    for place, link in self.receivers.links.items()
                ),
            ],
        }  # fmt: skip

    def trace(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Where a message to `exchange` in `vhost` with the routing key `key` would go."""
        vhost, exchange, key = (args.get(name) for name in ("vhost", "exchange", "key"))
        there = self._node.vhosts.get(vhost) if isinstance(vhost, str) else None
        found = there.exchanges.get(exchange) if there is not None and isinstance(exchange, str) else None
        if there is None or found is None or not exchange or not isinstance(key, str):
            fault = f"there is no exchange {exchange!r:.300} in virtual host {vhost!r:.300}"
            return codes.BAD_ARGUMENTS.say(fault=fault).answer()
        return {"ok": True, "reason": "", "steps": trace(there, found, key)}

    def _vhost_of(self, peer: int) -> str:
        there = self._node.hooks.peers.get(peer)
        return there.vhost_name if there is not None else ""

    def _line(self, key: Key, entry: FederationAgent) -> dict[str, Any]:
        agent = self._agents.get(key)
        line: dict[str, Any] = {
            "exchange": entry.exchange, "vhost": key[0], "upstream": entry.upstream,
            "consume_mode": entry.consume_mode, "forward_mode": entry.forward_mode, "copy": entry.copy,
            "state": "off", "reason": self._why_none(entry), "source": "", "interest": 0, "taken": 0,
            "routed": 0, "unrouted": 0, "refused": 0, "doubles": 0, "looped": 0, "spoilt": 0, "waiting": 0,
            "given": 0,
        }  # fmt: skip
        if agent is None:
            return line
        end = agent.shown
        line |= {"state": end.state.value, "reason": agent.reason, "source": end.source}
        if agent.taker is not None and agent.model is not None:
            taker, model = agent.taker, agent.model
            line |= {
                "interest": taker.interest, "taken": taker.taken, "routed": model.routed,
                "unrouted": model.unrouted, "refused": model.refused, "doubles": taker.doubles,
                "looped": model.looped, "spoilt": model.spoilt,
            }  # fmt: skip
        if agent.push is not None:
            line |= {"waiting": agent.push.waiting, "given": agent.push.sent}
        return line

    def _why_none(self, entry: FederationAgent) -> str:
        if not self._node.settings.federated.node:
            return "this broker has no federation.node"
        if not self._node.vhosts.serving:
            return f"{self._node.me.name} does not serve"
        return OFF if (entry.consume_mode, entry.forward_mode) == ("none", "none") else ""
