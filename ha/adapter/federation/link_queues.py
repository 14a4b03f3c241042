"""LinkQueues: the queues of this broker that feed brokers downstream. Owner: Federation.

The bindings of a link queue are what the broker downstream wants.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.errors import AmqpError
from broker.model.queue.link import OWNER, link_name
from broker.model.vhost.links import declare_link, end_link, limit
from ha.adapter.federation.asking import LinkInterest, federated
from ha.adapter.federation.feeding import Feeding
from ha.adapter.federation.noting import note_link
from ha.adapter.federation.withholding import publisher
from ha.core.federation.ports import FeederStanding, Found
from ha.core.federation.wire import Open, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.hooks import ExtensionPeer
    from broker.model.history.records import MessageId
    from broker.model.queue.queue import Queue
    from broker.model.routing.exchange import Exchange
    from broker.model.vhost.vhost import VirtualHost
    from ha.adapter.federation.ports import FederationNode
    from ha.core.federation.offers import Handed
    from ha.core.federation.wire import InterestFlag


class LinkQueues:
    """See `ha.core.federation.ports.FeederModel`."""

    def __init__(self, node: FederationNode) -> None:
        self._node = node
        self._feeding: dict[bytes, Feeding] = {}
        self._interest: dict[bytes, LinkInterest] = {}
        """Of each link queue that was taken from since this broker serves."""

    def standing(self) -> FeederStanding:
        node, core, me = self._node, self._node.core, self._node.me
        refusal = ""
        if not node.vhost.serving:
            primary = core.known_primary()
            refusal = f"it does not serve ({core.status.value})" + (f"; {primary} does" if primary else "")
        elif core.output_fenced:
            refusal = "it cannot prove to be the primary"
        return FeederStanding(
            node.settings.federated.node, me.name, core.epoch, core.cluster_id or me.node_id, refusal,
            node.broker.wall_at(node.now),
        )  # fmt: skip

    def find(self, peer: int, asked: Open, most: int) -> Found | Refusal | int:
        taker = self._node.hooks.peers.get(peer)
        if taker is None:
            return Refusal("the connection is gone")
        vhost = self._node.vhosts.get(taker.vhost_name)
        exchange = federated(vhost, asked.exchange)
        if vhost is None or exchange is None:
            return Refusal(
                f"it has no exchange '{asked.exchange}' to federate; declare it there", patient=True
            )
        if exchange.type.value != asked.type:
            why = f"its exchange '{asked.exchange}' is of type {exchange.type.value}, not {asked.type}"
            return Refusal(why, patient=True)
        name = link_name(asked.exchange, asked.node)
        try:
            _check_rights(taker, asked.exchange, name)
            if len(name.encode()) > 255:
                return Refusal(f"the name of its link queue would be too long: {name[:80]}...", patient=True)
            queue = declare_link(vhost, exchange, asked.node, asked.owner, asked.limits)
        except AmqpError as error:
            return Refusal(error.text, patient=True)
        owner = queue.arguments.get(OWNER)
        if owner != asked.owner and owner not in asked.members:
            other = (
                f"another broker has been the node '{asked.node}' there before; if that is gone, delete "
                f"queue '{name}' there"
            )
            return Refusal(other, patient=True)
        told = self._node.vhosts.directory.home.told(queue.uuid)
        interest = self._interest_of(vhost, exchange, queue)
        interest.may = partial(taker.check_topic, "read", exchange.name)
        looked = interest.look(most)
        return looked if looked == most else Found(queue.uuid, told, interest.digest, looked)

    def _interest_of(self, vhost: VirtualHost, exchange: Exchange, queue: Queue) -> LinkInterest:
        found = self._interest.get(queue.uuid)
        if found is None or found.ended:
            gone = [uuid for uuid, interest in self._interest.items() if interest.ended]
            for uuid in gone:
                del self._interest[uuid]
            found = self._interest[queue.uuid] = LinkInterest(vhost, exchange, queue)
        return found

    def attach(self, uuid: bytes, taken: MessageId, limits: Mapping[str, int]) -> None:
        queue = self._node.vhosts.queues_by_uuid[uuid]
        vhost = self._node.vhosts.get(queue.vhost)
        assert vhost is not None
        limit(vhost, queue, limits)
        exchange = vhost.exchanges[queue.name.removeprefix("amq.link.").rpartition("@")[0]]
        feeding = self._feeding[uuid] = Feeding(
            vhost, queue, exchange, queue.name.rpartition("@")[2], publisher(self._node),
            self._node.broker.completion,
        )  # fmt: skip
        self._interest[uuid].begin()
        feeding.taken(taken)
        feeding.begin()
        note_link(self._node, feeding.client, uuid)

    def detach(self, uuid: bytes, *, delete: bool = False, drop: bool = False) -> None:
        feeding = self._feeding.pop(uuid, None)
        if feeding is None:
            return
        feeding.end()
        vhost, queue = feeding.vhost, feeding.queue
        if (delete or drop) and vhost.serving and not queue.deleted and not queue.consumers:
            end_link(vhost, queue, dropped=drop)

    def drained(self, uuid: bytes) -> bool:
        return not self._interest[uuid].held and not self._feeding[uuid].queue.total_count

    def ended(self, uuid: bytes) -> str:
        feeding = self._feeding.get(uuid)
        return feeding.ended() if feeding is not None else "its link queue was deleted"

    def apply(self, uuid: bytes, flags: InterestFlag, payload: bytes) -> Iterator[None]:
        return self._interest[uuid].apply(flags, payload)

    def rest(self) -> None:
        """This broker does not serve any more."""
        self._interest = {}

    def took(self, uuid: bytes, upto: MessageId) -> None:
        self._feeding[uuid].taken(upto)

    def withhold(self, uuid: bytes, nodes: frozenset[str]) -> None:
        self._feeding[uuid].withhold(nodes)

    def read(self, uuid: bytes) -> Handed:
        return self._feeding[uuid].read()

    @property
    def feeding(self) -> bool:
        """There is a link that takes from a queue."""
        return bool(self._feeding)

    @property
    def hungry(self) -> bool:
        return any(feeding.hungry for feeding in self._feeding.values())

    def fed(self, exchange: str) -> set[str]:
        """The nodes that take from exchanges of that name now."""
        return {feeding.client for feeding in self._feeding.values() if feeding.exchange.name == exchange}

    def status(self, addresses: Mapping[bytes, tuple[str, ...]]) -> list[dict[str, object]]:
        """Each link that is fed, for people. `addresses` of the node that takes, by link queue."""
        return [
            {
                "exchange": feeding.exchange.name, "vhost": feeding.vhost.name, "node": feeding.client,
                "way": "takes",
                "messages": feeding.queue.total_count, "unacknowledged": len(feeding.out),
                "sent": feeding.sent, "interest": len(self._interest[uuid].held),
                "addresses": list(addresses.get(uuid, ())),
            }
            for uuid, feeding in self._feeding.items()
        ]  # fmt: skip


def _check_rights(taker: ExtensionPeer, exchange: str, queue: str) -> None:
    """Raises AccessRefused. A plain client that does the same has to have the same rights."""
    taker.check_access("read", "exchange", exchange)
    taker.check_access("configure", "queue", queue)
