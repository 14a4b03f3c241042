"""Primary: feeds backups, holds confirms for those that count, and keeps the in-sync record true.

Owner: HaBroker. Makes calls on RemoteBackup and PrimaryModel, not the other way. `applied` and `durable`
are the watermark that confirms wait for; they move in `ack`, on loss and on inclusion.

Order of an inclusion: guard -> the joiner acks guard and snapshots -> the authority is asked -> the record is
fsynced here -> it is sent, fsynced there and acknowledged -> in sync. Order of an exclusion: hold -> the
authority is asked -> the record is fsynced here -> release, if policy lets; and the notice. One change is
asked for at a time; meanwhile whoever may be in the record counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from broker.model.values import CONFIRM_LEVELS, LEVEL_NAMES, Need, Position
from ha.core import codes
from ha.core.clocks import Clocks
from ha.core.deadlines import earliest
from ha.core.effects import Announce, ClosePeer, FenceOutput, Redial, ResumeOutput, SendMethod
from ha.core.errors import Broken, LinkError
from ha.core.membership import Membership, Status
from ha.core.outbox import Outbox
from ha.core.ports import IdsByEpoch, PrimaryModel
from ha.core.primary.confirm_terms import ConfirmTerms
from ha.core.primary.consistency_checkpoints import ConsistencyCheckpoints
from ha.core.primary.contents import Contents, Place
from ha.core.primary.feeder import Feeder
from ha.core.primary.queue_guard import QueueGuard
from ha.core.primary.remote_backup import Phase, RemoteBackup
from ha.core.primary.standing import held_words, reason_of, state_of
from ha.core.primary.watermark import Watermark
from ha.core.record.in_sync_record import Incarnation, InSyncRecord
from ha.core.record.lease import Lease
from ha.core.record.local_record import LocalRecord
from ha.core.record.record_keeper import RETRY, Deferred, RecordKeeper, Told
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning
from ha.core.wire.hello import JoinRequest
from ha.core.wire.known_targets import WideRun
from ha.core.wire.link import UUID, Ack, Frame, Method, frame, heartbeat, position_bytes, to_json
from understudy.shared.codes import Coded

TICK = 0.001
"""Seconds by which a deadline is overslept, so that "longer than" holds when it is judged."""


class Primary:
    """The serving role, for one epoch. `dethroned` is told what the authority holds instead of its record."""

    def __init__(
        self, me: OwnIdentity, tuning: Tuning, membership: Membership, local: LocalRecord, clocks: Clocks,
        outbox: Outbox, model: PrimaryModel, record: InSyncRecord, keeper: RecordKeeper,
        dethroned: Told, now: float,
    ) -> None:  # fmt: skip
        self._me = me
        self._tuning = tuning
        self._membership = membership
        self._local = local
        self._clocks = clocks
        self._out = outbox
        self._model = model
        self._keeper = keeper
        self.lease = Lease(tuning.lease, keeper.owned_at)
        self._dethroned = dethroned
        self.epoch = record.epoch
        self.backups: dict[str, RemoteBackup] = {}
        self._feeder = Feeder(tuning, outbox, model, record.epoch, lambda: self.backups.values())
        self._leaving: dict[Incarnation, tuple[RemoteBackup, str]] = {}
        """To be excluded, and why; they count until that is committed."""
        self._watermark = Watermark(record.epoch)
        self._terms = ConfirmTerms(CONFIRM_LEVELS[record.confirm])
        self.had_backup = bool(record.in_sync)
        self._next_beat = now
        self._judged_at = now
        self._awake_since = now
        self._hungry = False
        self.drains = False
        """It is about to hand over: every flush is to leave nothing gathered."""
        self.flushed_all = True
        """This tick's flush left nothing gathered: what the queues hold is what history says."""
        self._checkpoints = ConsistencyCheckpoints(tuning, outbox, model, self._feeder, record.epoch, now)
        self._ticked_at = now
        for who in sorted(record.in_sync):
            backup = RemoteBackup(who, record.names.get(who.node_id, ""), None, now)
            backup.guard = QueueGuard.of_expected(self.epoch)
            self.backups[who.node_id] = backup
        self._settle()

    @property
    def confirm_floor(self) -> Need:
        """What confirms of persistent messages wait for at least, whatever less their queues ask for."""
        if self._terms.granted is Need.DURABLE:
            return Need.DURABLE
        in_sync = any(b.phase is Phase.IN_SYNC for b in self.backups.values())
        return self._terms.floor(self._model.weakest_confirm(), in_sync=in_sync)

    @property
    def applied(self) -> Position:
        return self._watermark.applied

    @property
    def durable(self) -> Position:
        return self._watermark.durable

    # -- the record

    @property
    def record(self) -> InSyncRecord:
        record = self._local.record
        if record is None or record.epoch != self.epoch or record.owner != self._me.who:
            raise Broken("a primary serves without the record that names it")
        return record

    def _include(self, backup: RemoteBackup, now: float) -> None:
        """It is guarded, and has everything: from the moment of asking on, the record may name it."""
        backup.including()
        self._settle()
        record = self.record.included(backup.who, backup.name)
        # Who is expected is in the record, whatever the authority makes of that.
        deferred = None if backup.expected else partial(self._deferred, backup)
        self._propose(record, partial(self._included, backup), now, deferred)

    def _included(self, backup: RemoteBackup, now: float) -> None:
        """Committed, and durable here before any later effect. It may have been lost meanwhile."""
        if backup.phase is Phase.INCLUDING:
            backup.committed()
        self._feeder.record(self.backups.values(), self.record)
        self.exclude_next(now)

    def _deferred(self, backup: RemoteBackup, reason: str, now: float) -> None:
        """Nothing was written: the record does not name it. There is nothing to exclude one from that was
        lost meanwhile.
        """
        if backup.phase is Phase.INCLUDING:
            if backup.defer(reason, now + RETRY):
                self._out.log(codes.BACKUP_DEFERRED.say(backup=backup.name, why=reason))
            self._settle()
        elif backup.phase is Phase.LOST:
            del self.backups[backup.who.node_id]
            self._gone(backup, "its link was lost", told=True)
        else:
            self._gone(backup, self._leaving.pop(backup.who)[1])
            self._admit_next(backup.who.node_id, now)
        self.exclude_next(now)

    def _heed_terms(self, now: float) -> None:
        """The record says below which level nothing is confirmed: see ConfirmTerms."""
        wanted = self._model.weakest_confirm()
        if wanted is self._terms.granted and wanted is self._terms.level:
            return
        self._move_terms(wanted)
        if self._terms.due(wanted, self._on_disks(), now) and not self._keeper.busy:
            self._terms.asked = wanted
            record = self.record.under(LEVEL_NAMES[wanted])
            self._propose(record, partial(self._terms_kept, wanted), now, self._terms_deferred)

    def _on_disks(self) -> Position:
        """Up to there everything is on this node's disk, and on that of each backup that counts."""
        return min(self._model.durable(), self.durable)

    def _move_terms(self, wanted: Need) -> None:
        """Note for the ledger from which position of this epoch on confirms go by another level."""
        terms, before = self._terms, self._terms.level
        if not terms.moves(wanted, self._model.position()):
            return
        last = terms.since if terms.level > before else self._on_disks()
        first = last.n + 1 if last.epoch == self.epoch else 0
        self._out.note("confirm_level", view=self.epoch, name=LEVEL_NAMES[terms.level], n=first)

    def _terms_kept(self, level: Need, now: float) -> None:
        """Committed, and durable here before any later effect."""
        self._terms.answered(level)
        self._move_terms(self._model.weakest_confirm())
        self._feeder.record(self.backups.values(), self.record)
        self._out.log(codes.CONFIRM_LEVEL.say(level=LEVEL_NAMES[level]))
        self.exclude_next(now)

    def _terms_deferred(self, reason: str, now: float) -> None:
        """Nothing was written. Meanwhile the stricter of the two levels holds."""
        self._terms.answered(self._terms.granted)
        self._terms.not_before = now + RETRY
        self.exclude_next(now)

    def exclude_next(self, now: float) -> None:
        """The record may be changed once more."""
        if self._leaving and not self._keeper.busy:
            who, (backup, why) = next(iter(self._leaving.items()))
            self._propose(self.record.excluded(who), partial(self._excluded, backup, why), now)

    def _excluded(self, backup: RemoteBackup, why: str, now: float) -> None:
        """The exclusion is committed, and durable here: policy may release what was held. The notice is the
        last thing that the backup gets. Where each node has its own copy of the record, the next promoted
        node goes by its own copy and expects whom that copy names: so all backups that count must have this
        record, too."""
        self._watermark.stop(self._model.position())
        del self._leaving[backup.who]
        if not self._keeper.arbitrates:
            self._watermark.unheard(backup, self.record.version)
        self._feeder.record(self.backups.values(), self.record)
        self._note_record("excluded", backup.name)
        self._out.do(Announce("excluded", backup.who.node_id, backup.name, why))
        self._out.warn(codes.BACKUP_EXCLUDED.say(backup=backup.name, why=why))
        if backup.peer is not None:
            notice = {"record": self.record.as_json(), "reason": why}
            self._out.do(SendMethod(backup.peer, Method.EXCLUDED, to_json(notice)))
            self._close(backup.peer, why)
        self._settle()
        if (held := self.held()) is not None:
            self._out.log(held)
        self._admit_next(backup.who.node_id, now)
        self.exclude_next(now)

    def _admit_next(self, node_id: str, now: float) -> None:
        """Its former link counts no more: it is taken in, if it has asked meanwhile."""
        back = self.backups.get(node_id)
        if back is not None and back.phase is Phase.ASKED:
            self._admit(back, now)

    def _propose(
        self,
        record: InSyncRecord,
        done: Callable[[float], None],
        now: float,
        deferred: Deferred | None = None,
    ) -> None:
        expected, holds = self.record.version, self.lease.holds
        self._keeper.propose(record, expected, done, self._dethroned, now, holds, deferred)

    # -- joining

    def join(self, peer: int, ask: JoinRequest, has: dict[bytes, IdsByEpoch], now: float) -> None:
        """A peer asks to be a backup. Its stream begins right after the next flush.

        A request that was held up on a route that was cut is void, if its node has joined by another since.
        """
        who, old = ask.who, self.backups.get(ask.who.node_id)
        if old is not None and old.life == ask.life and ask.asked_at < old.asked_at:
            return
        if old is not None and old.expected and old.peer is None and old.who == who:
            backup = old
            backup.linked(peer, now)
        else:
            if old is not None:
                self._lose(old, "it has started again" if old.who != who else "it has linked again", now)
            backup = self.backups[who.node_id] = RemoteBackup(who, ask.name, peer, now)
        backup.name, backup.number, backup.life, backup.has = ask.name, ask.number, ask.life, has
        backup.asked_at = ask.asked_at
        if all(left.node_id != who.node_id for left in self._leaving):
            self._admit(backup, now)

    def _admit(self, backup: RemoteBackup, now: float) -> None:
        """Its former link, if there was one, is out of the record."""
        if backup.peer is None:
            return
        backup.admitted(self._keeper.owned_at)
        answer = {
            "ok": True, "epoch": self.epoch, "position": list(self._model.position()),
            "record": self.record.as_json(), "expected": backup.expected,
        }  # fmt: skip
        if backup.expected:
            answer["rest"] = backup.rest(self._tuning, now)
        self._out.do(
            SendMethod(backup.peer, Method.JOIN_OK, to_json(answer)),
            # It knows this node's clock before it can be promoted, however soon that is.
            SendMethod(backup.peer, Method.HEARTBEAT, heartbeat(self._clocks, now)),
        )
        self._out.log(codes.BACKUP_JOINS.say(backup=backup.name, queues=len(backup.has)))
        self._out.do(Announce("joining", backup.who.node_id, backup.name, ""))

    def _advance(self, backup: RemoteBackup, now: float) -> None:
        """Move through the phases as far as is possible now."""
        if backup.phase is Phase.WAITING:
            if not self.flushed_all:
                self._hungry = True
                return
            self._feeder.begin(backup, now)
        if backup.phase is Phase.CATCHING:
            self._catch_up(backup, now)
        elif backup.phase in (Phase.IN_SYNC, Phase.COMMITTED) and backup.queue:
            self._hungry = self._feeder.feed(backup) or self._hungry
        if backup.phase is Phase.GUARDED and backup.guard is not None:
            self._close_up(backup, backup.guard, now)

    def _catch_up(self, backup: RemoteBackup, now: float) -> None:
        """Definitions first, then snapshots; it is guarded once it has nearly all."""
        if backup.behind:
            self._hungry = self._feeder.define(backup, now) or self._hungry
        if backup.behind:
            return
        self._hungry = self._feeder.feed(backup) or self._hungry
        if not backup.queue and backup.paid_up and backup.is_close(self._tuning, now):
            position = self._model.position()
            backup.guarded(position, now)
            self._feeder.stream(backup, frame(Frame.GUARD, [position_bytes(position)]))
            self._settle()

    def _close_up(self, backup: RemoteBackup, guard: QueueGuard, now: float) -> None:
        """Include it once it has all on disk; let confirms go on without it if it stalls."""
        tuning = self._tuning
        whole = backup.complete and backup.acked_durable >= guard.free
        since = max(backup.silent_since(tuning), self._awake_since) if whole else backup.guarded_at
        if whole and now >= backup.include_at and not self._keeper.busy:
            self._include(backup, now)
        elif not backup.expected and now - since > tuning.ack_timeout:
            backup.stalled()
            said = codes.BACKUP_STALLS.say(backup=backup.name)
            self._out.log(
                said if self._watermark.hold is not None else said + "; confirms no longer wait for it"
            )
            self._settle()

    def reset_queue(self, peer: int, queue: bytes, why: str) -> None:
        """A backup in sync cannot trust its copy of a queue: it goes there again, whole. LinkError if it has
        none to trust.
        """
        backup = self.backup_at(peer)
        if backup is None or not backup.live:
            return
        if backup.phase not in (Phase.IN_SYNC, Phase.COMMITTED) or len(queue) != UUID:
            raise LinkError("a queue that is to be sent again while none is in sync")
        self._feeder.again(backup, queue)
        self._out.log(codes.QUEUE_SENT_AGAIN.say(backup=backup.name, why=why))
        self._out.do(Announce("queue-reset", backup.who.node_id, backup.name, why))

    # -- the flow

    @property
    def contents(self) -> Contents:
        """Large messages that go to the backups while they come."""
        return self._feeder.contents

    def batch(
        self, position: Position, wall_ms: int, payload: list[bytes], now: float, places: list[Place],
        wide: list[WideRun],
    ) -> None:  # fmt: skip
        """This tick's history goes to every live backup. `places`: where it has what has gone ahead. `wide`:
        its runs to at least `wide_run` queues."""
        self._feeder.batch(self.backups.values(), position, wall_ms, payload, now, places, wide)

    @property
    def wide_run(self) -> int:
        """From how many queues on the targets of a run are worth remembering."""
        return self._tuning.wide_run

    def ack(self, peer: int, ack: Ack, now: float) -> None:
        """A backup reports. LinkError costs it its link."""
        backup = self.backup_at(peer)
        if backup is None or not backup.live:
            self._still_there(peer, ack, now)
            return
        before, before_durable = backup.acked, backup.acked_durable
        backup.acknowledged(ack, now)
        self.contents.moved(backup)
        if ack.machine_ms > 0 and ack.echo > backup.compared:
            backup.compared = ack.echo
            clock = self._membership.member(backup.who.node_id).clock
            if (news := self._clocks.compare(clock, backup.name, ack.machine_ms, now)) is not None:
                self._out.log(news)
        if backup.acked > before:
            self._note_replicated(backup.name, before, backup.acked, "applied")
        if backup.acked_durable > before_durable:
            self._note_replicated(backup.name, before_durable, backup.acked_durable, "durable")
        if backup.phase is Phase.COMMITTED and ack.record >= self.record.version:
            backup.in_sync(now)
            self._checkpoints.hasten(now)
            self.had_backup = True
            self._out.log(codes.BACKUP_IN_SYNC.say(backup=backup.name, at=tuple(backup.acked)))
            self._note_record("included", backup.name)
            self._out.do(Announce("in-sync", backup.who.node_id, backup.name, ""))
        self._settle()

    def _note_replicated(self, peer: str, old: Position, new: Position, what: str) -> None:
        """That backup has what is beyond `old`, up to `new`: "applied", or "durable"."""
        first = old.n + 1 if old.epoch == new.epoch else 1
        if first <= new.n:
            self._out.note("replicated", peer=peer, epoch=new.epoch, first=first, last=new.n, reason=what)

    def _note_record(self, what: str, peer: str) -> None:
        """The record is another, since `peer` is "included" or "excluded"."""
        record, position = self._local.record, self._model.position()
        names = record.names if record is not None else {}
        in_sync = record.in_sync if record is not None else ()
        found = sorted(names.get(who.node_id, who.node_id) for who in in_sync)
        self._out.note("insync", name=",".join(found), n=position.n, peer=peer, reason=what)

    def _still_there(self, peer: int, ack: Ack, now: float) -> None:
        """One that is being excluded still tells that it follows."""
        for backup, _ in self._leaving.values():
            if backup.peer == peer:
                backup.echoed(ack.echo, now)
                self._settle()

    def _settle(self) -> None:
        """Compute the watermark, whether it is held for want of backups, and when the lease ends."""
        self._watermark.settle(self._all(), self._tuning.wanted)
        if self._membership.status is Status.RECOVERING and not any(b.expected for b in self._all()):
            self._membership.become(Status.ACTIVE)
        self.date_lease()

    def date_lease(self) -> None:
        """The lease dates from what is known of the least known rival: of the nodes that may be in
        the record, and could be promoted. For a rival that has never linked in this epoch, and where there is
        no rival, the authority's answer counts."""
        known = self._keeper.owned_at
        rivals = [known if b.lease_from is None else b.lease_from for b in self._all() if b.counted]
        self.lease.renewed(min(rivals, default=known))

    def heed_lease(self, now: float) -> bool:
        """Fence the clients' output, or resume it, as the lease has it; whether the fence begins now."""
        if not self.lease.change(now):
            return False
        if self.lease.expired:
            self._out.do(FenceOutput(), Redial())
            self._out.warn(codes.LEASE_EXPIRED.say())
            self._next_beat = now
        else:
            self._out.do(ResumeOutput())
            self._out.log(codes.LEASE_RENEWED.say())
        return self.lease.expired

    def _all(self) -> Iterator[RemoteBackup]:
        """Those that count although they are being excluded, too."""
        yield from self.backups.values()
        for backup, _ in self._leaving.values():
            yield backup

    # -- loss

    def peer_lost(self, peer: int, clean: bool, now: float) -> None:
        backup = self.backup_at(peer)
        if backup is None:
            for leaving, _ in self._leaving.values():
                if leaving.peer == peer:
                    leaving.peer = None
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
        self._out.warn(codes.BACKUP_LOST.say(backup=backup.name, why=why))
        self._out.do(Announce("lost", backup.who.node_id, backup.name, why))

    def met(self, who: Incarnation, now: float) -> None:
        """A node was heard of: an older life of it is certainly over."""
        backup = self.backups.get(who.node_id)
        if backup is not None and backup.who.number < who.number:
            self._lose(backup, "it has started again", now)

    def _lose(self, backup: RemoteBackup, why: str, now: float) -> None:
        """Exclude, if it may be in the record: from now on it gets nothing, and is waited for until that is
        committed.
        """
        del self.backups[backup.who.node_id]
        if backup.counted:
            backup.leaving()
            self._leaving[backup.who] = (backup, why)
            self.exclude_next(now)
        else:
            self._gone(backup, why)

    def _gone(self, backup: RemoteBackup, why: str, *, told: bool = False) -> None:
        """The record has never named it. `told`: that it is lost is announced already."""
        self._out.log(codes.JOINER_GONE.say(backup=backup.name, why=why))
        if not told:
            self._out.do(Announce("lost", backup.who.node_id, backup.name, why))
        if backup.peer is not None:
            self._close(backup.peer, why)
        self._settle()

    def _close(self, peer: int, why: str) -> None:
        self._out.do(ClosePeer(peer, 320, f"CONNECTION_FORCED - no longer a backup: {why}"))

    def drop_peer(self, peer: int, why: str, now: float) -> None:
        """The peer has misbehaved on its link, or ends: a loss, but the connection is ours to close."""
        backup = self.backup_at(peer)
        if backup is not None:
            self._lose(backup, why, now)

    # -- time

    def end_tick(self, now: float) -> None:
        """After the flush: cut a consistency checkpoint if it is time; begin, feed and advance joiners."""
        if self._checkpoints.due(self.backups.values(), now) and self.flushed_all:
            self.cut_checkpoint(now)
            self._checkpoints.history_checkpoint(self.backups.values())
        self._hungry, self._ticked_at = False, now
        self._heed_terms(now)
        self.contents.end_tick()
        for backup in list(self.backups.values()):
            if backup.peer is not None:
                self._advance(backup, now)

    def flushes_all(self, now: float) -> bool:
        """Asked before each flush: is it to leave nothing gathered? So it must where `end_tick` will cut
        queues for a joiner, or make a consistency checkpoint, or hand over: at one position, all copies hold
        the same.
        """
        cuts = any(b.phase is Phase.WAITING or b.queue for b in self.backups.values())
        self.flushed_all = self.drains or cuts or self._checkpoints.due(self.backups.values(), now)
        return self.flushed_all

    def cut_checkpoint(self, now: float) -> None:
        """Cut a consistency checkpoint, if a backup is in sync and history has moved since the one before."""
        self._checkpoints.cut(self.backups.values(), now)

    def timers(self, now: float) -> None:
        """Heartbeats, and judgement on the silent. After a pause of our own, first listen, then judge."""
        tuning = self._tuning
        if now - self._judged_at > tuning.ack_timeout / 2:
            self._awake_since = now
        self._judged_at = now
        if now >= self._next_beat:
            self._next_beat = now + tuning.heartbeat
            for backup in self._all():
                if backup.peer is not None and backup.phase is not Phase.WAITING:
                    self._out.do(SendMethod(backup.peer, Method.HEARTBEAT, heartbeat(self._clocks, now)))
        for backup in list(self.backups.values()):
            if why := backup.verdict(tuning, now, self._awake_since):
                self._lose(backup, why, now)

    def next_deadline(self) -> float | None:
        """Always soon: the heartbeat. At once while a joiner's window is open."""
        if self._hungry:
            return self._ticked_at
        return earliest(
            None if self.lease.expired else self.lease.until,
            self._next_beat if self.backups or self._leaving else None,
            *[b.verdict_at(self._tuning, self._awake_since) + TICK for b in self.backups.values()],
        )

    # -- for status and sentences

    def reason(self) -> str:
        return reason_of(
            self.backups.values(), [b.name for b, _ in self._leaving.values()],
            output_fenced=self.lease.expired, held=self.held(),
        )  # fmt: skip

    def held(self) -> Coded | None:
        """Why confirms are held for want of backups, and how that ends; None if they are not."""
        return held_words(self._tuning, self.backups.values()) if self._watermark.hold is not None else None

    def in_sync_names(self) -> list[str]:
        return sorted(b.name for b in self.backups.values() if b.phase is Phase.IN_SYNC)

    def member_states(self) -> dict[str, dict[str, Any]]:
        """Per node id: what the status command shows of it."""
        return {node_id: state_of(backup) for node_id, backup in self.backups.items()}

    def peers(self) -> list[int]:
        """Connections of all backups, those that are being excluded included."""
        return [b.peer for b in self._all() if b.peer is not None]

    def backup_at(self, peer: int) -> RemoteBackup | None:
        for backup in self.backups.values():
            if backup.peer == peer:
                return backup
        return None
