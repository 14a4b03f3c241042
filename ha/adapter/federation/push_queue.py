"""PushQueue: an exchange of this broker that gives its messages to an upstream. Owner: Federation.

While it is there, its messages also go, or go instead, to a link queue (`broker.model.routing.forward`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.model.queue.link import ECHO, push_name
from broker.model.routing.forward import Forward
from broker.model.routing.node_routes import NODES
from broker.model.vhost.links import declare_push, end_link, limit
from ha.adapter.federation.asking import MOST_INTEREST, LinkInterest, federated
from ha.adapter.federation.feeding import Feeding
from ha.adapter.federation.noting import note_link
from ha.adapter.federation.withholding import publisher
from ha.core.federation.offers import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.model.history.records import Entry, MessageId
    from broker.model.queue.queue import Queue
    from broker.model.vhost.federation_entries import FederationAgent
    from broker.model.vhost.vhost import VirtualHost
    from ha.adapter.federation.ports import FederationNode
    from ha.core.federation.offers import Handed
    from ha.core.federation.wire import InterestFlag


def waiting_for(vhost: VirtualHost, agent: FederationAgent) -> Queue | None:
    """The link queue in which messages for that upstream wait, if there is one."""
    return vhost.queues.get(push_name(agent.exchange, agent.upstream))


class PushQueue:
    """See `ha.core.federation.ports.GiverModel`. `found`: called when messages go elsewhere than before;
    `ends`: nothing more is to be given but what waits."""

    def __init__(
        self, node: FederationNode, vhost: VirtualHost, agent: FederationAgent, found: Callable[[], None], *,
        ends: bool = False,
    ) -> None:  # fmt: skip
        self._node = node
        self._found = found
        self._vhost = vhost
        self._agent = agent
        self._ends = ends
        self._upstream = ""
        """The node there, once it is known."""
        self._feeding: Feeding | None = None
        self._queue: Queue | None = None
        self._interest: LinkInterest | None = None
        """What the other end wants, if that is asked for."""
        self._given = 0
        """Over links that have ended."""

    def prepare(self) -> Forward | None:
        """The link queue exists from now on, if the exchange does. Returns where messages go."""
        exchange = federated(self._vhost, self._agent.exchange)
        if exchange is None:
            self._queue = None
            return None
        agent = self._agent
        if self._ends:
            self._queue = waiting_for(self._vhost, agent)
            return None
        settings: dict[str, object] = {**agent.limits, **({ECHO: True} if agent.copy == 0 else {})}
        self._queue = declare_push(self._vhost, exchange, agent.upstream, settings)
        limit(self._vhost, self._queue, settings)
        if self.asked or (agent.on_outage == "drop" and self._feeding is None):
            return None
        unmatched = agent.forward_mode == "unmatched"
        return Forward(self._queue, self._upstream, unmatched, agent.copy == 0 and not unmatched)

    def remove(self) -> None:
        """The agent is gone for good, and with it what waits."""
        self.detach()
        queue = waiting_for(self._vhost, self._agent)
        if queue is not None and not queue.deleted and not queue.consumers:
            end_link(self._vhost, queue, dropped=False)

    @property
    def drained(self) -> bool:
        """It was to end, nothing is left, and the upstream can be told so."""
        queue = waiting_for(self._vhost, self._agent)
        return self._ends and (queue is None or (self._feeding is not None and not queue.total_count))

    @property
    def echo(self) -> bool:
        """What waits is to come back from the upstream."""
        queue = waiting_for(self._vhost, self._agent) if self._ends else None
        return self._agent.copy == 0 if queue is None else ECHO in queue.arguments

    @property
    def waiting(self) -> int:
        """Messages that the upstream has not taken."""
        return self._queue.total_count if self._queue is not None and not self._queue.deleted else 0

    @property
    def given(self) -> int:
        """Messages that the upstream has taken, since there is this agent."""
        return self._given + (self._feeding.transferred if self._feeding is not None else 0)

    @property
    def hungry(self) -> bool:
        return self._feeding is not None and self._feeding.hungry

    # -- the model

    def type(self) -> str:
        found = self._vhost.exchanges.get(self._agent.exchange)
        return found.type.value if found is not None and self._queue is not None else ""

    def uuid(self) -> bytes:
        home = self._node.vhosts.directory.home
        return home.told(self._queue.uuid) if self._queue is not None else b""

    @property
    def asked(self) -> bool:
        return self._agent.exchange == NODES

    def digest(self) -> str:
        exchange = self._vhost.exchanges.get(self._agent.exchange)
        if not self.asked or exchange is None or self._queue is None:
            return ""
        found = self._interest
        if found is None or found.ended or found.queue is not self._queue:
            found = self._interest = LinkInterest(self._vhost, exchange, self._queue)
            found.look(MOST_INTEREST)
        return found.digest

    def apply(self, flags: InterestFlag, payload: bytes) -> Iterator[None]:
        return self._interest.apply(flags, payload) if self._interest is not None else iter(())

    def attach(self, node: str) -> None:
        queue, exchange = self._queue, self._vhost.exchanges.get(self._agent.exchange)
        self._upstream = node
        if self._interest is not None:
            self._interest.begin()
        if queue is not None and exchange is not None:
            completion = self._node.broker.completion
            self._feeding = Feeding(
                self._vhost, queue, exchange, node, publisher(self._node), completion, node
            )
            self._feeding.begin()
            note_link(self._node, node, queue.uuid)
        self._found()

    def detach(self) -> None:
        feeding, self._feeding = self._feeding, None
        if feeding is None:
            return
        self._given += feeding.transferred
        feeding.end()
        if self._agent.on_outage == "drop" and self._vhost.serving and not feeding.queue.deleted:
            end_link(self._vhost, feeding.queue, dropped=True)
            self._found()

    def ended(self) -> str:
        return self._feeding.ended() if self._feeding is not None else "its exchange was deleted"

    def took(self, upto: MessageId) -> None:
        if self._feeding is not None:
            self._feeding.taken(upto)

    def withhold(self, nodes: frozenset[str]) -> None:
        if self._feeding is not None:
            self._feeding.withhold(nodes)

    def read(self) -> Handed:
        return self._feeding.read() if self._feeding is not None else NOTHING

    def entries(self) -> list[Entry]:
        """The same, as they are."""
        return self._feeding.entries() if self._feeding is not None else []

    def wall_ms(self) -> int:
        return self._node.broker.wall_at(self._node.now)
