"""PrimaryVhost: the serving virtual hosts as the core's PrimaryModel sees it. Reads only. Owner: Node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from dataclasses import replace
from itertools import chain, islice, starmap
from typing import TYPE_CHECKING

from broker.model.history.epoch_ends import EpochEnds
from broker.model.history.marks import Marks
from broker.model.history.record_codec import encode_record
from broker.model.history.records import EnqueueRun, Entry, MessageId, Piece, QueueEnds, QueueMarks, Record
from broker.model.queue.cut import held_after
from broker.model.queue.message_run import group_runs
from broker.model.values import Need, Position, Scope
from broker.model.vhost.fingerprint import Frozen
from broker.model.vhost.policies import weakest_confirm
from broker.model.vhost.vhosts import VirtualHosts
from broker.model.vhost.windows import records_of
from ha.core.ports import DefinitionsPart, IdsByEpoch

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue
    from broker.model.vhost.directory import Directory
    from broker.store.store import Store


class PrimaryVhost:
    """See `ha.core.ports.PrimaryModel`. Called right after the flush of a tick."""

    def __init__(self, vhosts: VirtualHosts, store: Store, owed: Sized = ()) -> None:
        """`owed`: replies and confirms that the broker still has to send."""
        self._vhosts = vhosts
        self._store = store
        self._owed = owed
        self._directory: Directory | None = None
        self._generation = 0
        self._weakest = Need.DURABLE
        """Of these policies, and `ha.confirm`."""

    def position(self) -> Position:
        history = self._vhosts.history
        return Position(history.epoch, history.n)

    def durable(self) -> Position:
        return self._store.durable

    def weakest_confirm(self) -> Need:
        directory = self._vhosts.directory
        if directory is not self._directory or directory.generation != self._generation:
            self._directory, self._generation = directory, directory.generation
            self._weakest = min(self._vhosts.history.confirm, weakest_confirm(directory))
        return self._weakest

    def definitions(self, most: int) -> Iterator[DefinitionsPart]:
        return _parts(Frozen(self._vhosts, Scope.LINK, had=True), most)

    def next_sequence(self, queue: bytes) -> int:
        return self._vhosts.queues_by_uuid[queue].ids.next

    def piece(self, queue: bytes, after: MessageId, most: int) -> Piece | None:
        found = self._vhosts.queues_by_uuid.get(queue)
        if found is None or not found.scope & Scope.LINK:
            return None
        if not found.content_scope & Scope.LINK:
            # Of level `configuration`: whatever a backup holds of it, it holds by itself.
            return Piece([], None)
        return held_after(found, after, most)

    def has(self, queue: bytes) -> bool:
        return queue in self._vhosts.queues_by_uuid

    def all_answered(self) -> bool:
        return not self._owed

    def contents(self) -> list[bytes]:
        return [q.uuid for q in self._vhosts.queues_by_uuid.values() if q.content_scope & Scope.LINK]

    def message_count(self, queue: bytes) -> int | None:
        found = self._vhosts.queues_by_uuid.get(queue)
        return None if found is None else found.total_count

    def held(self, queue: bytes) -> IdsByEpoch:
        return self._vhosts.queues_by_uuid[queue].snapshot()

    def make_history_checkpoint(self) -> bool:
        return self._vhosts.make_history_checkpoint()

    def encode_runs(self, queue: bytes, entries: list[Entry]) -> list[bytes]:
        found = self._vhosts.queues_by_uuid.get(queue)
        scope = found.scope if found is not None else Scope.LINK
        return [encode_record(scoped(run, scope)) for run in group_runs(queue, entries)]


def _parts(frozen: Frozen, most: int) -> Iterator[DefinitionsPart]:
    records = chain(frozen.entries, starmap(_deleted, frozen.deleted_queues), frozen.objects())
    while part := list(islice(records, most)):
        yield DefinitionsPart([encode_record(record) for record in part], [])
    queues = zip(frozen.queues, frozen.nexts, strict=True)
    while some := list(islice(queues, most)):
        records = chain.from_iterable(_contents(queue, sequence, frozen.marks) for queue, sequence in some)
        yield DefinitionsPart(
            [encode_record(record) for record in records],
            [(queue.uuid, sequence) for queue, sequence in some],
        )
    seen = [queue.uuid for queue in frozen.queues if queue.content_scope & Scope.LINK]
    for uuid in seen:
        if (recent := frozen.recent.get(uuid)) is not None:
            for record in records_of(uuid, recent, Scope.LINK):  # a part each, because they may be large
                yield DefinitionsPart([encode_record(record)], [])


def _deleted(uuid: bytes, ends: EpochEnds) -> QueueEnds:
    return QueueEnds(uuid, ends, True, Scope.STORE | Scope.LINK)


def _contents(queue: Queue, sequence: int, marks: Mapping[bytes, Marks]) -> Iterator[Record]:
    """How far history has got in a queue, and which numbers of producers it had."""
    if not queue.content_scope & Scope.LINK:
        yield QueueEnds(queue.uuid, {}, False, queue.scope)
        return
    yield QueueEnds(queue.uuid, queue.ends_before(sequence), False, queue.scope)
    if queue.uuid in marks:
        yield QueueMarks(queue.uuid, marks[queue.uuid], Scope.LINK)


def scoped(run: EnqueueRun, scope: Scope) -> EnqueueRun:
    """The run with the scope it would have had when published: transient messages are never stored."""
    return replace(run, scope=scope if run.envelope.persistent else scope & ~Scope.STORE)
