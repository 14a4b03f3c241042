"""PlainExchange: an exchange of this broker to which messages of a plain AMQP 0-9-1 broker come.

Owner: Federation. A message is acked there once it is on every disk that counts here. There is no cursor, as
that broker gives no ids: after a failure it sends again what was not acked, and that comes twice.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from broker.amqp091.codec.frames import OVERHEAD
from broker.amqp091.codec.properties import Checked, check
from broker.errors import AmqpError
from broker.model.history.records import Bind, Envelope
from broker.model.queue.link import BOUND_FROM, Path
from broker.model.values import ROOT, Position
from broker.model.vhost.federation_entries import MOST_HOPS
from broker.model.vhost.links import Interest, arrive, nodes_of, plain_node
from ha.adapter.federation.exchange_model import NOWHERE
from ha.adapter.federation.plain.content import came, hop, passed_on, properties_of, with_properties
from ha.adapter.federation.wishes import Wishes
from ha.core.federation.plain.ports import Delivery, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.model.vhost.links import Wish
    from broker.model.vhost.vhost import VirtualHost
    from broker.store.store import Store
    from ha.adapter.federation.ports import FederationNode

_Kind = tuple[str, Checked, Path, int]
"""What all messages of one run share: routing key, properties, path, channel."""


LOOPED, SPOILT = "looped", "spoilt"


class _Fate(NamedTuple):
    """What becomes of a message: its new properties, what they say, and the path that it came by."""

    properties: bytes
    checked: Checked
    path: Path


class PlainExchange:
    """See `ha.core.federation.plain.ports.PlainTakerModel`. `entry`: the name of its directory entry,
    which says that it has a queue there; `upstream_vhost`: the one that is open there."""

    def __init__(
        self, node: FederationNode, store: Store, vhost: VirtualHost, entry: str, exchange: str,
        upstream_vhost: str, max_hops: int,
    ) -> None:  # fmt: skip
        self._node = node
        self._store = store
        self._vhost = vhost
        self._entry = entry
        self._exchange = exchange
        self._upstream_vhost = upstream_vhost
        self._me = node.settings.federated.node
        self._known_as = plain_node(self._me, vhost.name)
        self._max_hops = max_hops
        self._wishes = Wishes(vhost, exchange, self._me, max_hops) if max_hops else None
        self._hops = {False: b"", True: b""}
        self._from = ""
        self._like: tuple[bytes, bool] | None = None
        """Properties of the last message, and whether it was redelivered."""
        self._fate: _Fate | str = SPOILT
        self._settled = self._seen = 0
        self._settling: deque[tuple[Position, int]] = deque()
        """Of each batch with messages: the last tag."""
        self.routed = self.unrouted = self.refused = self.looped = self.spoilt = self.doubled = 0

    def type(self) -> str:
        found = self._vhost.exchanges.get(self._exchange)
        return found.type.value if found is not None else ""

    def wanted(self, upstream: str) -> Iterator[tuple[Wish, Bind | None]]:
        wishes = self._wishes
        if wishes is not None:
            for wish in wishes.all():
                yield wish, self._bind(wishes.of(wish, upstream))

    @property
    def changed(self) -> bool:
        return self._wishes is not None and self._wishes.changed

    @property
    def overrun(self) -> bool:
        return self._wishes is not None and self._wishes.overrun

    def next_change(self, upstream: str) -> tuple[Wish, Bind | None]:
        assert self._wishes is not None
        wish = self._wishes.next_change()
        return wish, self._bind(self._wishes.of(wish, upstream))

    def _bind(self, interest: Interest | None) -> Bind | None:
        """A binding as RabbitMQ's own federation would make it: brokers there see how far it may go on."""
        if interest is None:
            return None
        least = self._max_hops - len(interest.path) + 1
        path = [
            {
                "cluster-name": name, "vhost": self._vhost.name if name == self._me else ROOT,
                "exchange": self._exchange, "hops": least + further,
            }
            for further, name in enumerate(reversed(interest.path))
        ]  # fmt: skip
        arguments = {**interest.arguments, BOUND_FROM: path}
        return Bind(self._exchange, None, "", interest.routing_key, arguments)

    # -- messages

    def begin(self, server: Server, address: str) -> None:
        vhost = self._upstream_vhost
        path = "" if vhost == ROOT else f"/{vhost}"
        cluster = server.cluster
        self._hops = {
            again: hop(cluster, vhost, self._exchange, f"amqp://{address}{path}", redelivered=again)
            for again in (False, True)
        }
        self._from, self._like = server.node, None
        self._settled = self._seen = 0
        self._settling.clear()

    def take(self, deliveries: list[Delivery]) -> None:
        exchange = self._vhost.exchanges.get(self._exchange)
        if exchange is None:
            return  # the link ends, and what was not acked comes again
        kind: _Kind | None = None
        together: list[bytes] = []
        largest = 0
        for delivery in deliveries:
            self._seen = delivery.tag
            read = self._read(delivery)
            if read is None:
                continue
            of, raw = read
            if of != kind and kind is not None:
                self._publish(kind, together, largest)
                together, largest = [], 0
            kind = of
            together.append(raw)
            largest = max(largest, delivery.largest, int.from_bytes(raw[3:7], "big") + OVERHEAD)
        if kind is not None and together:
            self._publish(kind, together, largest)
        position = self._vhost.history.position
        if self._settling and self._settling[-1][0] == position:
            self._settling.pop()
        self._settling.append((position, self._seen))

    def _read(self, delivery: Delivery) -> tuple[_Kind, bytes] | None:
        """None: nothing is to be published of it; it is counted. Of a message with the properties of the last
        one, only the body is another."""
        raw = delivery.raw
        like = properties_of(raw), delivery.redelivered
        if like != self._like:
            self._like, self._fate = like, self._look(delivery)
        fate = self._fate
        if not isinstance(fate, _Fate):
            if fate == LOOPED:
                self.looped += 1
            else:
                self.spoilt += 1
            return None
        kind = delivery.routing_key, fate.checked, fate.path, delivery.channel
        return kind, with_properties(raw, fate.properties)

    def _look(self, delivery: Delivery) -> _Fate | str:
        """What becomes of messages with the properties of this one."""
        raw = delivery.raw
        try:
            if not raw:
                return SPOILT
            check(properties_of(raw))
            found = came(raw)
            path = nodes_of(found.hops)
            if self._me in path or self._known_as in path or len(path) >= MOST_HOPS:
                return LOOPED
            made = properties_of(passed_on(raw, found, [self._hops[delivery.redelivered]]))
            return _Fate(made, check(made), (*path, self._from))
        except AmqpError:
            return SPOILT

    def _publish(self, kind: _Kind, raws: list[bytes], largest: int) -> None:
        key, checked, path, channel = kind
        envelope = Envelope(
            self._node.core.epoch, self._exchange, key, persistent=checked.persistent, wall_ms=0,
            channel=channel, largest_frame=largest, expiration=checked.expiration,
            priority=checked.priority, blind=checked.blind, path=path,
        )  # fmt: skip
        exchange = self._vhost.exchanges[self._exchange]
        result = arrive(self._vhost, exchange, envelope, raws, path, checked.expiration)
        self.routed += result.routed
        self.unrouted += result.unrouted
        self.refused += result.refused

    def settled(self) -> int:
        """On this disk, and on that of each backup that confirms wait for."""
        durable = min(self._store.durable, self._node.core.durable)
        while self._settling and self._settling[0][0] <= durable:
            self._settled = self._settling.popleft()[1]
        return self._settled

    def close(self) -> None:
        """Nobody asks it any more."""
        if self._wishes is not None:
            self._wishes.close()

    def noted(self) -> None:
        vhosts, key = self._node.vhosts, (self._vhost.name, self._entry)
        if key not in vhosts.directory.cursors:
            vhosts.put_cursor(*key, NOWHERE)

    def forget(self) -> None:
        if self._node.vhosts.serving:
            self._node.vhosts.delete_cursor(self._vhost.name, self._entry)

    @property
    def resting(self) -> bool:
        return not self._settling
