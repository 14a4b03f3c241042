"""MirrorVhost: a queue of this broker that mirrors a queue of another broker. Owner: Node.

It translates ids: the source's outside, those of `broker.model.queue.origin` in the model. Every change is
history of this broker, so its store and its ledger see it; nothing is written anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from broker.amqp091.codec.content_check import unreadable
from broker.model.history.record_codec import CorruptRecord, decode_records
from broker.model.history.records import Dequeue, EnqueueRun, MessageId, QueueDeclare, RawRun, Record
from broker.model.history.replication_id_set import Range, ReplicationIdSet
from broker.model.queue.origin import Origin, follows, origin_of
from broker.model.queue.queue import Queue
from broker.model.values import Reason
from broker.model.vhost.ad_hoc_replica import declare_replica, leave, stamp, take
from broker.model.vhost.vhost import VirtualHost
from broker.wall_clock import JUMP_MS
from ha.core.errors import LinkError
from ha.core.ports import IdsByEpoch
from ha.core.wire.queue_snapshot import minus


class MirrorVhost:
    """See `ha.core.mirror.ports.MirrorModel`. `name`: of the queue here; `addresses`, `queue`: of the source,
    `peering`: of the login there; `wall_at`: the clock by which this broker dates messages."""

    def __init__(
        self, vhost: VirtualHost, name: str, addresses: tuple[str, ...], queue: str, peering: str,
        wall_at: Callable[[float], int] | None = None,
    ) -> None:  # fmt: skip
        self._vhost = vhost
        self.name = name
        self.addresses = addresses
        self._source = queue
        self._peering = peering
        self._wall_at = wall_at
        self._behind_ms = 0
        """How far the source's clock is behind this broker's."""
        found = vhost.queues.get(name)
        self._queue = found if found is not None and follows(found) else None
        self._origin = origin_of(self._queue) if self._queue is not None else None

    @property
    def uuid(self) -> bytes | None:
        return self._origin.uuid if self._origin is not None else None

    @property
    def newest_epoch(self) -> int:
        return self._origin.newest if self._origin is not None else 0

    def count(self) -> int:
        return self._queue.replica.count if self._queue is not None else 0

    def held(self) -> IdsByEpoch:
        if self._queue is None or self._origin is None:
            return {}
        return {self._origin.source(epoch): ids for epoch, ids in self._queue.replica.ids().items()}

    def dated_by(self, wall_ms: int, now: float) -> None:
        if self._wall_at is not None:
            behind = self._wall_at(now) - wall_ms
            self._behind_ms = behind if abs(behind) > JUMP_MS else 0

    def declare(self, uuid: bytes, payload: bytes) -> None:
        records = _decode(payload)
        declared = records[0] if len(records) == 1 else None
        if not isinstance(declared, QueueDeclare) or declared.uuid != uuid or declared.exclusive:
            raise LinkError("a queue that is not the one that was asked for")
        if self._queue is not None:
            return
        if self.name in self._vhost.queues:
            raise LinkError(f"a queue '{self.name}' was declared here meanwhile")
        self._origin = Origin(self.addresses, self._source, uuid, peering=self._peering)
        self._queue = declare_replica(self._vhost, declared, self.name, self._origin)

    def move(self, addresses: tuple[str, ...], peering: str) -> None:
        """The source has these addresses from now on, and that login."""
        queue, origin = self._both()
        self.addresses, self._peering = addresses, peering
        self._stamp(queue, replace(origin, addresses=addresses, peering=peering))

    def take_piece(self, after: MessageId, upto: MessageId, ids: IdsByEpoch, payload: bytes) -> None:
        queue, _ = self._both()
        runs = self._runs(payload, ids)
        origin = self._known(queue, {run.envelope.epoch for run in runs})
        held = queue.replica.ids_within(origin.bound(after), origin.bound(upto))
        there = {epoch: ids[of] for of in ids if (epoch := origin.local(of)) is not None}
        for epoch, extra in minus(held, there).items():
            leave(self._vhost, queue, epoch, extra.ranges(), Reason.DROPPED)
        for run in runs:
            epoch = self._local(origin, run.envelope.epoch)
            first, last = run.firsts[0], run.firsts[0] + run.count - 1
            if queue.replica.ids_within((epoch, first - 1), (epoch, last)):
                raise LinkError("messages that are here already")
            take(self._vhost, queue, run, epoch)

    def leave(self, payload: bytes) -> None:
        queue, origin = self._both()
        for record in _decode(payload):
            if not isinstance(record, Dequeue) or record.queue != origin.uuid or not record.ranges:
                raise LinkError("anything but dequeues of the queue where those were due")
            epoch = origin.local(record.epoch)
            if epoch is None:
                continue
            gone = self._held_of(queue, epoch, record.ranges)
            if gone:
                leave(self._vhost, queue, epoch, gone, record.reason)

    # -- inside

    def _both(self) -> tuple[Queue, Origin]:
        if self._queue is None or self._origin is None or self._queue.deleted:
            raise LinkError(f"queue '{self.name}' is not here")
        return self._queue, self._origin

    def _runs(self, payload: bytes, ids: IdsByEpoch) -> list[EnqueueRun]:
        """The messages of a piece. The source holds each of them in that stretch."""
        runs: list[EnqueueRun] = []
        for record in _decode(payload):
            if not isinstance(record, EnqueueRun) or record.queues != [self.uuid] or not record.count:
                raise LinkError("a piece with anything but messages of its queue")
            first, last = record.firsts[0], record.firsts[0] + record.count - 1
            there = ids.get(record.envelope.epoch)
            if there is None or there.ranges_within(first, last) != [(first, last)]:
                raise LinkError("messages that the source does not hold")
            raws = record.raws.split() if isinstance(record.raws, RawRun) else record.raws
            if fault := unreadable(raws):
                raise LinkError(f"a message that cannot be read: {fault}")
            record.envelope.wall_ms = max(0, record.envelope.wall_ms + self._behind_ms)
            runs.append(record)
        return runs

    def _known(self, queue: Queue, epochs: set[int]) -> Origin:
        """The origin, with a place for each of these epochs. If it has no room for one, raises LinkError,
        with nothing left here: everything is fetched again."""
        _, origin = self._both()
        try:
            longer = origin.extended(epochs, queue.replica.held_epochs())
        except ValueError as error:
            for epoch, ids in queue.replica.ids().items():
                leave(self._vhost, queue, epoch, ids.ranges(), Reason.DROPPED)
            self._stamp(queue, origin.emptied())
            raise LinkError(f"all is fetched anew: {error}") from error
        if longer is not origin:
            self._stamp(queue, longer)
        return longer

    def _stamp(self, queue: Queue, origin: Origin) -> None:
        self._origin = origin
        stamp(self._vhost, queue, origin.text())

    @staticmethod
    def _local(origin: Origin, epoch: int) -> int:
        local = origin.local(epoch)
        if local is None:
            raise LinkError(f"messages of epoch {epoch}, which has no place")
        return local

    @staticmethod
    def _held_of(queue: Queue, epoch: int, ranges: list[Range]) -> list[Range]:
        try:
            gone = ReplicationIdSet.from_ranges(ranges)
        except ValueError as error:
            raise LinkError(f"dequeues that cannot be read: {error}") from error
        held = queue.replica.ids_within((epoch, gone.lowest - 1), (epoch, gone.highest)).get(epoch)
        return (held & gone).ranges() if held else []


def _decode(payload: bytes) -> list[Record]:
    try:
        return decode_records(payload)
    except CorruptRecord as error:
        raise LinkError(f"records that cannot be read: {error}") from error
