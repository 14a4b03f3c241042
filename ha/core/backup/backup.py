"""Backup: follows a primary over one link, or looks for one; remembers how its last link ended.

Owner: HaBroker. Makes calls on BrokerReplicator. Acknowledges at most once a tick: `end_tick`. A batch of
records that are all for the disk is acknowledged once, when it is there, unless that takes longer than DELAY.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from ha.core import codes
from ha.core.ack_times import AckTimes
from ha.core.backup.broker_replicator import BrokerReplicator
from ha.core.clocks import Clocks
from ha.core.compatibility import Disagreement
from ha.core.effects import ClosePeer, SendMethod
from ha.core.errors import LinkError
from ha.core.membership import Membership, Status
from ha.core.outbox import Outbox
from ha.core.ports import BadEvent, ReplicaModel
from ha.core.primary.consistency_checkpoints import digest_of, note_checkpoint, parse_checkpoint
from ha.core.record.in_sync_record import (
    ALL_DISKS,
    InSyncRecord,
    RecordVersion,
    record_from_json,
    refuse_unfounded,
)
from ha.core.record.link_end import LinkEnd
from ha.core.record.local_record import LocalRecord
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning
from ha.core.wire.link import VERSION, Ack, Frame, Method, StreamDecoder, parse_heartbeat, parse_json, to_json
from ha.core.wire.queue_snapshot import encode_have
from understudy.shared.codes import Coded

DELAY = 0.05
"""Seconds for which an acknowledgement may wait for the disk. After that the primary learns what is applied:
the time of a batch on the link and its time on the disk are limited one by one."""
SECOND_LOOK = 0.05
"""Seconds from finding a primary silent to believing it: more than one round of reading."""
HAVE_ROOM = 60_000
"""Bytes of one HAVE message; it is cut further where the link has negotiated smaller frames."""
_QUIET = frozenset({Frame.BATCH, Frame.BATCH_OF_TARGETS})
"""Frames that ask for no ack before the disk has them."""
_BATCHES = _QUIET | {Frame.BATCH_OF_CONTENTS}


@dataclass(slots=True, frozen=True)
class Said:
    """The last acknowledgement that this node sent to anybody. Up to a lease after it, a primary that got it
    may go on serving.
    """

    primary_id: str
    epoch: int
    at: float


class Backup:
    """The following role. `peer` is the connection to the primary, or None.

    `elsewhere`: when a node was last heard on a route other than that connection. None: there are no others.
    """

    def __init__(
        self,
        me: OwnIdentity,
        tuning: Tuning,
        membership: Membership,
        local: LocalRecord,
        clocks: Clocks,
        outbox: Outbox,
        model: ReplicaModel,
        elsewhere: Callable[[str, int], float] | None = None,
    ) -> None:
        self._me = me
        self._tuning = tuning
        self._membership = membership
        self._local = local
        self._clocks = clocks
        self._out = outbox
        self._model = model
        self._elsewhere = elsewhere
        self.peer: int | None = None
        self.primary_name = ""
        self.primary_id = ""
        self.link_end: LinkEnd | None = None
        self._replicator: BrokerReplicator | None = None
        self._decoder = StreamDecoder(Frame)
        self._expected = False
        self._excluded = False
        self._doubted_at: float | None = None
        """When the primary was found silent, until that is looked at once more."""
        self._acks = AckTimes(tuning.ack_timeout)
        self.last_heard = 0.0
        self._echo = 0.0
        self._acked: Ack | None = None
        self._prompt = False
        """Something came that is to be acknowledged in this tick."""
        self._late_at = inf
        """When the acknowledgement that waits for the disk will have waited for too long."""
        self._machine_ms = 0.0
        """What this machine's clock showed when the newest heartbeat came."""
        self.said: Said | None = None
        self.is_target = False
        """The primary is about to hand over to this node, or has."""
        self.refused = ""
        self.disagreement: Disagreement | None = None
        """Why it does not follow the primary that it sees: what they are configured to differently."""
        self._told: Coded | None = None

    # -- joining

    def join(self, peer: int, primary_id: str, primary_name: str, now: float) -> None:
        """Ask that primary to take us in: first what we have, then the request."""
        self.peer, self.primary_id, self.primary_name = peer, primary_id, primary_name
        self._replicator, self._decoder, self._acked = None, StreamDecoder(Frame), None
        self._excluded, self.last_heard, self._prompt, self.is_target = False, now, False, False
        self._acks, self._echo, self.disagreement = AckTimes(self._tuning.ack_timeout, now), 0.0, None
        self._machine_ms, self._late_at = 0.0, inf
        if self.link_end is not None:
            self.link_end.asked_again = True
        me, record = self._me, self._local.record
        for payload in encode_have(self._model.held(), HAVE_ROOM):
            self._out.do(
                *(
                    SendMethod(peer, Method.HAVE, payload[i : i + HAVE_ROOM])
                    for i in range(0, len(payload), HAVE_ROOM)
                )
            )
        request = {
            "node_id": me.node_id, "name": me.name, "incarnation": me.incarnation, "life": me.life,
            "number": me.number, "cluster_id": record.cluster_id if record else None, "version": VERSION,
            "epoch": record.epoch if record else 0,
        }  # fmt: skip
        if self._elsewhere is not None:
            request["asked_at"] = int(now * 1e6)
        self._out.do(SendMethod(peer, Method.JOIN, to_json(request)))

    def disagree(self, about: Disagreement) -> None:
        """That node serves, and this one must not follow it as they are configured. Said once."""
        self.disagreement = about
        if about.said != self._told:
            self._out.log(about.said)
        self._told = about.said

    def reconcile(self, peer: int) -> None:
        """The node that answers there is gone, or serves no more: if it was disagreed with, that is over."""
        if self.disagreement is not None and self.disagreement.peer == peer:
            self.disagreement = None

    def join_ok(self, payload: bytes, now: float) -> None:
        """The primary's answer. Its record is fsynced before anything of its stream is applied."""
        answer = parse_json(payload)
        if not answer.get("ok"):
            refused = str(answer.get("reason", "no reason given"))
            if refused != self.refused:
                self._out.warn(codes.JOIN_REFUSED.say(primary=self.primary_name, why=refused))
            self.refused = refused
            self._unlink()
            return
        record = record_from_json(answer.get("record"))
        known = self._local.record
        refuse_unfounded(record, known)
        if known is not None and record.version < known.version:
            raise LinkError(
                f"the primary's record {tuple(record.version)} is older than ours {tuple(known.version)}"
            )
        self.refused = ""
        self._expected = bool(answer.get("expected")) and self._me.who in record.in_sync
        if self._expected:
            self._acks.expected(_seconds(answer.get("rest")))
        self._replicator = BrokerReplicator(self._model, record.epoch)
        self._membership.become(Status.CATCH_UP)
        self._save(record, self._local.replica.incomplete)
        self.last_heard = now
        self._out.log(codes.CATCHING_UP.say(primary=self.primary_name, epoch=record.epoch))

    # -- the stream

    def data(self, payload: bytes, now: float) -> None:
        """A piece of the stream. LinkError closes the link; the next link compares the copy again."""
        if self._replicator is None:
            raise LinkError("stream data before the join was accepted")
        self.last_heard = now
        for kind, body in self._decoder.feed(payload):
            if kind is Frame.CONTENT:
                self._prompt = self._prompt or self._window_fills()
            elif kind not in _QUIET:
                self._prompt = True
            if kind is Frame.RECORD:
                self._record(parse_json(body))
                continue
            if kind is Frame.CHECKPOINT:
                self._compare(body, self._replicator)
                continue
            first = kind in (Frame.DEFINITIONS, Frame.DEFINED) and not self._replicator.defines
            if first and self._local.record is not None:
                self._begin(self._local.record, self._replicator.epoch)
            self._replicator.frame(kind, body)
            if kind in _BATCHES:
                self._acks.got(self._replicator.applied, self._replicator.sent_at, now)
            self._heed_ended()
            self._reset(self._replicator)
        self._prompt = self._prompt or self._replicator.in_memory
        self._echo = max(self._echo, self._replicator.sent_at)
        for said in self._replicator.dropped:
            self._out.log(said)
        self._replicator.dropped.clear()

    def _begin(self, record: InSyncRecord, epoch: int) -> None:
        """The copy is about to be changed. A node that the primary expects stays promotable, unless it starts
        from nothing."""
        if self._expected:
            self._local.replica.mix()
        else:
            self._local.mark_incomplete()
        self._model.save_incomplete(record)
        self._model.keep_what_is_here(epoch if self._expected else None)

    def _heed_ended(self) -> None:
        """A queue was deleted with what it held, and that may have moved to one that is not here yet: there
        is no going back, and it is not promotable until all is here.
        """
        new = self._model.no_way_back - self._local.replica.ended
        record = self._local.record
        if new and record is not None:
            self._local.replica.ended |= new
            self._local.mark_incomplete()
            self._model.save_incomplete(record)
            self._out.log(codes.QUEUES_DELETED.say(queues=len(new), primary=self.primary_name))

    def _reset(self, replicator: BrokerReplicator) -> None:
        """Some queues could not take an event: have the primary send them again. Until they are whole, and on
        disk, this node acknowledges nothing and is not promotable. Raises LinkError while it catches up, so
        that everything is compared again."""
        bad, replicator.bad = replicator.bad, []
        if not bad:
            return
        record, peer = self._local.record, self.peer
        ready = self._membership.status is Status.READY
        if record is None or peer is None or not (ready or replicator.resets):
            raise LinkError(bad[0].sentence)
        if ready:
            self._local.mark_incomplete()
            self._model.save_incomplete(record)
            self._membership.become(Status.CATCH_UP)
        for event in bad:
            if not replicator.wait_for(event.queue):
                continue
            self._local.replica.resetting.add(event.queue)
            self._out.log(codes.QUEUE_FETCHED_AGAIN.say(why=event.sentence, primary=self.primary_name))
            self._out.do(SendMethod(peer, Method.RESET_QUEUE, event.queue + event.sentence.encode()[:500]))

    def _resetting(self, replicator: BrokerReplicator) -> bool:
        """Are queues being sent again on this link, to a copy that was in sync?"""
        return replicator.resets > 0 and bool(self._local.replica.resetting)

    def _whole_again(self, replicator: BrokerReplicator, record: InSyncRecord) -> None:
        """Are the queues that were sent again whole, and on disk?"""
        replicator.forget_deleted()
        if replicator.complete and self._me.who in record.in_sync:
            self._model.let_go()
            self._local.replica.complete()
            self._save(record, False)
            self._membership.become(Status.READY)
            self._out.log(codes.READY_AGAIN.say(primary=self.primary_name))

    def _compare(self, body: bytes, replicator: BrokerReplicator) -> None:
        """Note what this copy holds at the primary's point; one that still catches up does not count. A queue
        that differs is fetched again.
        """
        name, digests = parse_checkpoint(body)
        if self._membership.status is Status.READY:
            found = {queue: self._model.held_in(queue) for queue in digests}
            note_checkpoint(self._out, name, found)
            replicator.bad += [
                BadEvent(queue, f"queue {called!r} differs from the primary's at {name}")
                for queue, ids in found.items()
                if digest_of(ids) != digests[queue] and (called := self._model.name_of(queue)) is not None
            ]
            self._reset(replicator)

    def heartbeat(self, payload: bytes, now: float) -> None:
        self.last_heard, self._prompt = now, True
        beat, clocks = parse_heartbeat(payload), self._clocks
        self._echo = max(self._echo, beat.sent_at)
        self._acks.heard(beat.sent_at, now)
        self._machine_ms = clocks.machine_at(now)
        if self._replicator is not None:
            clocks.heard(self._replicator.epoch, beat.wall_ms, now)
        clock = self._membership.member(self.primary_id).clock
        if (news := clocks.compare(clock, self.primary_name, beat.machine_ms, now)) is not None:
            self._out.log(news)

    def excluded(self, payload: bytes) -> None:
        """The primary counts on us no longer; this is the last thing on that link. The record by which it
        does so comes with it, whole: others may have come or gone meanwhile.
        """
        self._excluded = True
        notice = parse_json(payload)
        record, known = record_from_json(notice.get("record")), self._local.record
        refuse_unfounded(record, known)
        if known is None or record.version > known.version:
            self._save(record, self._local.replica.incomplete)
        why = notice.get("reason", "")
        self._out.warn(codes.EXCLUDED.say(primary=self.primary_name, why=why))

    def handed_over(self, payload: bytes, now: float) -> LinkEnd | None:
        """The primary is about to hand over to this node; has, with the end of its link; or cannot. LinkError
        if it has to a node that does not have all.
        """
        notice, record, replicator = parse_json(payload), self._local.record, self._replicator
        self.is_target = notice.get("off") is None
        if notice.get("position") is None:
            return None
        said, here = (notice.get("epoch"), notice["position"]), None
        if replicator is not None and record is not None and self._me.who in record.in_sync:
            here = (record.epoch, list(replicator.applied))
        if said != here or replicator is None or self._membership.status is not Status.READY:
            self.is_target = False
            raise LinkError(f"{self.primary_name} hands over at {said}, and this node is at {here}")
        end = self.link_end = LinkEnd(
            self.primary_name, self.primary_id, True, False, now, now, replicator.epoch, now, handed_over=True
        )
        self._out.log(codes.HANDS_OVER.say(primary=self.primary_name, at=(said[0], replicator.applied.n)))
        self._unlink()
        return end

    def forsaken(self, now: float) -> None:
        """The very process that was the primary, and stepped down, wants to be one again: no handover of
        before counts any more, and none that is still on its way.
        """
        if self.link_end is not None:
            self.link_end.handed_over = False
        self.leave(now)

    def _record(self, told: dict[str, Any]) -> None:
        record, known = record_from_json(told), self._local.record
        refuse_unfounded(record, known)
        if known is not None and record.version < known.version:
            raise LinkError(f"record {tuple(record.version)} after {tuple(known.version)}")
        listed = self._me.who in record.in_sync
        if listed and self._membership.status is Status.CATCH_UP and self._replicator is not None:
            complete, waits = self._replicator.complete, told.get("expected")
            if complete and not (isinstance(waits, list) and self._me.node_id in waits):
                self._expected = False
                self._acks.included()
                self._local.replica.complete()
                self._save(record, False)
                self._membership.become(Status.READY)
                self._out.log(codes.READY.say(primary=self.primary_name))
                return
            if not complete and not self._expected and not self._resetting(self._replicator):
                raise LinkError("the record names this node before its copy is complete")
        self._save(record, self._local.replica.incomplete)

    def _save(self, record: InSyncRecord, incomplete: bool) -> None:
        if record == self._local.record and incomplete == self._local.replica.incomplete:
            return
        self._local.save(record, incomplete)

    # -- time

    def end_tick(self, now: float) -> None:
        """Acknowledge what is new. Sent after every save and append of this tick."""
        if self._replicator is None:
            self._heed_record()
        replicator = self._replicator
        if replicator is None or self.peer is None or not replicator.defines:
            return
        record = self._local.record
        applied = replicator.applied
        if self._resetting(replicator) and record is not None:
            self._whole_again(replicator, record)
        if self._resetting(replicator) and self._acked is not None:
            applied = self._acked.applied
        ack = Ack(
            applied,
            min(applied, self._model.durable),
            self._echo,
            self._decoder.received,
            record.version if record else RecordVersion(0, 0),
            replicator.complete,
            self._machine_ms,
        )
        if self._prompt or now >= self._late_at or self._news(ack):
            self._acks.sent(now, ack.durable, complete=ack.complete)
            self._acked, self._prompt, replicator.in_memory, self._late_at = ack, False, False, inf
            self.said = Said(self.primary_id, replicator.epoch, now)
            self._out.do(SendMethod(self.peer, Method.ACK, ack.encode()))
        elif self._late_at == inf and ack != self._acked:
            self._late_at = now + DELAY

    def _news(self, ack: Ack) -> bool:
        """Whether somebody may wait for it. What is for the disk is acknowledged when it is there: confirms
        wait for that, and each acknowledgement costs both nodes a tick."""
        last = self._acked
        return (
            last is None
            or ack.durable != last.durable
            or ack.record != last.record
            or ack.complete != last.complete
            or (ack.applied != last.applied and (ack.applied <= ack.durable or self._memory_counts()))
        )

    def _memory_counts(self) -> bool:
        """Confirms of what is for the disk may wait for this node's memory only."""
        record = self._local.record
        return record is not None and record.confirm != ALL_DISKS

    def _window_fills(self) -> bool:
        """The primary sends no more of a large message ahead than its window lets."""
        acked = self._acked.received if self._acked is not None else 0
        return self._decoder.received - acked >= self._tuning.contents_window // 4

    def timers(self, now: float) -> None:
        """A primary that says nothing is left; but it may still serve: this is no proof of anything.

        A process that stood still finds what was said meanwhile in its sockets. So it reads these first.
        """
        limit = self._silence()
        if self.peer is None or now - self.last_heard <= limit:
            self._doubted_at = None
        elif self._doubted_at is None or now - self._doubted_at > 4 * SECOND_LOOK:
            self._doubted_at = now
        elif now >= self._doubted_at + SECOND_LOOK:
            self._doubted_at = None
            told = codes.LINK_MOVES if self._answers_elsewhere() else codes.LINK_SILENT
            self._out.warn(told.say(primary=self.primary_name, seconds=limit))
            peer = self.peer
            self.peer_lost(peer, False, now)
            self._out.do(ClosePeer(peer, 320, "CONNECTION_FORCED - silent"))

    def next_deadline(self) -> float | None:
        if self.peer is None:
            return None
        silent_at = self.last_heard + self._silence() + 0.001
        if self._doubted_at is not None:
            silent_at = self._doubted_at + SECOND_LOOK
        return min(silent_at, self._late_at)

    def _silence(self) -> float:
        """Seconds after which a silent link is left. If the primary answers on another route, it is this one
        that has failed: the link moves there before the primary excludes this node."""
        limit = self._tuning.silence
        return min(limit, 2 * self._tuning.heartbeat) if self._answers_elsewhere() else limit

    def _answers_elsewhere(self) -> bool:
        """It was heard on another route after this one had missed half a heartbeat."""
        if self._elsewhere is None or self.peer is None:
            return False
        since = self.last_heard + self._tuning.heartbeat / 2
        return self._elsewhere(self.primary_id, self.peer) > since

    def peer_lost(self, peer: int, clean: bool, now: float) -> None:
        """The link is gone. In sync, this node stays `ready`; otherwise it looks for a primary again."""
        if peer != self.peer:
            return
        if self._replicator is not None:
            epoch = self._replicator.epoch
            self.link_end = LinkEnd(
                self.primary_name, self.primary_id, clean, self._excluded, self._acks.sure, now, epoch,
                self.last_heard,
            )  # fmt: skip
            ended = codes.LINK_CLOSED if clean else codes.LINK_LOST
            self._out.log(ended.say(primary=self.primary_name))
        self._unlink()

    def leave(self, now: float) -> None:
        """Give the link up on purpose: this node is promoted, or a newer primary was found."""
        if self.peer is not None:
            self._out.do(ClosePeer(self.peer, 200, "link no longer wanted"))
            self._unlink()

    def stand_alone(self, *, keep_all: bool) -> None:
        """The record is this node's. If it had not got everything from its primary, it keeps what it held
        before the link. With `keep_all` (a forced promotion) it keeps what came as well: the primary may have
        excluded this node, and confirmed what came then."""
        if keep_all:
            self._model.keep_what_is_here(None)
        else:
            self._model.go_back()
        self._local.replica.told_apart(self._model.mark())

    def _unlink(self) -> None:
        self.peer, self._replicator = None, None
        self._model.abandon()
        status = self._membership.status
        if status is Status.CATCH_UP or (status is Status.READY and self._excluded):
            self._membership.become(Status.JOINING)
        self._heed_record()

    def _heed_record(self) -> None:
        """Without a link, a node that the newest known record does not name is not ready."""
        record = self._local.record
        listed = record is not None and self._me.who in record.in_sync
        if self._membership.status is Status.READY and not listed:
            self._membership.become(Status.JOINING)

    @property
    def epoch(self) -> int:
        """The one that is followed; 0 without a link."""
        return self._replicator.epoch if self._replicator is not None else 0

    @property
    def linked(self) -> bool:
        return self._replicator is not None

    def reason(self) -> str:
        match self._membership.status:
            case Status.READY:
                return (
                    f"in sync with {self.primary_name}"
                    if self.peer is not None
                    else "in sync, but its link is lost"
                )
            case Status.CATCH_UP:
                if self._local.replica.resetting:
                    return (
                        f"in the in-sync set, but fetching {len(self._local.replica.resetting)} queues again"
                    )
                replicator = self._replicator
                if replicator is None or replicator.queues_to_come:
                    whole = replicator.whole if replicator is not None else 0
                    return f"catching up with {self.primary_name}; {whole} of its queues are here so far"
                return (
                    f"catching up with {self.primary_name}; all queues are here, and it has yet to take this "
                    f"node as in sync: see its status"
                )
            case _:
                refused = f"refused by {self.primary_name}: {self.refused}" if self.refused else ""
                differs = self.disagreement.said.sentence if self.disagreement is not None else ""
                return differs or refused or "no primary is known"


def _seconds(value: Any) -> float:
    """What the primary says; 0 if that is no time."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 0.0
