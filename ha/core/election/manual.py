"""The `manual` authority: one operator, and crashes. Not for partitions: two operators can make two
primaries.

Each node keeps its own copy of every record it sees, and a change is committed once the owner's own copy is
on disk. Pure functions of the evidence. Owner: HaBroker.
"""

from __future__ import annotations

from dataclasses import replace

from ha.core import codes
from ha.core.effects import ReadRegister, SwapRegister
from ha.core.membership import Status
from ha.core.record.authority import Evidence, PeerAnswer, Verdict
from ha.core.record.in_sync_record import (
    ALL_DISKS,
    ALL_MEMORY,
    EPOCH_STEP,
    PRIMARY_DISK,
    Incarnation,
    InSyncRecord,
    RecordVersion,
)
from ha.core.record.link_end import LinkEnd
from ha.core.role import OwnIdentity
from understudy.shared.codes import Coded

FORCE = "--force-lossy"
REFUSES = "refuses this node"
SERVED_LATELY = 60.0
"""Seconds."""
AGAIN = "end it, start it again and ask once more"
"""It answers then, and does not serve: who is in the record is promoted unforced."""
IF_OFF = "if it is off for certain and does not start, promote with --force-lossy"
IF_LOST = "if that is lost for good, promote this node with --force-lossy"
OWN = "if that is another pair's, give this pair one of its own (ha.cib_set, ha.etcd.prefix)"
IF_EACH = (
    "if it says so of this node in its turn, promote the one whose data shall go on with --force-lossy: what "
    "only the other one holds goes to its quarantine"
)


class ManualAuthority:
    """See `Authority`."""

    ARBITRATES = False
    AUTOMATIC = False

    def mint(self, me: OwnIdentity, seen: int) -> int:
        return (seen // EPOCH_STEP + 1) * EPOCH_STEP + me.number

    def read(self, request_id: int, *, renews: bool = False) -> ReadRegister | None:
        return None

    def swap(
        self, request_id: int, expected: RecordVersion | None, record: InSyncRecord
    ) -> SwapRegister | None:
        return None

    def judge(self, evidence: Evidence, *, force_lossy: bool) -> Verdict:
        """The rules first, so that a forced promotion that needs no force is recorded as what it is."""
        verdict = _with_what_is_known(self._judge(evidence), evidence)
        if verdict.granted or verdict.final or not force_lossy:
            return verdict
        return Verdict(True, f"forced by the operator, although {verdict.reason}", "force-lossy")

    def _judge(self, e: Evidence) -> Verdict:
        return self._others_forbid(e) or self._by_record(e)

    def _others_forbid(self, e: Evidence) -> Verdict | None:
        """What another node says of itself rules it out, whatever the record says."""
        if e.copies:
            # Each of the two would take what the record says for its own.
            return _no(codes.PROMOTE_IDENTITY_COPIED.say(fault=e.copies[0]), "")
        for answer in e.answers.values():
            if answer.serving and not (answer.output_fenced and self.ARBITRATES):
                if _catches_up_with(answer.node_id, e):
                    return _no(
                        codes.PROMOTE_CATCHING_UP.say(primary=answer.name, epoch=answer.epoch),
                        "wait until it is ready, then switch over",
                    )
                return _no(
                    codes.PROMOTE_OTHER_SERVES.say(primary=answer.name, epoch=answer.epoch),
                    f"demote it first, or switch over; if it hangs, {AGAIN}",
                )
            if answer.promoting and not self.ARBITRATES:
                return _no(codes.PROMOTE_OTHER_PROMOTING.say(other=answer.name), "ask again if it is refused")
            if answer.number == e.me.number:
                return _no(
                    codes.PROMOTE_SAME_NUMBER.say(other=answer.name, number=e.me.number),
                    "start the newer of the two with an empty data directory",
                )
        return None

    def _by_record(self, e: Evidence) -> Verdict:
        newest = e.newest
        if e.foreign and (newest is None or e.me.who not in newest.in_sync):
            # A node that the record names needs no answer, and none of a foreign peer.
            return _no(
                codes.PROMOTE_FOREIGN_NODE.say(fault=e.foreign[0]),
                "take it out of ha.brokers, or this node's data directory is the wrong one",
            )
        if newest is None:
            return self._bootstrap(e)
        if e.record is not None and e.record.cluster_id != newest.cluster_id:
            return _no(
                codes.PROMOTE_FOREIGN_RECORD.say(cluster=newest.cluster_id),
                f"{OWN}, or start this node with an empty data directory to join the other",
            )
        if e.me.who in newest.in_sync:
            return self._spoilt(e, newest) or self._in_sync(e, newest)
        if e.me.who == newest.owner:
            return self._former_owner(e, newest)
        return self._cold(e, newest)

    def _bootstrap(self, e: Evidence) -> Verdict:
        """No node was ever primary, as far as is known."""
        if e.record_lost:
            return _no(
                codes.PROMOTE_RECORD_LOST.say(),
                f"put it back, or promote another one; {IF_LOST}",
            )
        if e.unanswered and e.left_out:
            return _no(
                codes.PROMOTE_NOT_LISTED.say(how=e.left_out),
                "put it there, on all nodes, and start this node again",
            )
        if e.unanswered:
            return _no(
                codes.PROMOTE_PEERS_SILENT.say(peers=", ".join(e.unanswered)),
                f"start it, or correct what it refuses, and ask again; {IF_LOST}",
            )
        for answer in e.answers.values():
            if answer.position.epoch or answer.epoch:
                return _no(
                    codes.PROMOTE_OTHER_HOLDS_DATA.say(other=answer.name),
                    f"promote {answer.name}; {IF_EACH}",
                )
        return Verdict(
            True, "no broker of the pair has ever been primary, and all of them answer", "bootstrap"
        )

    def _spoilt(self, e: Evidence, newest: InSyncRecord) -> Verdict | None:
        """This very process is named in the record, and lacks some of its queues; None if it does not."""
        if e.resetting:
            said = codes.PROMOTE_QUEUES_INCOMPLETE.say(queues=e.resetting)
        elif e.ended:
            said = codes.PROMOTE_QUEUES_DELETED.say(queues=e.ended)
        else:
            return None
        return _who_runs_on(e, newest) or _no(
            said, f"start {newest.owner_name} again, and promote it; {IF_LOST}"
        )

    def _in_sync(self, e: Evidence, newest: InSyncRecord) -> Verdict:
        """This very process is named in the record."""
        owner = newest.owner_name
        end = e.link_end
        if end is not None and end.epoch != newest.epoch:
            end = None  # what became of an older primary says nothing of this one
        if e.linked:
            return _no(
                codes.PROMOTE_LINK_UP.say(primary=owner),
                f"demote it first, or switch over; if it hangs, {AGAIN}",
            )
        if end is not None and end.handed_over and not end.asked_again:
            return Verdict(
                True, f"in the in-sync set, and {end.primary} has handed over to this node", "unforced"
            )
        if end is not None and end.excluded:
            return _no(
                codes.PROMOTE_EXCLUDED.say(primary=end.primary),
                f"start {end.primary} again, and promote it; {IF_LOST}",
            )
        if end is not None and end.proves_the_end(e.ack_timeout):
            return Verdict(True, f"in the in-sync set when the link to {end.primary} closed", "unforced")
        if newest.owner.node_id in e.answers:
            return Verdict(
                True,
                f"in the in-sync set, and the old primary {owner} answers and does not serve",
                "unforced",
            )
        return _no(
            codes.PROMOTE_PRIMARY_MAY_SERVE.say(doubt=_doubt(end, owner, newest.epoch)),
            f"start {owner} again, after ending it if it hangs, and ask once more; {IF_OFF}",
        )

    def _former_owner(self, e: Evidence, newest: InSyncRecord) -> Verdict:
        """This very process was the primary, and stepped down: it has all, unless another took over."""
        missing = [
            newest.names.get(i.node_id, i.node_id[:8]) for i in newest.in_sync if i.node_id not in e.answers
        ]
        if missing:
            return _no(
                codes.PROMOTE_SUCCESSOR_UNKNOWN.say(members=", ".join(sorted(missing))),
                f"start it and ask again; {IF_OFF}",
            )
        return Verdict(True, "this node was the last primary, and nobody has taken over since", "unforced")

    def _cold(self, e: Evidence, newest: InSyncRecord) -> Verdict:
        """The record does not name this process: it was started after that, or has never been in sync."""
        if better := _who_runs_on(e, newest):
            return better
        owner = newest.owner_name
        if _catches_up_with(newest.owner.node_id, e):
            return _no(
                codes.PROMOTE_PRIMARY_HANGS.say(primary=owner),
                f"wait until it is ready; if {owner} hangs, end it, start it again and promote it; {IF_LOST}",
            )
        named = sorted(newest.names.get(i, i[:8]) for i in newest.node_ids - {e.me.node_id})
        others = " or ".join(named)
        if e.me.node_id not in newest.node_ids:
            return _no(
                codes.PROMOTE_NOT_IN_RECORD.say(epoch=newest.epoch),
                f"start and promote {others}; {IF_LOST}",
            )
        members = _members(e, newest)
        missing = sorted(newest.node_ids - {e.me.node_id, *e.answers})
        if missing:
            names = ", ".join(newest.names.get(m, m[:8]) for m in missing)
            return _no(
                codes.PROMOTE_MEMBER_SILENT.say(members=names, epoch=newest.epoch) + _disk_lacks(newest),
                f"start it and ask again; {IF_LOST}",
            )
        if e.incomplete:
            return _no(
                codes.PROMOTE_COPY_INCOMPLETE.say(),
                f"start and promote {others}; {IF_LOST}" if named else IF_LOST,
            )
        whole = [answer for answer in members if not answer.incomplete]
        # Of several, the one that will not be refused in its turn.
        latest = max(whole, key=lambda answer: answer.position, default=None)
        if latest is not None and latest.position > e.position:
            return _no(
                codes.PROMOTE_OTHER_LATER.say(
                    other=latest.name, position=tuple(latest.position), own=tuple(e.position)
                ),
                f"promote {latest.name}",
            )
        whole_story = "all members of the last in-sync set answer, and none has a later copy"
        if newest.confirm == ALL_MEMORY:
            whole_story += "; confirms waited for no disk (all-memory), so the last of them may be on none"
        return Verdict(True, whole_story, "cold")


def _disk_lacks(newest: InSyncRecord) -> str:
    """What the record's level of confirms means for the disk of a node that was started again."""
    if newest.confirm == ALL_DISKS:
        return ""
    whose = "the primary's disk only" if newest.confirm == PRIMARY_DISK else "no disk"
    return (
        f"; confirms waited for {whose} ({newest.confirm}), so this node's disk may lack confirmed messages"
    )


def _doubt(end: LinkEnd | None, owner: str, epoch: int) -> str:
    """Why the end of the link does not prove that of the primary."""
    if end is None:
        return f"no link to {owner} in epoch {epoch} has ended here: it may serve without this node"
    if end.asked_again:
        return f"{owner} was asked to take this node in again, and may have excluded it for that"
    if not end.clean:
        return f"the link to {owner} went silent instead of closing, so that it may still serve"
    return (
        f"the last acknowledgement in time to {owner} was {end.closed_at - end.last_ack:.1f} s old at its end"
    )


def _catches_up_with(node_id: str, e: Evidence) -> bool:
    """That node is the primary whose stream this one gets, and has not all of yet."""
    owner = e.record.owner.node_id if e.record is not None else ""
    return e.linked and e.status is Status.CATCH_UP and owner == node_id


def _members(e: Evidence, record: InSyncRecord) -> list[PeerAnswer]:
    """What the others that the record names have said of themselves."""
    return [e.answers[i] for i in sorted(record.node_ids) if i != e.me.node_id and i in e.answers]


def _who_runs_on(e: Evidence, record: InSyncRecord) -> Verdict | None:
    """Before anything is given up for lost: does another one have all?"""
    for answer in _members(e, record):
        if _alive(answer, record):
            return _no(codes.PROMOTE_OTHER_RUNS_ON.say(other=answer.name), f"promote {answer.name}")
    return None


def _alive(answer: PeerAnswer, record: InSyncRecord) -> bool:
    """It has all, in memory too: it would lose less than whoever was started again since."""
    who = Incarnation(answer.node_id, answer.incarnation)
    return (who in record.in_sync and not answer.resetting) or who == record.owner


def _with_what_is_known(verdict: Verdict, e: Evidence) -> Verdict:
    """A refusal names the addresses at which nobody was reached. It advises no force while another node was
    heard to serve a moment ago, and none against one that is there and refuses this node: nothing is lost for
    good then."""
    if verdict.granted or ("start" not in verdict.way and FORCE not in verdict.way):
        return verdict
    way = verdict.way
    runs = next((silence for silence in e.unanswered if REFUSES in silence), None)
    served = e.served if e.served is not None and e.served[1] < SERVED_LATELY else None
    if FORCE in way and (served is not None or runs is not None):
        first, _, _ = way.rpartition("; if ")
        then = "see its log"
        if served is not None:
            then = f"{served[0]} served {served[1]:.0f} s ago, so check that node first"
        way = f"{first}; {then}" if first else then
    if untold := [silence for silence in e.unanswered if silence not in verdict.reason]:
        way = f"{way} ({'; '.join(untold)})"
    return replace(verdict, way=way)


def _no(said: Coded, way: str) -> Verdict:
    return Verdict(False, said.sentence, way=way, code=said.code)
