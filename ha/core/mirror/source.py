"""MirrorSource: the source's end of queue mirrors: the followers, and what each of them gets.

Owner: the adapter. Makes calls on SourceModel, MirrorWire and its MirrorFeeds. It waits for nobody: a
follower that is slow, or gone, holds up no confirm and no message.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.model.history.batch import Batch
from broker.model.history.records import Dequeue, QueueDelete, Record
from ha.core.errors import LinkError
from ha.core.mirror.feed import MirrorFeed
from ha.core.mirror.ports import MirrorWire, SourceModel
from ha.core.mirror.wire import (
    MOST_HAVE,
    MirrorMethod,
    Question,
    SourceAnswer,
    encode_end,
    parse_number,
    parse_question,
)
from ha.core.wire.link import VERSION
from ha.core.wire.queue_snapshot import decode_ids

DELETED = "the queue is deleted"


class MirrorSource:
    """All feeds of one broker. Call `hear` as peers send, `batch` with each flush, `end_tick` after it."""

    def __init__(self, model: SourceModel, wire: MirrorWire) -> None:
        self._model = model
        self._wire = wire
        self._names: dict[int, str] = {}
        self._have: dict[int, bytearray] = {}
        self._offered: dict[int, bytes] = {}
        """Uuid of the queue that each peer was offered last."""
        self.feeds: dict[int, MirrorFeed] = {}

    @property
    def hungry(self) -> bool:
        """Another tick is wanted at once."""
        return any(feed.hungry for feed in self.feeds.values())

    def hear(self, peer: int, method: int, payload: bytes) -> None:
        """Serve one method. What a follower may not send costs it the connection, and nothing else."""
        try:
            self._hear(peer, method, payload)
        except LinkError as error:
            self._drop(peer)
            self._wire.close(peer, error.code, f"FRAME_ERROR - {error}")

    def lost(self, peer: int) -> None:
        """A connection is gone, whatever it was for."""
        self._names.pop(peer, None)
        self._have.pop(peer, None)
        self._offered.pop(peer, None)
        self._drop(peer)

    def _hear(self, peer: int, method: int, payload: bytes) -> None:
        if method == MirrorMethod.ASK:
            question = parse_question(payload)
            self._names[peer] = question.name
            self._wire.send(peer, MirrorMethod.ANSWER, self._answer(peer, question).encode())
        elif method == MirrorMethod.HAVE:
            have = self._have.setdefault(peer, bytearray())
            have += payload
            if len(have) > MOST_HAVE:
                raise LinkError("it holds more than one queue may")
        elif method == MirrorMethod.GO:
            self._go(peer, payload)
        elif method == MirrorMethod.ACK:
            feed = self.feeds.get(peer)
            if feed is not None:
                feed.acknowledged(parse_number(payload))
        else:
            raise LinkError(f"method {method} from a follower")

    def _answer(self, peer: int, question: Question) -> SourceAnswer:
        me = self._model.standing()
        refusal = me.refusal
        if question.node_id == me.node_id:
            refusal = "it is this very broker"
        elif question.node_id in me.members or (question.cluster_id and question.cluster_id == me.cluster_id):
            refusal = f"{question.name} belongs to its cluster, which replicates by itself"
        elif question.version != VERSION:
            refusal = f"its link version is {VERSION}, not {question.version}"
        if refusal:
            return SourceAnswer(False, refusal, me.name, me.epoch)
        found = self._model.find(peer, question.queue)
        if found is None:
            return SourceAnswer(False, f"it has no queue '{question.queue}'", me.name, me.epoch, gone=True)
        if found.refusal:
            return SourceAnswer(False, found.refusal, me.name, me.epoch)
        if question.uuid and question.uuid != found.uuid.hex():
            other = f"its queue '{question.queue}' is another one of the same name"
            return SourceAnswer(False, other, me.name, me.epoch, gone=True)
        self._offered[peer] = found.uuid
        return SourceAnswer(True, "", me.name, me.epoch, found.uuid.hex(), wall_ms=me.wall_ms)

    def _go(self, peer: int, queue: bytes) -> None:
        have = bytes(self._have.pop(peer, b""))
        if queue != self._offered.get(peer) or peer in self.feeds:
            raise LinkError("a queue is wanted by who may not want it")
        ids, end = decode_ids(have)
        if end != len(have):
            raise LinkError("ids with bytes that are none")
        if not self._model.has(queue):
            self._wire.send(peer, MirrorMethod.ENDED, encode_end(DELETED))
            return
        self.feeds[peer] = MirrorFeed(peer, self._names[peer], queue, ids)
        self._model.watch(True)

    # -- the flow

    def batch(self, batch: Batch) -> None:
        """This tick's history."""
        if self.feeds:
            self._records(batch.records)

    # A deletion is one batch with the dequeues of all that the queue held: those are never sent.

    def _records(self, records: Iterable[Record]) -> None:
        for record in records:
            if isinstance(record, Dequeue):
                self._left(record)
            elif isinstance(record, QueueDelete):
                self._end(record.uuid, DELETED)

    def _left(self, record: Dequeue) -> None:
        for feed in list(self.feeds.values()):
            if feed.queue == record.queue and not feed.left(record):
                reason = "the follower is too far behind, and has to compare anew"
                self._end(feed.queue, reason, only=feed.peer)

    def end_tick(self) -> None:
        """After the flush: every follower gets a share."""
        if not self.feeds:
            return
        refusal = self._model.standing().refusal
        for peer, feed in list(self.feeds.items()):
            if refusal:
                self._end(feed.queue, refusal, only=peer)
            else:
                parts = feed.read(self._model)
                if parts:
                    self._wire.send_pieces(peer, MirrorMethod.DATA, parts)

    def _end(self, queue: bytes, reason: str, *, only: int | None = None) -> None:
        """Send its followers nothing more of it. What was sent before still arrives."""
        for peer, feed in list(self.feeds.items()):
            if feed.queue == queue and only in (None, peer):
                self._wire.send(peer, MirrorMethod.ENDED, encode_end(reason))
                self._drop(peer)

    def _drop(self, peer: int) -> None:
        if self.feeds.pop(peer, None) is not None and not self.feeds:
            self._model.watch(False)
