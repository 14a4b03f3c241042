"""Federation: the federation links of this broker, at both ends.

Owner: Node, for its life. As upstream it serves whoever asks: it feeds (`LinkFeeders`), and takes what is
given (`LinkReceivers`). As downstream it has `Agents`, while this broker serves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from broker.model.routing.node_routes import NODES
from broker.model.vhost.federation_entries import Home
from ha.adapter import codes
from ha.adapter.federation.agents import Agents
from ha.adapter.federation.link_queues import LinkQueues
from ha.adapter.federation.link_wire import NodeWire
from ha.adapter.federation.origins import Origins
from ha.adapter.federation.receiving import ReceivingExchanges
from ha.adapter.federation.routes import route_lines
from ha.adapter.federation.trace import trace
from ha.core.deadlines import earliest
from ha.core.errors import LinkError
from ha.core.federation.feeder import LinkFeeders
from ha.core.federation.receivers import LinkReceivers
from ha.core.federation.wire import LinkMethod, Refusal, stream_of

if TYPE_CHECKING:
    from broker.store.store import Store
    from ha.adapter.federation.ports import FederationNode
    from ha.core.federation.known import Known

FEDERATION_METHODS = frozenset(LinkMethod)


class Federation:
    """Call `tick` before the broker's end of tick, so that what came is history of that tick; `end_tick`
    after it."""

    def __init__(self, node: FederationNode, store: Store) -> None:
        self._node = node
        node.vhosts.node = node.settings.federated.node
        self._wire = wire = NodeWire(node)
        self._queues = LinkQueues(node)
        self.feeders = LinkFeeders(self._queues, wire)
        exchanges = ReceivingExchanges(node, store, self._queues.standing, self._origins_of)
        self.receivers = LinkReceivers(exchanges, wire)
        self._agents = Agents(node, store, wire, lambda: self._owner, self._origins_of)
        self._origins: dict[tuple[str, str], Origins] = {}
        """By virtual host and exchange."""
        self._held: deque[tuple[int, int, bytes]] = deque()
        """What brokers downstream sent during a switchover, and before the tick after it. It is heard if that
        comes to nothing."""
        self._epoch = 0
        self._seen = -1
        """The generation of the directory that agents were made for."""

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
            self._expel(peer, error)

    def _expel(self, peer: int, error: LinkError) -> None:
        self.lost(peer)
        self._wire.close(peer, error.code, f"FRAME_ERROR - {error}")

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
        self._agents.follow_directory(now)

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
        self._agents.exchange_made(vhost, exchange)

    def interest_told(self, vhost: str, exchange: str) -> Known | None:
        """Whether the upstreams of that exchange route by what it wants now."""
        return self._agents.interest_told(vhost, exchange)

    def tick(self, now: float) -> None:
        """Take what came from upstream."""
        if not self._node.vhosts.serving:
            self._refuse_held()
            return
        if self._node.broker.input_paused:
            return  # a switchover: no change may become history
        while self._held:
            self._take(*self._held.popleft())
        for peer, error in self.feeders.tick():
            self._expel(peer, error)
        if self._epoch != self._node.core.epoch or self._seen != self._node.vhosts.directory.generation:
            self.serve(now)
        self.receivers.tick(now)
        self._agents.tick(now)

    def end_tick(self, now: float) -> None:
        """History is flushed: links get their share, and the other ends hear what is taken for good."""
        if self._idle():
            return
        broker = self._node.broker
        full = "" if not broker.pausing else broker.block_reason if broker.blocked else "paging is behind"
        if not broker.input_paused:
            self.feeders.end_tick()
        self.receivers.end_tick(full=full)
        self._agents.end_tick(now, full=full)

    def next_deadline(self) -> float | None:
        """Without the deadlines of the peerings."""
        broker = self._node.broker
        if self._idle() or broker.input_paused:  # `tick` does nothing then, so no deadline would pass
            return None
        ends = (self._queues, self.feeders, self.receivers, self._agents)
        if not broker.output_fenced and any(end.hungry for end in ends):
            return self._node.now
        return earliest(self.receivers.next_deadline(), *self._agents.deadlines())

    def _idle(self) -> bool:
        """There is no link in either direction, and no agent that wants one."""
        feeders = self.feeders
        return not (
            self._agents.there or self.receivers.links or feeders.links or feeders.hungry
            or self._queues.feeding
        )  # fmt: skip

    def rest(self) -> None:
        """This broker stops serving, at once: nothing that comes from now on is for it."""
        self.feeders.stop()
        self.receivers.stop()
        self._agents.rest()
        self._queues.rest()
        self._refuse_held()
        self._origins = {}
        self._epoch, self._seen = 0, -1

    def _refuse_held(self) -> None:
        """Whoever asked for a link asks again once it has an answer."""
        held, self._held = self._held, deque()
        for peer, method, payload in held:
            if method == LinkMethod.OPEN or method == LinkMethod.OFFER:
                refusal = Refusal("it stops serving").encode()
                self._wire.send(peer, int.from_bytes(payload[:2], "big"), LinkMethod.REFUSED, refusal)

    def _origins_of(self, vhost: str, exchange: str) -> Origins:
        key = vhost, exchange
        if key not in self._origins:
            self._origins[key] = Origins(self._node.vhosts, vhost, exchange)
        return self._origins[key]

    # -- for people

    def status(self) -> dict[str, Any]:
        """`node`, `upstreams`, `agents`, `routes` and `links`: see docs/reference/http-api.md."""
        directory = self._node.vhosts.directory
        return {
            "node": self._node.settings.federated.node,
            "upstreams": [
                {
                    "name": name, "vhost": vhost, "addresses": list(entry.addresses), "login": entry.login,
                    "upstream_vhost": entry.vhost, "routes": entry.routes, "protocol": entry.protocol,
                }
                for (vhost, name), entry in directory.upstreams.items()
            ],
            "agents": self._agents.status(),
            "routes": route_lines(
                self._node.vhosts, self._agents.for_routes(), self._queues.fed(NODES)
            ),
            "links": [
                *self._queues.status(
                    {feed.uuid: feed.asked.addresses for feed in self.feeders.links.values()}
                ),
                *(
                    {
                        "exchange": link.offered.exchange, "vhost": link.vhost,
                        "node": link.offered.node, "way": "gives",
                        "messages": 0, "unacknowledged": 0, "sent": link.intake.taken, "interest": 0,
                        "addresses": list(link.offered.addresses),
                    }
                    for link in self.receivers.links.values()
                ),
            ],
        }  # fmt: skip

    def trace(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Where a message to `exchange` in `vhost` with the routing key `key` would go, which has come by the
        nodes in `through`."""
        vhost, exchange, key = (args.get(name) for name in ("vhost", "exchange", "key"))
        by = args.get("through", [])
        there = self._node.vhosts.get(vhost) if isinstance(vhost, str) else None
        found = there.exchanges.get(exchange) if there is not None and isinstance(exchange, str) else None
        if there is None or found is None or not exchange or not isinstance(key, str):
            fault = f"there is no exchange {exchange!r:.300} in virtual host {vhost!r:.300}"
            return codes.BAD_ARGUMENTS.say(fault=fault).answer()
        if not isinstance(by, list) or not all(isinstance(node, str) for node in by):
            return codes.BAD_ARGUMENTS.say(fault="'through' is a list of nodes").answer()
        return {"ok": True, "reason": "", "steps": trace(there, found, key, tuple(by))}
