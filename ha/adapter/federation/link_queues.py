"""LinkQueues: the queues of this broker that feed brokers downstream. Owner: Federation.

The bindings of a link queue are what the broker downstream wants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.errors import AmqpError, PreconditionFailed
from broker.model.history.records import Bind, MessageId
from broker.model.queue.link import OWNER, link_name
from broker.model.vhost.federation_entries import MOST_HOPS
from broker.model.vhost.links import Interest, ask_for, asked_for, behind, declare_link, end_link, forgo
from ha.adapter.federation.feeding import Feeding
from ha.adapter.federation.interest import changes, interest_of, mark_of
from ha.core.federation.ports import FeederStanding, Found
from ha.core.federation.wire import InterestFlag, Open, Refusal, digest_of

if TYPE_CHECKING:
    from broker.hooks import ExtensionPeer
    from ha.adapter.federation.ports import FederationNode

MOST_INTEREST = 100_000
"""Bindings of one link."""


class LinkQueues:
    """See `ha.core.federation.ports.FeederModel`."""

    def __init__(self, node: FederationNode) -> None:
        self._node = node
        self._feeding: dict[bytes, Feeding] = {}

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

    def find(self, peer: int, asked: Open) -> Found | Refusal:
        taker = self._node.hooks.peers.get(peer)
        if taker is None:
            return Refusal("the connection is gone")
        vhost = self._node.vhosts.get(taker.vhost_name)
        exchange = vhost.exchanges.get(asked.exchange) if vhost is not None else None
        if vhost is None or exchange is None or exchange.internal or not exchange.name:
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
        own = asked_for(vhost, queue)
        marks = sum(mark_of(wish, behind(each).path) for wish, each in own.items())
        return Found(queue.uuid, self._node.vhosts.directory.home.told(queue.uuid), digest_of(marks))

    def attach(self, uuid: bytes, taken: MessageId) -> None:
        queue = self._node.vhosts.queues_by_uuid[uuid]
        vhost = self._node.vhosts.get(queue.vhost)
        assert vhost is not None
        exchange = vhost.exchanges[queue.name.removeprefix("amq.link.").rpartition("@")[0]]
        feeding = self._feeding[uuid] = Feeding(vhost, queue, exchange, queue.name.rpartition("@")[2])
        feeding.taken(taken)
        feeding.begin()

    def detach(self, uuid: bytes, *, delete: bool = False, drop: bool = False) -> None:
        feeding = self._feeding.pop(uuid, None)
        if feeding is None:
            return
        feeding.end()
        vhost, queue = feeding.vhost, feeding.queue
        if (delete or drop) and vhost.serving and not queue.deleted and not queue.consumers:
            end_link(vhost, queue, dropped=drop)

    def ended(self, uuid: bytes) -> str:
        feeding = self._feeding.get(uuid)
        return feeding.ended() if feeding is not None else "its link queue was deleted"

    def interest(self, uuid: bytes, flags: InterestFlag, payload: bytes) -> str:
        feeding = self._feeding[uuid]
        vhost = feeding.vhost
        if why := feeding.ended():
            return why
        if flags & InterestFlag.FIRST:
            feeding.begun = {}
        for record in changes(payload):
            item = interest_of(record)
            if len(item.path) > MOST_HOPS:
                return f"an interest that came through {len(item.path)} nodes: {MOST_HOPS} are the most"
            if why := self._change(feeding, item, wanted=isinstance(record, Bind)):
                return why
        if flags & InterestFlag.LAST and feeding.begun is not None:
            begun, feeding.begun = feeding.begun, None
            stale = [wish for wish in feeding.held if wish not in begun]
            forgo(vhost, [feeding.held.pop(wish) for wish in stale])
        return ""

    def _change(self, feeding: Feeding, item: Interest, *, wanted: bool) -> str:
        """Returns why it is refused."""
        wish = item.wish
        known = feeding.held.get(wish)
        same = known is not None and behind(known).path == item.path
        if not wanted:
            if same:
                forgo(feeding.vhost, [feeding.held.pop(wish)])
            return ""
        if not same:
            if known is None and len(feeding.held) >= MOST_INTEREST:
                return f"more than {MOST_INTEREST:,} bindings of one link"
            try:
                feeding.held[wish] = ask_for(feeding.vhost, feeding.exchange, feeding.queue, item)
            except PreconditionFailed as error:
                return error.text
            if known is not None:
                forgo(feeding.vhost, [known])
        if feeding.begun is not None:
            feeding.begun[wish] = None
        return ""

    def took(self, uuid: bytes, upto: MessageId) -> None:
        self._feeding[uuid].taken(upto)

    def read(self, uuid: bytes) -> list[bytes]:
        return self._feeding[uuid].read()

    @property
    def hungry(self) -> bool:
        return any(feeding.hungry for feeding in self._feeding.values())

    def status(self) -> list[dict[str, object]]:
        """Each link that is fed, for people."""
        return [
            {
                "exchange": feeding.exchange.name, "vhost": feeding.vhost.name, "node": feeding.client,
                "way": "takes",
                "messages": feeding.queue.total_count, "unacknowledged": len(feeding.out),
                "sent": feeding.sent, "interest": len(feeding.held),
            }
            for feeding in self._feeding.values()
        ]  # fmt: skip


def _check_rights(taker: ExtensionPeer, exchange: str, queue: str) -> None:
    """Raises AccessRefused. A plain client that does the same has to have the same rights."""
    taker.check_access("read", "exchange", exchange)
    taker.check_access("configure", "queue", queue)
