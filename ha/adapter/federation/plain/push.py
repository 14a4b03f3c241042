"""PlainPush: what an exchange here gives to a plain AMQP 0-9-1 broker, as messages of that broker.

Owner: Federation. The link queue and its consumer are those of any agent that gives (`PushQueue`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.amqp10.conversion import as_0_9_1, is_stored
from broker.errors import AmqpError
from broker.model.history.records import Entry, MessageId, id_of
from broker.model.vhost.links import nodes_of
from ha.adapter.federation.plain.content import came, hop, passed_on, properties_of, with_properties
from ha.core.federation.plain.ports import Given

if TYPE_CHECKING:
    from broker.model.queue.link import Path
    from ha.adapter.federation.push_queue import PushQueue


class PlainPush:
    """See `ha.core.federation.plain.ports.PlainGiverModel`. `node`, `vhost`: of this broker. Messages that
    are to come back from there do not say that they have been here."""

    def __init__(self, push: PushQueue, node: str, vhost: str, exchange: str) -> None:
        self._push = push
        self._node = node
        self._vhost = vhost
        self._exchange = exchange
        self._like: tuple[bytes, Path] | None = None
        """Properties and path of the last message."""
        self._properties = b""
        """What became of these properties."""

    def type(self) -> str:
        return self._push.type()

    def attach(self, node: str) -> None:
        self._push.attach(node)

    def detach(self) -> None:
        self._push.detach()

    def ended(self) -> str:
        return self._push.ended()

    def took(self, upto: MessageId) -> None:
        self._push.took(upto)

    def next(self) -> list[Given]:
        now = self._push.wall_ms()
        return [self._given(entry, now) for entry in self._push.entries()]

    def _given(self, entry: Entry, wall_ms: int) -> Given:
        _, envelope, raw = entry
        if is_stored(raw):
            raw = as_0_9_1(raw)
        left = envelope.expiration
        if left is not None:
            left = max(0, left - max(0, wall_ms - envelope.wall_ms))
        like = properties_of(raw), envelope.path
        if left is None and like == self._like:
            return Given(id_of(entry), envelope.routing_key, with_properties(raw, self._properties))
        try:
            found = came(raw)
            known = nodes_of(found.hops)
            path = [node for node in envelope.path if node not in known]
            hops = [self._hop(node) for node in reversed(path if self._push.echo else [*path, self._node])]
            made = passed_on(raw, found, hops, expiration=left)
        except AmqpError:
            return Given(id_of(entry), envelope.routing_key, b"")
        if left is None:
            self._like, self._properties = like, properties_of(made)
        return Given(id_of(entry), envelope.routing_key, made)

    def _hop(self, node: str) -> bytes:
        vhost = self._vhost if node == self._node else "/"
        return hop(node, vhost, self._exchange, f"amqp://{node}")
