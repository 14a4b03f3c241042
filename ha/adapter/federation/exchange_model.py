"""ExchangeModel: an exchange of this broker to which messages of another cluster come. Owner: Federation.

Messages, and how far they are taken (the cursor, a directory entry), are history of one batch: a disk or a
backup has both or neither.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.amqp091.codec.content_check import unreadable
from broker.model.history.record_codec import encode_record
from broker.model.history.records import Bind, EnqueueRun, MessageId, RawRun, Unbind
from broker.model.routing.node_routes import NODES
from broker.model.values import Position
from broker.model.vhost.federation_entries import MOST_HOPS, Cursor
from broker.model.vhost.links import arrive
from ha.adapter.federation.interest import decoded, interest_of, mark_of, record_of
from ha.adapter.federation.wishes import Wishes
from ha.core.errors import LinkError
from ha.core.federation.intake import BEFORE_ALL
from ha.core.federation.wire import is_node

if TYPE_CHECKING:
    from broker.model.vhost.links import Wish
    from broker.model.vhost.vhost import VirtualHost
    from broker.store.store import Store
    from ha.adapter.federation.ports import FederationNode
    from ha.core.federation.ports import Wanted

NOWHERE = Cursor(b"", *BEFORE_ALL)


class ExchangeModel:
    """See `ha.core.federation.ports.TakerModel`. `entry`: the name of the cursor's directory entry;
    `source`: that of the other broker, for people. `origins`: of each node that published, the sources from
    which that came to this exchange. `max_hops`: 0 where nothing is wanted."""

    def __init__(
        self, node: FederationNode, store: Store, vhost: VirtualHost, entry: str, exchange: str, source: str,
        origins: dict[str, set[str]], max_hops: int = 0,
    ) -> None:  # fmt: skip
        self._node = node
        self._store = store
        self._vhost = vhost
        self._entry = entry
        self._exchange = exchange
        self._source = source
        me = node.settings.federated.node
        self._wishes = Wishes(vhost, exchange, me, max_hops) if max_hops else None
        self._origins = origins
        self.twice = ""
        """Why messages come twice, in a sentence; "" if they do not."""
        self._settled = NOWHERE
        self._settling: deque[tuple[Position, Cursor]] = deque()
        """Of each batch with messages: up to where they are taken with it."""
        if (found := self._cursor()) is not NOWHERE:
            self._settling.append((vhost.history.position, found))
        self.routed = self.unrouted = self.refused = self.looped = self.spoilt = 0

    def type(self) -> str:
        found = self._vhost.exchanges.get(self._exchange)
        return found.type.value if found is not None else ""

    def wanted(self, upstream: str) -> Wanted:
        found = self._wishes.all(upstream) if self._wishes is not None else {}
        return {wish: record_of(self._exchange, interest) for wish, interest in found.items()}

    def changes(self, upstream: str) -> dict[Wish, Bind | None]:
        found = self._wishes.changes(upstream) if self._wishes is not None else {}
        return {
            wish: record_of(self._exchange, interest) if interest is not None else None
            for wish, interest in found.items()
        }

    def mark(self, wish: Wish, bind: Bind) -> int:
        return mark_of(wish, interest_of(bind).path)

    def encode(self, records: list[Bind | Unbind]) -> list[bytes]:
        return [encode_record(record) for record in records]

    def runs(self, payload: bytes) -> list[EnqueueRun]:
        found: list[EnqueueRun] = []
        for record in decoded(payload):
            if not isinstance(record, EnqueueRun):
                raise LinkError("what comes over a link is no message")
            if not all(map(is_node, record.envelope.path)) or len(record.envelope.path) > MOST_HOPS:
                raise LinkError("messages that came through what is no node, or through too many")
            found.append(record)
        return found

    # -- messages

    def _cursor(self) -> Cursor:
        return self._vhost.shared.directory.cursors.get((self._vhost.name, self._entry), NOWHERE)

    def source_queue(self) -> bytes:
        return self._cursor().uuid

    def taken(self, uuid: bytes) -> MessageId:
        return _at(self._cursor(), uuid)

    def take(self, path: tuple[str, ...], run: EnqueueRun, skip: int, wall_ms: int) -> None:
        envelope = run.envelope
        raws = run.raws.split() if isinstance(run.raws, RawRun) else run.raws
        # What comes by a way to this node goes where the default exchange sends it.
        exchange = self._vhost.exchanges.get("" if self._exchange == NODES else self._exchange)
        me = self._node.settings.federated.node
        fit = [raw for raw in raws[skip:] if not unreadable([raw])] if unreadable(raws) else raws[skip:]
        self.spoilt += len(raws) - skip - len(fit)
        if exchange is None or not fit:
            return
        if me in path:
            self.looped += len(fit)
            return
        if path and self._exchange != NODES:
            self._note_origin(path[0])
        left = envelope.expiration
        if left is not None:
            left = max(0, left - max(0, wall_ms - envelope.wall_ms))
        result = arrive(self._vhost, exchange, envelope, fit, path, left)
        self.routed += result.routed
        self.unrouted += result.unrouted
        self.refused += result.refused

    def _note_origin(self, node: str) -> None:
        """Between two nodes there is to be one way: nobody can tell the copies of a message apart."""
        seen = self._origins.setdefault(node, set())
        seen.add(self._source)
        if len(seen) > 1 and not self.twice:
            ways = " and ".join(f"'{source}'" for source in sorted(seen))
            self.twice = (
                f"messages that node '{node}' publishes come from {ways}, once from each: remove the "
                "agents of all but one"
            )

    def took(self, uuid: bytes, upto: MessageId) -> None:
        vhost = self._vhost
        cursor = Cursor(uuid, *upto)
        self._node.vhosts.put_cursor(vhost.name, self._entry, cursor)
        batch = vhost.history.position
        if self._settling and self._settling[-1][0] == batch:
            self._settling.pop()
        self._settling.append((batch, cursor))

    def settled(self, uuid: bytes) -> MessageId:
        """On this disk, and on that of each backup that confirms wait for."""
        durable = min(self._store.durable, self._node.core.durable)
        while self._settling and self._settling[0][0] <= durable:
            self._settled = self._settling.popleft()[1]
        return _at(self._settled, uuid)

    def close(self) -> None:
        """Nobody asks it any more."""
        if self._wishes is not None:
            self._wishes.close()

    def forget(self) -> None:
        if self._node.vhosts.serving:
            self._node.vhosts.delete_cursor(self._vhost.name, self._entry)


def _at(cursor: Cursor, uuid: bytes) -> MessageId:
    """Up to where messages of that link queue are taken."""
    return (cursor.epoch, cursor.sequence) if cursor.uuid == uuid else BEFORE_ALL
