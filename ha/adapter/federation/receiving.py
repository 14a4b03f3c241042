"""ReceivingExchanges: the exchanges of this broker to which others give messages. Owner: Federation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.errors import AccessRefused
from broker.model.vhost.federation_entries import MOST_HOPS, received_name
from ha.adapter.federation.asking import federated
from ha.adapter.federation.exchange_model import ExchangeModel
from ha.core.federation.wire import Offer, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.store.store import Store
    from ha.adapter.federation.origins import Origins
    from ha.adapter.federation.ports import FederationNode
    from ha.core.federation.ports import FeederStanding, TakerModel


class ReceivingExchanges:
    """See `ha.core.federation.ports.ReceiverModel`. `origins`: by virtual host and exchange."""

    def __init__(
        self, node: FederationNode, store: Store, standing: Callable[[], FeederStanding],
        origins: Callable[[str, str], Origins],
    ) -> None:  # fmt: skip
        self._node = node
        self._store = store
        self._origins = origins
        self.standing = standing

    def vhost(self, peer: int) -> str:
        giver = self._node.hooks.peers.get(peer)
        return giver.vhost_name if giver is not None else ""

    def receive(self, peer: int, offered: Offer) -> TakerModel | Refusal:
        giver = self._node.hooks.peers.get(peer)
        vhost = self._node.vhosts.get(giver.vhost_name) if giver is not None else None
        exchange = federated(vhost, offered.exchange)
        if giver is None or vhost is None or exchange is None:
            why = f"it has no exchange '{offered.exchange}' to federate; declare it there"
            return Refusal(why, patient=True)
        if exchange.type.value != offered.type:
            why = f"its exchange '{offered.exchange}' is of type {exchange.type.value}, not {offered.type}"
            return Refusal(why, patient=True)
        try:
            giver.check_access("write", "exchange", exchange.name)
        except AccessRefused as error:
            return Refusal(error.text, patient=True)
        entry = received_name(exchange.name, offered.node)
        if len(entry.encode()) > 255:
            return Refusal("the names of the exchange and of the node are too long together", patient=True)
        return ExchangeModel(
            self._node, self._store, vhost, entry, exchange.name, offered.node,
            self._origins(vhost.name, exchange.name), MOST_HOPS if offered.digest else 0,
            partial(giver.check_topic, "write", exchange.name),
        )  # fmt: skip
