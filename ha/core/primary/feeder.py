"""Feeder: writes the link streams of one primary: definitions, snapshots a share a tick, records, batches.

Owner: Primary. Makes calls on PrimaryModel and on a backup's ReplicatingSubscriptions, not the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.model.values import Position
from ha.core.effects import SendStream
from ha.core.outbox import Outbox
from ha.core.ports import PrimaryModel
from ha.core.primary.contents import Contents, Place
from ha.core.primary.remote_backup import RemoteBackup
from ha.core.record.in_sync_record import InSyncRecord
from ha.core.tuning import Tuning
from ha.core.wire.known_targets import WideRun
from ha.core.wire.link import (
    Frame,
    LeftOut,
    batch_frame,
    batch_head,
    batch_of_contents,
    frame,
    position_bytes,
    to_json,
)  # fmt: skip
from ha.core.wire.replicating_subscription import ReplicatingSubscription

PER_QUEUE = 512
"""Bytes that a queue counts for, in a tick's share, beyond what is sent of it."""


class Feeder:
    """State is the backups'; this knows what to write to them."""

    def __init__(
        self,
        tuning: Tuning,
        outbox: Outbox,
        model: PrimaryModel,
        epoch: int,
        backups: Callable[[], Iterable[RemoteBackup]],
    ) -> None:
        self._tuning = tuning
        self._out = outbox
        self._model = model
        self._epoch = epoch
        self.contents = Contents(tuning, backups, self.stream)

    def begin(self, backup: RemoteBackup, now: float) -> None:
        """Right after a flush: what history goes on from. Definitions of this moment follow, over many ticks
        if there are many; batches wait for the last of them.
        """
        definitions = self._model.definitions(self._tuning.definitions_chunk)
        backup.begins(self._model.position(), definitions, now)

    def define(self, backup: RemoteBackup, now: float) -> bool:
        """One tick's share of the definitions and of the batches that wait for them, within the joiner's
        window; whether it could take more at once.
        """
        window, left = self._tuning.joiner_window, self._tuning.definitions_chunk
        position = position_bytes(backup.sent)
        while backup.definitions is not None and left > 0 and backup.in_flight < window:
            part = next(backup.definitions, None)
            if part is None:
                backup.definitions, backup.has = None, {}
                self.stream(backup, frame(Frame.DEFINED, [position]))
            else:
                backup.queue.extend(
                    ReplicatingSubscription(queue, backup.has.pop(queue, {}), self._epoch, live_from)
                    for queue, live_from in part.queues
                )
                self.stream(backup, frame(Frame.DEFINITIONS, [position, *part.records]))
                left -= len(part.records)
            backup.fed = backup.bytes_sent
        while backup.definitions is None and backup.held and backup.in_flight < window:
            batch = backup.let_go()
            backup.sending(batch.position, batch.size, now)
            self.stream(backup, batch.parts)
        return backup.behind and backup.in_flight < window

    def again(self, backup: RemoteBackup, queue: bytes) -> None:
        """All of one queue, to a backup that has everything else: only what follows is in the stream."""
        backup.queue.append(ReplicatingSubscription(queue, {}, self._epoch, None))

    def feed(self, backup: RemoteBackup) -> bool:
        """One tick's share of the snapshots, within the joiner's window; whether it could take more at
        once. A share a round trip goes also where the stream itself fills the window, for as long as it may.
        """
        limit = self._tuning.snapshot_chunk
        window = self._tuning.joiner_window - backup.in_flight
        if window <= 0 and backup.bytes_received >= backup.fed:
            window = 1
        parts: list[bytes] = []
        while backup.queue and limit > 0 and window > 0:
            subscription = backup.queue[0]
            if not subscription.begun and not self._model.has(
                subscription.queue
            ):  # it was deleted; the stream has told
                backup.queue.popleft()
                continue
            more = [] if subscription.begun else subscription.begin(self._model)
            pieces, whole = subscription.read(self._model, limit)
            if whole:
                backup.queue.popleft()
            more += pieces
            size = sum(map(len, more))
            limit -= size + PER_QUEUE
            window -= size
            parts += more
        if self.stream(backup, parts):
            backup.fed = backup.bytes_sent
        return bool(backup.queue) and backup.in_flight < self._tuning.joiner_window

    def record(self, backups: Iterable[RemoteBackup], record: InSyncRecord) -> None:
        """Every linked backup gets a copy of the committed record, and learns which backups are not included
        again yet."""
        everybody = list(backups)
        told = record.as_json()
        if expected := sorted(b.who.node_id for b in everybody if b.on_the_clock):
            told["expected"] = expected
        for backup in everybody:
            if backup.live and backup.peer is not None:
                self.stream(backup, frame(Frame.RECORD, [to_json(told)]))

    def batch(
        self,
        backups: Iterable[RemoteBackup],
        position: Position,
        wall_ms: int,
        payload: list[bytes],
        now: float,
        places: list[Place],
        wide: list[WideRun],
    ) -> None:
        """This tick's history goes to every live backup, without the octets that it has. O(records)."""
        parts: list[bytes] | None = None
        size = 0
        for backup in backups:
            if backup.live:
                if places and (sent := self.contents.places(backup, places)):
                    self._batch_of_contents(backup, position, wall_ms, payload, now, sent)
                    continue
                if wide and not backup.behind:
                    self._batch_of_targets(backup, position, wall_ms, payload, now, wide)
                    continue
                if parts is None:
                    parts = batch_frame(position, wall_ms, now, payload)
                    size = sum(map(len, parts))
                if backup.behind:
                    backup.hold(position, parts, size)
                    continue
                backup.sending(position, size, now)
                self.stream(backup, parts)

    def _batch_of_targets(
        self, backup: RemoteBackup, position: Position, wall_ms: int, payload: list[bytes], now: float,
        wide: list[WideRun],
    ) -> None:  # fmt: skip
        parts = backup.targets.batch(batch_head(position, wall_ms, now), payload, wide)
        backup.sending(position, sum(map(len, parts)), now)
        self.stream(backup, parts)

    def _batch_of_contents(
        self, backup: RemoteBackup, position: Position, wall_ms: int, payload: list[bytes], now: float,
        sent: list[Place],
    ) -> None:  # fmt: skip
        left_out = [LeftOut(p.content.number, p.record, p.at, p.content.octets) for p in sent]
        parts = batch_of_contents(position, wall_ms, now, payload, left_out)
        size = sum(map(len, parts))
        backup.sending(position, size, now, sum(place.content.octets for place in sent))
        self.stream(backup, parts)

    def stream(self, backup: RemoteBackup, parts: list[bytes]) -> int:
        """Bytes sent."""
        if backup.peer is None or not parts:
            return 0
        size = sum(map(len, parts))
        backup.bytes_sent += size
        self._out.do(SendStream(backup.peer, parts))
        return size
