"""Primary: feeds backups, holds confirms for those that count, and keeps the in-sync record true.

Owner: HaBroker. Makes calls on RemoteBackup and PrimaryModel, not the other way. `applied` and `durable`
are the watermark that confirms wait for; they move in `ack`, on loss and on inclusion.

Order of an inclusion: guard -> the joiner acks guard and snapshots -> the record is fsynced here -> it is
sent, fsynced there and acknowledged -> in sync. Order of an exclusion: hold -> record fsynced -> release,
if policy lets.
"""

from __future__ import annotations

from typing import Any

from broker.model.values import FOREVER, Position
from ha.core.effects import ClosePeer, SaveRecord, SendMethod, SendStream
from ha.core.errors import Broken
from ha.core.in_sync_record import Incarnation, InSyncRecord
from ha.core.link import Ack, Frame, Method, batch_frame, frame, heartbeat, position_bytes, to_json
from ha.core.membership import Status
from ha.core.ports import IdsByEpoch, PrimaryModel
from ha.core.queue_guard import QueueGuard
from ha.core.quiesce import encode_point, note_point
from ha.core.remote_backup import Phase, RemoteBackup
from ha.core.replicating_subscription import ReplicatingSubscription
from ha.core.role import Context

TICK = 0.001
"""Seconds by which a deadline is overslept, so that "longer than" holds when it is judged."""


class Primary:
    """The serving role, for one epoch."""

    def __init__(self, context: Context, model: PrimaryModel, record: InSyncRecord, now: float) -> None:
        self._c = context
        self._model = model
        self.epoch = record.epoch
        self.backups: dict[str, RemoteBackup] = {}
        self.applied = FOREVER
        self.durable = FOREVER
        self._hold: tuple[Position, Position] | None = None
        self._lost_one = False
        self.had_backup = bool(record.in_sync)
        self._next_beat = now
        self._judged_at = now
        self._awake_since = now
        self._hungry = False
        self._next_point = now
        self._last_point = Position(self.epoch, 0)
        self._ticked_at = now
        for who in sorted(record.in_sync):
            backup = RemoteBackup(who, record.names.get(who.node_id, ""), None, now)
            backup.guard = QueueGuard.of_expected(self.epoch)
            self.backups[who.node_id] = backup
        if len(self.backups) < context.tuning.min_backups:
            self._hold = (Position(self.epoch, 0), Position(self.epoch, 0))
        self._settle()

    # -- the record

    @property
    def record(self) -> InSyncRecord:
        record = self._c.record
        if record is None or record.epoch != self.epoch or record.owner != self._c.me.who:
            raise Broken("a primary serves without the record that names it")
        return record

    def _commit(self, record: InSyncRecord) -> None:
        """Durable here before any later effect; then every linked backup gets a copy."""
        self._c.record = record
        self._c.do(SaveRecord(record, False))
        for backup in self.backups.values():
            if backup.live and backup.peer is not None:
                self._stream(backup, frame(Frame.RECORD, [to_json(record.as_json())]))

    # -- joining

    def join(self, peer: int, who: Incarnation, name: str, has: dict[bytes, IdsByEpoch], now: float) -> None:
        """A peer asks to be a backup. Its stream begins right after the next flush."""
        old = self.backups.get(who.node_id)
        if old is not None and old.expected and old.peer is None and old.who == who:
            backup = old
            backup.peer, backup.phase, backup.since, backup.last_ack = peer, Phase.WAITING, now, now
        else:
            if old is not None:
                self._lose(old, "it has started again" if old.who != who else "it has linked again", now)
            backup = self.backups[who.node_id] = RemoteBackup(who, name, peer, now)
        backup.name, backup.has = name, has
        answer = {
            "ok": True, "epoch": self.epoch, "position": list(self._model.position()),
            "record": self.record.as_json(), "expected": backup.expected,
        }  # fmt: skip
        self._c.do(SendMethod(peer, Method.JOIN_OK, to_json(answer)))
        self._c.log(f"{name} joins, holding {len(has)} queues")

    def _begin(self, backup: RemoteBackup, now: float) -> None:
        position = self._model.position()
        backup.sent, backup.last_ack, backup.phase = position, now, Phase.CATCHING
        backup.queue.extend(
            ReplicatingSubscription(queue, backup.has.get(queue, {}), self.epoch, live_from)
            for queue, live_from in self._model.queues()
        )
        backup.has = {}
        definitions = self._model.definitions()
        self._stream(backup, frame(Frame.DEFINITIONS, [position_bytes(position), *definitions]))

    def _feed(self, backup: RemoteBackup) -> None:
        """One tick's share of the snapshots, within the joiner's window."""
        limit = self._c.tuning.snapshot_chunk
        while backup.queue and limit > 0 and backup.in_flight < self._c.tuning.joiner_window:
            subscription = backup.queue[0]
            parts: list[bytes] = []
            if not subscription.begun:
                parts = subscription.begin(self._model)
                if not parts:  # the queue was deleted; the stream has told
                    backup.queue.popleft()
                    continue
            more, whole = subscription.read(self._model, limit)
            if whole:
                backup.queue.popleft()
            parts += more
            limit -= self._stream(backup, parts)
        self._hungry = self._hungry or (
            bool(backup.queue) and backup.in_flight < self._c.tuning.joiner_window
        )

    def _advance(self, backup: RemoteBackup, now: float) -> None:
        """Move through the phases as far as what is known allows."""
        if backup.phase is Phase.WAITING:
            self._begin(backup, now)
        if backup.phase is Phase.CATCHING:
            self._feed(backup)
            if not backup.queue and backup.in_flight <= self._c.tuning.short_lag and backup.paid_up:
                position = self._model.position()
                if backup.guard is None:
                    backup.guard = QueueGuard(position)
                    backup.owes = position
                backup.phase, backup.guarded_at = Phase.GUARDED, now
                self._stream(backup, frame(Frame.GUARD, [position_bytes(position)]))
                self._settle()
        if backup.phase is Phase.GUARDED and backup.guard is not None:
            if backup.complete and backup.acked_durable >= backup.guard.free:
                backup.phase = Phase.COMMITTED
                self._commit(self.record.included(backup.who, backup.name))
            elif not backup.expected and now - backup.guarded_at > self._c.tuning.ack_timeout:
                backup.guard, backup.phase = None, Phase.CATCHING
                self._c.log(f"{backup.name} stalls while catching up; confirms no longer wait for it")
                self._settle()

    # -- the flow

    def batch(self, position: Position, wall_ms: int, payload: list[bytes], now: float) -> None:
        """This tick's history goes to every live backup. O(records)."""
        parts: list[bytes] | None = None
        for backup in self.backups.values():
            if backup.live:
                if parts is None:
                    parts = batch_frame(position, wall_ms, now, payload)
                backup.sending(position, now)
                self._stream(backup, parts)

    def ack(self, peer: int, ack: Ack, now: float) -> None:
        """A backup reports. LinkError costs it its link."""
        backup = self._at(peer)
        if backup is None or not backup.live:
            return
        before, before_durable = backup.acked, backup.acked_durable
        backup.acknowledged(ack, now)
        if backup.acked > before:
            self._replicated(backup, before, backup.acked, "applied")
        if backup.acked_durable > before_durable:
            self._replicated(backup, before_durable, backup.acked_durable, "durable")
        if backup.phase is Phase.COMMITTED and ack.record >= self.record.version:
            backup.phase, backup.expected, backup.since = Phase.IN_SYNC, False, now
            self._next_point = now
            self._lost_one, self.had_backup = False, True
            self._c.log(f"{backup.name} is in sync from {_text(backup.acked)} on")
            self._note_record("included", backup)
        self._settle()

    def _replicated(self, backup: RemoteBackup, old: Position, new: Position, what: str) -> None:
        first = old.n + 1 if old.epoch == new.epoch else 1
        if first <= new.n:
            self._c.note(
                "replicated", peer=backup.name, epoch=new.epoch, first=first, last=new.n, reason=what
            )  # fmt: skip

    def _settle(self) -> None:
        """Compute the watermark, and whether it is held for want of backups."""
        guards = [b.guard for b in self.backups.values() if b.guard is not None]
        applied = min((g.applied for g in guards), default=FOREVER)
        durable = min((g.durable for g in guards), default=FOREVER)
        wanted = max(self._c.tuning.min_backups, 1 if self._lost_one and self._c.tuning.block_on_loss else 0)
        if self._hold is not None:
            there = sum(b.phase is Phase.IN_SYNC for b in self.backups.values())
            if there >= wanted:
                self._hold = None
            else:
                applied, durable = min(applied, self._hold[0]), min(durable, self._hold[1])
        self.applied, self.durable = applied, durable
        if self._c.membership.status is Status.RECOVERING and not any(
            b.expected for b in self.backups.values()
        ):
            self._c.membership.become(Status.ACTIVE)

    # -- loss

    def peer_lost(self, peer: int, clean: bool, now: float) -> None:
        backup = self._at(peer)
        if backup is None:
            return
        backup.peer = None
        why = "its link closed" if clean else "its link broke"
        if not backup.counted:
            self._lose(backup, why, now)
            return
        # It may be promoted on the strength of that closed link, so that nothing is confirmed without it
        # while it could still be on its way back to learn of its exclusion.
        backup.lost(now)
        self._settle()
        self._c.log(f"{backup.name}: {why}; confirms wait until it is back or excluded")

    def met(self, who: Incarnation, now: float) -> None:
        """A node was heard of: an older life of it is certainly over."""
        backup = self.backups.get(who.node_id)
        if backup is not None and backup.who.number < who.number:
            self._lose(backup, "it has started again", now)

    def _lose(self, backup: RemoteBackup, why: str, now: float) -> None:
        """Exclude, if it counts: hold, commit, release or keep holding. The notice is the last thing it
        gets.
        """
        del self.backups[backup.who.node_id]
        peer = backup.peer
        if backup.counted:
            last = self._model.position()
            if self._hold is None:
                self._hold = (min(self.applied, last), min(self.durable, last))
            self._lost_one = True
            self._commit(self.record.excluded(backup.who))
            self._note_record("excluded", backup)
            self._c.log(f"{backup.name} is excluded from the record: {why}")
            if peer is not None:
                notice = {"epoch": self.epoch, "revision": self.record.revision, "reason": why}
                self._c.do(SendMethod(peer, Method.EXCLUDED, to_json(notice)))
        else:
            self._c.log(f"{backup.name} is gone before it was in sync: {why}")
        if peer is not None:
            self._c.do(ClosePeer(peer, 320, f"CONNECTION_FORCED - no longer a backup: {why}"))
        self._settle()

    def drop_peer(self, peer: int, why: str, now: float) -> None:
        """The peer has misbehaved on its link: as a loss, but the connection is ours to close."""
        backup = self._at(peer)
        if backup is not None:
            self._lose(backup, why, now)

    # -- time

    def end_tick(self, now: float) -> None:
        """After the flush: cut a quiesce point if it is time; begin, feed and advance joiners."""
        if self.quiesce_due(now):
            self.quiesce(now)
        self._hungry, self._ticked_at = False, now
        for backup in list(self.backups.values()):
            if backup.peer is not None and backup.phase not in (Phase.IN_SYNC, Phase.LOST):
                self._advance(backup, now)

    def quiesce_due(self, now: float) -> bool:
        """This tick's flush is to leave nothing gathered: `end_tick` will cut a quiesce point after it."""
        return now >= self._next_point and any(b.phase is Phase.IN_SYNC for b in self.backups.values())

    def quiesce(self, now: float) -> None:
        """Cut a quiesce point, if a backup is in sync and history has moved since the one before."""
        self._next_point = now + self._c.tuning.quiesce_every
        position = self._model.position()
        synced = [b for b in self.backups.values() if b.phase is Phase.IN_SYNC]
        if not synced or position == self._last_point:
            return
        self._last_point = position
        held = self._model.held(self._c.tuning.quiesce_most)
        name = f"{position.epoch}.{position.n}"
        note_point(self._c, name, held)
        for backup in synced:
            self._stream(backup, frame(Frame.QUIESCE, encode_point(name, held)))

    def timers(self, now: float) -> None:
        """Heartbeats, and judgement on the silent. After a pause of our own, first listen, then judge."""
        tuning = self._c.tuning
        if now - self._judged_at > tuning.ack_timeout / 2:
            self._awake_since = now
        self._judged_at = now
        if now >= self._next_beat:
            self._next_beat = now + tuning.heartbeat
            for backup in self.backups.values():
                if backup.live and backup.peer is not None:
                    self._c.do(SendMethod(backup.peer, Method.HEARTBEAT, heartbeat(now)))
        for backup in list(self.backups.values()):
            silent = now - max(backup.silent_since(), self._awake_since)
            if backup.expected and now - backup.since > tuning.backup_timeout:
                self._lose(
                    backup, f"it has not caught up within {tuning.backup_timeout:g} s of the promotion", now
                )
            elif backup.expected:
                continue
            elif backup.counted and silent > tuning.ack_timeout:
                self._lose(backup, f"no acknowledgement for {tuning.ack_timeout:g} s", now)
            elif not backup.counted and now - max(backup.last_ack, self._awake_since) > tuning.backup_timeout:
                self._lose(backup, f"no acknowledgement for {tuning.backup_timeout:g} s", now)
            elif not backup.counted and backup.in_flight > tuning.joiner_max:
                self._lose(backup, "it cannot keep up", now)

    def next_deadline(self) -> float | None:
        """Always soon: the heartbeat. At once while a joiner's window is open."""
        if self._hungry:
            return self._ticked_at
        if not self.backups:
            return None
        return min(self._next_beat, *(self._verdict_at(b) for b in self.backups.values()))

    def _verdict_at(self, backup: RemoteBackup) -> float:
        """When `timers` would give it up, if it says nothing more."""
        tuning = self._c.tuning
        if backup.expected:
            return backup.since + tuning.backup_timeout + TICK
        since = backup.silent_since() if backup.counted else backup.last_ack
        limit = tuning.ack_timeout if backup.counted else tuning.backup_timeout
        return max(since, self._awake_since) + limit + TICK

    # -- for status and sentences

    def reason(self) -> str:
        lost = [b.name for b in self.backups.values() if b.phase is Phase.LOST]
        if lost:
            return (
                f"serving; the link of {', '.join(lost)} closed, confirms wait until it is back or excluded"
            )
        missing = [b.name for b in self.backups.values() if b.expected]
        if missing:
            return f"serving; confirms wait for {', '.join(missing)}, expected back from before the promotion"
        if self._hold is not None:
            return "serving, but confirms are held: ha.min_backups or the loss policy wants more in sync"
        ready = sorted(b.name for b in self.backups.values() if b.phase is Phase.IN_SYNC)
        if ready:
            return f"serving; confirms wait for {', '.join(ready)}"
        return "serving alone; confirms wait for no backup"

    def in_sync_names(self) -> list[str]:
        return sorted(b.name for b in self.backups.values() if b.phase is Phase.IN_SYNC)

    def member_states(self) -> dict[str, dict[str, Any]]:
        """Per node id: what the status command shows of it."""
        return {
            node_id: {
                "in_sync": b.phase is Phase.IN_SYNC, "phase": b.phase.value, "lag": b.lag,
                "lag_bytes": b.in_flight, "applied": list(b.acked), "durable": list(b.acked_durable),
                "queues_left": len(b.queue),
            }
            for node_id, b in self.backups.items()
        }  # fmt: skip

    def backup_at(self, peer: int) -> RemoteBackup | None:
        return self._at(peer)

    def _at(self, peer: int) -> RemoteBackup | None:
        for backup in self.backups.values():
            if backup.peer == peer:
                return backup
        return None

    def _note_record(self, what: str, backup: RemoteBackup) -> None:
        names = sorted(self.record.names.get(i.node_id, i.node_id) for i in self.record.in_sync)
        self._c.note(
            "insync", name=",".join(names), n=self._model.position().n, peer=backup.name, reason=what
        )  # fmt: skip

    def _stream(self, backup: RemoteBackup, parts: list[bytes]) -> int:
        if backup.peer is None or not parts:
            return 0
        size = sum(map(len, parts))
        backup.bytes_sent += size
        self._c.effects.append(SendStream(backup.peer, parts))
        return size


def _text(position: Position) -> str:
    return f"({position.epoch}, {position.n})"
