"""Feeder: writes the link streams of one primary: definitions, snapshots a share a tick, records, batches.

Owner: Primary. Makes calls on PrimaryModel and on a backup's ReplicatingSubscriptions, not the other way.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.model.values import Position
from ha.core.effects import SendStream
from ha.core.in_sync_record import InSyncRecord
from ha.core.link import Frame, batch_frame, frame, position_bytes, to_json
from ha.core.ports import PrimaryModel
from ha.core.remote_backup import Phase, RemoteBackup
from ha.core.replicating_subscription import ReplicatingSubscription
from ha.core.role import Context

PER_QUEUE = 256
"""Bytes that a queue counts for, in a tick's share, beyond what is sent of it."""


class Feeder:
    """State is the backups'; this knows what to write to them."""

    def __init__(self, context: Context, model: PrimaryModel, epoch: int) -> None:
        self._c = context
        self._model = model
        self._epoch = epoch

    def begin(self, backup: RemoteBackup, now: float) -> None:
        """Right after a flush: what history goes on from, and what there is to fetch."""
        position = self._model.position()
        backup.sent, backup.last_ack, backup.phase = position, now, Phase.CATCHING
        backup.queue.extend(
            ReplicatingSubscription(queue, backup.has.get(queue, {}), self._epoch, live_from)
            for queue, live_from in self._model.queues()
        )
        backup.has = {}
        definitions = self._model.definitions()
        self.stream(backup, frame(Frame.DEFINITIONS, [position_bytes(position), *definitions]))

    def again(self, backup: RemoteBackup, queue: bytes) -> None:
        """All of one queue, to a backup that has everything else: only what follows is in the stream."""
        backup.queue.append(ReplicatingSubscription(queue, {}, self._epoch, None))

    def feed(self, backup: RemoteBackup) -> bool:
        """One tick's share of the snapshots, within the joiner's window; whether it could take more at
        once. A share a round trip goes also where the stream itself fills the window, for as long as it may.
        """
        limit = self._c.tuning.snapshot_chunk
        window = self._c.tuning.joiner_window - backup.in_flight
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
        return bool(backup.queue) and backup.in_flight < self._c.tuning.joiner_window

    def record(self, backups: Iterable[RemoteBackup], record: InSyncRecord) -> None:
        """Every linked backup gets a copy of what was committed, and hears who is not included anew yet."""
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
    ) -> None:
        """This tick's history goes to every live backup. O(records)."""
        parts: list[bytes] | None = None
        for backup in backups:
            if backup.live:
                if parts is None:
                    parts = batch_frame(position, wall_ms, now, payload)
                backup.sending(position, now)
                self.stream(backup, parts)

    def stream(self, backup: RemoteBackup, parts: list[bytes]) -> int:
        """Bytes sent."""
        if backup.peer is None or not parts:
            return 0
        size = sum(map(len, parts))
        backup.bytes_sent += size
        self._c.effects.append(SendStream(backup.peer, parts))
        return size
