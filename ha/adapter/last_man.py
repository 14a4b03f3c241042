"""LastMan: a primary without a backup in sync keeps transient messages on its disk (`ha.last_man`).

Owner: Node, which calls `tick` before the flush of a tick and `end_tick` after it. From the moment that no
backup is in the in-sync set, the store gets transient messages of replicated, durable queues, and their
confirms wait for the disk. What such queues held before goes to the store in slices, behind the flush: a
message that left its queue before is not in a slice, and one that leaves it later is dequeued in the store
too. This ends when a backup is in sync again. Then the older messages leave the store as they leave their
queues.

The ledger does not see the slices: it has noted these messages when they were enqueued.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from broker.model.history.marks import all_stored
from broker.model.history.record_codec import encode_record
from broker.model.history.records import EnqueueRun, MessageId, QueueMarks, id_of
from broker.model.queue.cut import held_after
from broker.model.queue.message_run import group_runs
from broker.model.values import Position, Scope
from ha.adapter import codes
from ha.core.wire.replicating_subscription import fitting

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.model.queue.queue import Queue
    from broker.model.vhost.vhosts import VirtualHosts
    from broker.store.store import Store
    from ha.adapter.recovery import Bases
    from ha.core.ha_broker import HaBroker
    from understudy.shared.codes import Coded

LOOK = 1000
"""Messages looked at in one tick, at most."""
SLICE = 256 << 10
"""Bytes written in one tick, about."""
WAITING = 8
"""Slices that may wait for the disk."""
BEFORE_ALL: MessageId = (0, -1)


class _Node(Protocol):
    core: HaBroker
    vhosts: VirtualHosts

    @property
    def log(self) -> Callable[[Coded], None]: ...


class LastMan:
    """`persist`: keep them. False: only notice since when this node is alone."""

    def __init__(self, node: _Node, store: Store, bases: Bases, *, persist: bool) -> None:
        self._node = node
        self._store = store
        self._bases = bases
        self._persist = persist
        self.alone_since: int | None = None
        """Milliseconds since 1970; None: this node does not serve alone."""
        self.kept_since: int | None = None
        """From then on all transient messages of replicated, durable queues are on disk."""
        self._queue: Queue | None = None
        """Whose older messages are being written."""
        self._at = BEFORE_ALL
        self._upto = 0
        self._waiting: deque[int] = deque()
        """Serials of slices that are not on disk yet."""

    def tick(self, wall_ms: int) -> None:
        """Before the flush: is this node alone?"""
        if self._alone():
            if self.alone_since is None:
                self._begin(wall_ms)
        elif self.alone_since is not None:
            self._end()

    def _alone(self) -> bool:
        """From the committed exclusion of the last backup on, until one has the record that names it."""
        primary, record = self._node.core.primary, self._node.core.record
        if primary is None or record is None or not self._node.vhosts.serving:
            return False
        return not (record.in_sync if self.alone_since is None else primary.in_sync_names())

    def _begin(self, wall_ms: int) -> None:
        self.alone_since = wall_ms
        if self._persist:
            self._node.vhosts.keep_transient(True)
            self._node.log(codes.LAST_MAN_BEGINS.say())

    def _end(self) -> None:
        self.alone_since = self.kept_since = self._queue = None
        self._waiting.clear()
        if self._persist and self._node.vhosts.transient_kept:
            self._node.vhosts.keep_transient(False)
        if self._persist:
            self._node.log(codes.LAST_MAN_ENDS.say())

    # -- older messages

    def end_tick(self, wall_ms: int) -> None:
        """After the flush: write a slice of the older messages."""
        if self.alone_since is None or not self._persist:
            return
        while self._waiting and self._waiting[0] <= self._store.synced:
            self._waiting.popleft()
        if len(self._waiting) < WAITING:
            self._write()
        if self.kept_since is None and not self._unwritten and not self._waiting:
            self.kept_since = wall_ms
            self._node.log(codes.LAST_MAN_KEEPS.say())

    def hungry(self) -> bool:
        """Whether another slice could go at once."""
        return self._unwritten and len(self._waiting) < WAITING

    @property
    def _unwritten(self) -> bool:
        return self._persist and (self._queue is not None or bool(self._node.vhosts.unkept))

    def _write(self) -> None:
        looks, octets = LOOK, SLICE
        history = self._node.vhosts.history
        payload: list[bytes] = []
        records: list[EnqueueRun | QueueMarks] = []
        while looks > 0 and octets > 0 and (queue := self._next()) is not None:
            runs, looked = self._slice(queue, looks, octets)
            more = [*runs, *(self._marks(queue) if self._queue is None else ())]
            encoded = [encode_record(record) for record in more]
            payload += encoded
            records += more
            octets -= sum(map(len, encoded))
            looks -= looked
        if payload:
            serial = self._store.append(Position(history.epoch, history.n), payload, records)
            self._waiting.append(serial)
            if self._store.roll_due:
                self._store.roll(self._bases())

    def _next(self) -> Queue | None:
        unkept = self._node.vhosts.unkept
        while (self._queue is None or self._queue.deleted) and unkept:
            self._queue = next(iter(unkept))
            self._upto = unkept.pop(self._queue) - 1
            self._at = BEFORE_ALL
        if self._queue is not None and self._queue.deleted:
            self._queue = None
        return self._queue

    def _slice(self, queue: Queue, most: int, octets: int) -> tuple[list[EnqueueRun], int]:
        """Runs of the next transient messages, and how much work that was, in messages."""
        last = (queue.ids.epoch, self._upto)
        entries, upto = held_after(queue, self._at, most)
        if upto is None or upto >= last:
            upto = last
            del entries[bisect_right(entries, last, key=id_of) :]
        if (count := fitting(entries, octets)) < len(entries):
            del entries[count:]
            upto = id_of(entries[-1])
        self._at = upto
        if upto == last:
            self._queue = None
        transient = [entry for entry in entries if not entry[1].persistent]
        runs = [replace(run, scope=queue.content_scope) for run in group_runs(queue.uuid, transient)]
        return runs, len(entries) + 16

    def _marks(self, queue: Queue) -> list[QueueMarks]:
        """The disk has all of the queue: a restart then knows all numbers of producers, too."""
        marks = {name: all_stored(mark) for name, mark in queue.marks.items()}
        self._node.vhosts.producers.set_marks(queue, marks)
        return [QueueMarks(queue.uuid, marks, Scope.STORE)] if marks else []

    # -- reading

    def words(self) -> str:
        """For people, behind the reason of the node's state; empty unless this node keeps such messages."""
        if self.alone_since is None or not self._persist:
            return ""
        kept = self.kept_since
        disk = "being written to disk" if kept is None else f"on disk since {_time(kept)}"
        return f"; alone since {_time(self.alone_since)}, transient messages are {disk}"

    def status(self) -> dict[str, Any]:
        """Seconds since 1970; `on_disk_since` is None while older messages are being written."""
        return {
            "persist": self._persist,
            "alone_since": _seconds(self.alone_since),
            "on_disk_since": _seconds(self.kept_since),
        }


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _seconds(wall_ms: int | None) -> float | None:
    return None if wall_ms is None else wall_ms / 1000
