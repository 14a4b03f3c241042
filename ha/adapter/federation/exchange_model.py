"""ExchangeModel: an exchange of this broker to which messages of another cluster come. Owner: Federation.

Messages, and how far they are taken (the cursor, a directory entry), are history of one batch: a disk or a
backup has both or neither.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.amqp091.codec.content_check import unreadable
from broker.errors import AccessRefused
from broker.model.history.record_codec import encode_record
from broker.model.history.records import Bind, EnqueueRun, MessageId, RawRun, Unbind
from broker.model.queue.link import link_session, path_of
from broker.model.routing.node_routes import NODES
from broker.model.values import Position
from broker.model.vhost.federation_entries import MOST_HOPS, Cursor
from broker.model.vhost.links import arrive
from ha.adapter.federation.interest import decoded, mark_of, record_of
from ha.adapter.federation.noting import note_link
from ha.adapter.federation.wishes import Wishes
from ha.core.errors import LinkError
from ha.core.federation.holes import Hole
from ha.core.federation.intake import BEFORE_ALL, RunRefused
from ha.core.federation.wire import is_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.model.queue.link import Path
    from broker.model.vhost.links import Interest, Wish
    from broker.model.vhost.vhost import VirtualHost
    from broker.store.store import Store
    from ha.adapter.federation.origins import Origins
    from ha.adapter.federation.ports import FederationNode
    from ha.core.federation.ways import Ways

NOWHERE = Cursor(b"", *BEFORE_ALL)


class ExchangeModel:
    """See `ha.core.federation.ports.TakerModel`. `entry`: the name of the cursor's directory entry;
    `source`: that of the other broker, for people. `origins`: what has come to this exchange by every way.
    `max_hops`: 0 where nothing is wanted. `may`: raises AccessRefused if the other end may not publish with
    this routing key."""

    def __init__(
        self, node: FederationNode, store: Store, vhost: VirtualHost, entry: str, exchange: str, source: str,
        origins: Origins, max_hops: int = 0, may: Callable[[str], None] = lambda key: None,
    ) -> None:  # fmt: skip
        self._node = node
        self._store = store
        self._vhost = vhost
        self._entry = entry
        self._exchange = exchange
        self._source = source
        self._may = may
        me = node.settings.federated.node
        self._wishes = Wishes(vhost, exchange, me, max_hops) if max_hops else None
        self._origins = origins
        self._settled = NOWHERE
        self._settling: deque[tuple[Position, Cursor]] = deque()
        """Of each batch with messages: up to where they are taken with it."""
        if (found := self._cursor()) is not NOWHERE:
            self._settling.append((vhost.history.position, found))
        self.routed = self.unrouted = self.refused = self.looped = self.spoilt = self.doubled = 0
        self.offered = 0
        """Messages of which only the ids came."""

    def type(self) -> str:
        found = self._vhost.exchanges.get(self._exchange)
        return found.type.value if found is not None else ""

    def wanted(self, upstream: str) -> Iterator[tuple[Wish, list[Bind]]]:
        wishes = self._wishes
        return self._each(wishes, wishes.all(), upstream) if wishes is not None else iter(())

    def _each(
        self, wishes: Wishes, found: Iterator[Wish], upstream: str
    ) -> Iterator[tuple[Wish, list[Bind]]]:
        # No generator expression: a compiled one is a list.
        for wish in found:
            yield wish, self._records(wishes.paths_of(wish, upstream))

    @property
    def changed(self) -> bool:
        return self._wishes is not None and self._wishes.changed

    @property
    def overrun(self) -> bool:
        return self._wishes is not None and self._wishes.overrun

    def next_change(self, upstream: str) -> tuple[Wish, list[Bind]]:
        assert self._wishes is not None
        wish = self._wishes.next_change()
        return wish, self._records(self._wishes.paths_of(wish, upstream))

    def _records(self, found: list[Interest]) -> list[Bind]:
        return [record_of(self._exchange, interest) for interest in found]

    def mark(self, wish: Wish, bind: Bind) -> int:
        return mark_of(wish, path_of(bind.arguments))

    def encode(self, record: Bind | Unbind) -> bytes:
        return encode_record(record)

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

    def begun(self, upstream: str) -> None:
        note_link(self._node, upstream)

    @property
    def ways(self) -> Ways:
        return self._origins.ways

    @property
    def way(self) -> str:
        return self._entry

    @property
    def arrivals(self) -> int:
        return self._origins.seen.arrivals

    def taken(self, uuid: bytes) -> tuple[MessageId, tuple[Hole, ...]]:
        cursor = self._cursor()
        if cursor.uuid != uuid:
            return BEFORE_ALL, ()
        return (cursor.epoch, cursor.sequence), _holes_of(cursor)

    def check(self, run: EnqueueRun) -> None:
        try:
            self._may(run.envelope.routing_key)
        except AccessRefused as error:
            raise RunRefused(error.text) from error

    def take(self, path: Path, run: EnqueueRun, skip: int, origin: MessageId | None, wall_ms: int) -> None:
        envelope, count = run.envelope, run.count - skip
        session, first = link_session(run.queues[0], envelope.epoch), run.firsts[0] + skip
        # What comes by a way to this node goes where the default exchange sends it.
        exchange = self._vhost.exchanges.get("" if self._exchange == NODES else self._exchange)
        if exchange is None:
            self._vhost.note_unplaced(session, first, count, "")
            return
        if self._node.settings.federated.node in path:
            self.looped += count
            self._vhost.note_unplaced(session, first, count, "looped")
            return
        fresh = [(0, count)]
        if path and origin is not None and self._exchange != NODES:
            fresh = self._origins.seen.take(path[0], self._entry, *origin, count)
            again = fresh != [(0, count)]
            self._origins.ways.came(self._entry, path[0], again=again)
            if again:
                self._leave_out(fresh, session, first, count)
        if not fresh:
            return
        raws = run.raws.split() if isinstance(run.raws, RawRun) else run.raws
        left = envelope.expiration
        if left is not None:
            left = max(0, left - max(0, wall_ms - envelope.wall_ms))
        for begin, end in fresh:
            for at, some in self._readable(raws[skip + begin : skip + end], session, first + begin):
                number = at - first
                came = None if origin is None or not path else (origin[0], origin[1] + number)
                result = arrive(self._vhost, exchange, envelope, some, path, left, session, at, came)
                self.routed += result.routed
                self.unrouted += result.unrouted
                self.refused += result.refused

    def missing(self, node: str, origin: MessageId, count: int) -> list[tuple[int, int]]:
        return self._origins.seen.missing(node, self._entry, *origin, count)

    def leave_out(self, uuid: bytes, id_: MessageId, count: int) -> None:
        self.offered += count
        self._vhost.note_unplaced(link_session(uuid, id_[0]), id_[1], count, "doubled")

    def _leave_out(self, fresh: list[tuple[int, int]], session: str, first: int, count: int) -> None:
        """What came by another way before."""
        at = 0
        for begin, end in [*fresh, (count, count)]:
            if begin > at:
                self.doubled += begin - at
                self._vhost.note_unplaced(session, first + at, begin - at, "doubled")
            at = end

    def _readable(self, raws: list[bytes], session: str, first: int) -> Iterator[tuple[int, list[bytes]]]:
        """All of them, or stretches without those that cannot be read; each with the id of its first one."""
        if not unreadable(raws):
            yield first, raws
            return
        for at, raw in enumerate(raws, first):
            if unreadable([raw]):
                self.spoilt += 1
                self._vhost.note_unplaced(session, at, 1, "unreadable")
            else:
                yield at, [raw]

    def noted(self, uuid: bytes) -> None:
        if self._cursor() is NOWHERE:
            self._node.vhosts.put_cursor(self._vhost.name, self._entry, Cursor(uuid, *BEFORE_ALL))

    def took(self, uuid: bytes, upto: MessageId, holes: tuple[Hole, ...]) -> None:
        vhost = self._vhost
        cursor = Cursor(uuid, *upto, tuple(number for hole in holes for number in hole))
        self._origins.settle()
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
            begins = f"{self._exchange}@"
            left = (name for vhost, name in self._vhost.shared.directory.cursors if vhost == self._vhost.name)
            if not any(name.startswith(begins) for name in left):
                self._origins.forget()


def _holes_of(cursor: Cursor) -> tuple[Hole, ...]:
    numbers = cursor.holes
    return tuple(Hole(*numbers[at : at + 3]) for at in range(0, len(numbers) - 2, 3))


def _at(cursor: Cursor, uuid: bytes) -> MessageId:
    """Up to where all messages of that link queue are taken."""
    if cursor.uuid != uuid:
        return BEFORE_ALL
    holes = _holes_of(cursor)
    return holes[0].before if holes else (cursor.epoch, cursor.sequence)
