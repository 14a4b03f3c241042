"""Promotion: one node's way to being primary: ask the peers and the authority, commit, wait out the old
lease.

Owner: HaBroker, one for the node's life; at most one attempt at a time. Steps:

    ASKING      how everybody stands, and what the authority holds; then the rules decide
    COMMITTING  one swap of the record; while its outcome is unknown the same is asked again, for ever
    WAITING     the record is this node's; it serves once no earlier owner can still be confirming

The operator is answered once clients are served, once it is refused, or, with a commit of unknown outcome,
after `authority_patience`: the attempt goes on all the same, since nobody else may know better.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from broker.model.values import Position
from ha.core import codes
from ha.core.backup.backup import Backup
from ha.core.clocks import Clocks
from ha.core.effects import Answer, Redial, refused
from ha.core.election.neighbours import Neighbours
from ha.core.election.status_check import StatusCheck, evidence_of, newest_known
from ha.core.membership import Membership
from ha.core.outbox import Outbox
from ha.core.record.authority import FORCED, Authority, Evidence, PeerAnswer, Verdict
from ha.core.record.in_sync_record import InSyncRecord, is_behind, next_record
from ha.core.record.lineage import Lineage
from ha.core.record.local_record import LocalRecord
from ha.core.record.record_keeper import RETRY, Outcome, RecordKeeper
from ha.core.refusal import with_next
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning
from understudy.shared.codes import Coded

LOOK = "see who serves (understudy status); if nobody does, ask again"


class PromotionStep(enum.Enum):
    ASKING = "asking"
    COMMITTING = "committing"
    WAITING = "waiting"


@dataclass(slots=True)
class Attempt:
    """One promotion that was asked for."""

    token: int | None
    """Of the operator who waits; None once answered."""
    check: StatusCheck
    fenced: bool | str
    """The operator vouches that the old primary, the owner of the record, runs no more; or the node of that
    name, which may be another one: somebody has switched over since.
    """
    answer_by: float
    awake_at: float
    """When it was looked at last."""
    step: PromotionStep = PromotionStep.ASKING
    reading: bool = False
    """The authority has something to read, and has not answered yet."""
    read_at: float | None = None
    """When to ask it again."""
    has_read: bool = False
    held: InSyncRecord | None = None
    """What the authority held when it was asked."""
    how: str = ""
    reason: str = ""
    record: InSyncRecord | None = None
    """What it is to be."""
    old: InSyncRecord | None = None
    """What it replaces."""
    known: InSyncRecord | None = None
    """The newest that this node knew of when it was decided: the same, unless the authority had lost it."""
    old_served: bool = True
    """Its owner has begun to serve by it, that is, whoever came before had stopped by then."""
    committed_at: float = 0.0
    serve_at: float = 0.0


class PromotionStage(Protocol):
    """What HaBroker does for its promotion."""

    def following(self) -> Backup | None:
        """The role until now."""

    def ask_all(self) -> None:
        """Say hello to every peer that this node has dialed."""

    def serve(self, attempt: Attempt, now: float) -> str:
        """Change roles: the record is committed, and no earlier owner confirms any more. Why confirms are
        held for want of backups, or "".
        """


class Promotion:
    """`attempt`: the one under way, or None."""

    def __init__(
        self, me: OwnIdentity, tuning: Tuning, membership: Membership, local: LocalRecord, clocks: Clocks,
        outbox: Outbox, authority: Authority, keeper: RecordKeeper, neighbours: Neighbours,
        lineage: Lineage, position: Callable[[], Position], stage: PromotionStage,
    ) -> None:  # fmt: skip
        self._me = me
        self._tuning = tuning
        self._membership = membership
        self._local = local
        self._clocks = clocks
        self._out = outbox
        self._authority = authority
        self._keeper = keeper
        self._neighbours = neighbours
        self._lineage = lineage
        self._position = position
        self._stage = stage
        self.attempt: Attempt | None = None
        self.last_refusal = ""

    # -- what others read

    @property
    def active(self) -> bool:
        return self.attempt is not None

    @property
    def committed(self) -> InSyncRecord | None:
        """The record that makes this node the owner, while it waits to serve by it."""
        attempt = self.attempt
        return attempt.record if attempt is not None and attempt.step is PromotionStep.WAITING else None

    @property
    def yields(self) -> bool:
        """To one who forces it: it is unforced, and still asks."""
        attempt = self.attempt
        return attempt is not None and attempt.step is PromotionStep.ASKING and not attempt.check.force_lossy

    def waits_for(self) -> str:
        """One sentence on what the attempt under way waits for; "" if there is none."""
        attempt = self.attempt
        if attempt is None:
            return ""
        match attempt.step:
            case PromotionStep.ASKING:
                return "another promotion is being decided"
            case PromotionStep.COMMITTING:
                return "being promoted; the authority has not said yet whether the record is this node's"
            case PromotionStep.WAITING:
                owner = attempt.old.owner_name if attempt.old is not None else "nobody"
                whose = owner if attempt.old_served else f"whoever served before {owner}"
                return f"being promoted; waits until the lease of {whose} has run out"

    def evidence(self, attempt: Attempt | None = None) -> Evidence:
        """What a promotion would be judged by; without an attempt, by what peers said last."""
        if attempt is not None:
            ids, unanswered = attempt.check.answered(), attempt.check.unanswered()
        else:
            ids = {i for i, m in self._membership.members.items() if m.connected}
            unanswered = self._neighbours.away()
        answers = {i: a for i, a in self.kin().items() if i in ids}
        newest = newest_known(self._local.record, answers)
        if attempt is not None and attempt.has_read:
            newest = attempt.held
        return evidence_of(
            self._me, self._tuning, self._membership.status, self._local, self._clocks.now, newest,
            self._lineage.cluster_id, self._stage.following(), self._position(), answers,
            unanswered, self._neighbours.strangers(), self._neighbours.copies(mine=True),
            self._neighbours.served, self._neighbours.left_out(),
        )  # fmt: skip

    def kin(self) -> dict[str, PeerAnswer]:
        """What the others said of themselves last, but for brokers of another cluster."""
        return {i: a for i, a in self._neighbours.answers.items() if not self._lineage.foreign(a)}

    def judge(self) -> Verdict:
        """Whether an unforced promotion would be granted, as far as is known without asking.

        That the primary said last that it serves is no objection to a backup in sync with it: it may hang,
        and a promotion asks it anew. Not so where nobody arbitrates, and such a word is all there is.
        """
        evidence, record = self.evidence(), self._local.record
        if self._authority.ARBITRATES and record is not None and self._me.who in record.in_sync:
            others = {
                i: a for i, a in evidence.answers.items() if not (a.serving and i == record.owner.node_id)
            }
            evidence = replace(evidence, answers=others)
        return self._authority.judge(evidence, force_lossy=False)

    # -- asking

    def begin(
        self, token: int | None, new_cluster_id: str, now: float, *, force_lossy: bool, fenced: bool | str
    ) -> None:
        """An operator asks; without a token, this node itself, whose switchover that is."""
        tuning = self._tuning
        check = StatusCheck(
            force_lossy, new_cluster_id, now, now + tuning.peer_patience, self._neighbours.book
        )
        self.attempt = Attempt(token, check, fenced, now + tuning.authority_patience, now)
        self._out.do(Redial())
        self._ask()
        self.attempt.reading = self._keeper.read(self._read, now)
        self.settle(now)

    def _ask(self) -> None:
        self._neighbours.ask_anew()
        self._stage.ask_all()

    def inherit(self, now: float) -> None:
        """The primary has handed over to this node, which asks and commits like any other; what others have
        said to a question of before would not count.
        """
        attempt = self.attempt
        if attempt is None:
            self.begin(None, "", now, force_lossy=False, fenced=False)
        elif attempt.step is PromotionStep.ASKING:
            self._ask_anew(attempt, now)

    def _ask_anew(self, attempt: Attempt, now: float) -> None:
        check = attempt.check
        check.asked_at, check.deadline = now, now + self._tuning.peer_patience
        self._ask()

    def _read(self, outcome: Outcome, held: InSyncRecord | None, asked_at: float, now: float) -> None:
        """The authority's answer; one that is older than what this node has heard since is asked for
        again.
        """
        attempt = self.attempt
        if attempt is None or attempt.step is not PromotionStep.ASKING:
            return
        behind = is_behind(held, self._local.record) and now + RETRY < attempt.answer_by
        if outcome is Outcome.UNKNOWN or behind:
            attempt.read_at = now + RETRY
        else:
            attempt.reading, attempt.has_read, attempt.held = False, True, held
            if held is not None:
                self._lineage.adopt(held)

    def settle(self, now: float) -> None:
        """Go on as far as what is known allows."""
        attempt = self.attempt
        if attempt is None:
            return
        match attempt.step:
            case PromotionStep.ASKING:
                self._decide(attempt, now)
            case PromotionStep.COMMITTING:
                if self._local.record != attempt.known:
                    # It has replaced the one that the swap expects: whatever the authority says, and when.
                    self._beaten(self._local.record, now)
                elif attempt.token is not None and now >= attempt.answer_by:
                    self._answer(attempt, codes.PROMOTE_UNDECIDED.say(state=self.waits_for()))
            case PromotionStep.WAITING:
                self._wait(attempt, now)

    def _has_slept(self, attempt: Attempt, now: float) -> bool:
        """This process stood still while it asked (SIGSTOP, say): whoever asked it meanwhile had no answer,
        and may have gone on without it. Where somebody arbitrates, that shows when the record is swapped.
        """
        slept = now - attempt.awake_at > self._tuning.peer_patience / 2
        attempt.awake_at = now
        return slept and not self._authority.ARBITRATES

    def _decide(self, attempt: Attempt, now: float) -> None:
        if self._has_slept(attempt, now):
            self._ask_anew(attempt, now)
        if attempt.reading and now >= attempt.answer_by:
            way = "see that it runs and can be reached from here, and ask again"
            self._refuse(attempt, codes.PROMOTE_AUTHORITY_SILENT.say(), way)
            return
        if attempt.reading or not attempt.check.done(now):
            return
        evidence = self.evidence(attempt)
        verdict = self._authority.judge(evidence, force_lossy=attempt.check.force_lossy)
        if not verdict.granted:
            self._refuse(attempt, verdict.said, verdict.way)
            return
        attempt.how, attempt.reason, attempt.old = verdict.how, verdict.reason, evidence.newest
        attempt.known = self._local.record
        attempt.old_served = evidence.newest is None or _has_served(evidence.newest, evidence)
        me, old = self._me, evidence.newest
        known = [max(a.epoch, a.seen) for a in evidence.answers.values()]
        epoch = self._authority.mint(me, max([self._lineage.seen, old.epoch if old else 0, *known]))
        self._lineage.saw(epoch)
        cluster = (
            self._lineage.cluster_id or (old.cluster_id if old else None) or attempt.check.new_cluster_id
        )
        attempt.record = next_record(old, verdict.how, epoch, me.who, me.name, cluster)
        self._trust_own_copy()
        attempt.step, attempt.answer_by = PromotionStep.COMMITTING, now + self._tuning.authority_patience
        self._keeper.propose(attempt.record, old.version if old else None, self._committed, self._beaten, now)

    def _trust_own_copy(self) -> None:
        """The record names this very process: what it has is whole, and on disk, though its primary died
        before it said so. Marked before the swap, which may be made without this node living to hear of it.
        """
        record = self._local.record
        if self._local.copy.incomplete and record is not None and self._me.who in record.in_sync:
            self._local.save(record, False)

    # -- committing

    def _committed(self, now: float) -> None:
        """It is this node's: nobody else is to be followed or acknowledged from now on."""
        attempt = self.attempt
        if attempt is None or attempt.record is None:
            return
        said, old = None, attempt.old
        backup = self._stage.following()
        if backup is not None:
            said = backup.said
            backup.leave(now)
            backup.stand_alone(keep_all=attempt.how == FORCED)
        self._lineage.learn(attempt.record)
        self._keeper.owned(attempt.check.asked_at)  # the peers were asked then, at the least
        attempt.step, attempt.committed_at, attempt.serve_at = PromotionStep.WAITING, now, now
        fenced = attempt.fenced is True or (old is not None and attempt.fenced == old.owner_name)
        over = old is None or fenced or old.owner.node_id == self._me.node_id
        if old is not None and not (over and attempt.old_served):
            heard = said is not None and (said.primary_id, said.epoch) == (old.owner.node_id, old.epoch)
            # Of whom it has excluded, who is promoted by force, the old owner needs no word to go on.
            heard = heard and self._me.who in old.in_sync
            since = said.at if said is not None and heard else now
            attempt.serve_at = since + self._tuning.lease
        self._wait(attempt, now)
        if self.attempt is attempt:
            self._out.log(f"the record of epoch {attempt.record.epoch} is this node's; {self.waits_for()}")

    def _beaten(self, held: InSyncRecord | None, now: float) -> None:
        """The authority has another record than the one that this attempt was to replace."""
        attempt = self.attempt
        if attempt is None:
            return
        if held is None:
            self._refuse(attempt, codes.PROMOTE_RECORD_GONE.say(), "ask again")
            return
        self._lineage.adopt(held)
        said = codes.PROMOTE_RECORD_CHANGED.say(epoch=held.epoch, owner=held.owner_name)
        self._refuse(attempt, said, LOOK)

    # -- waiting

    def _wait(self, attempt: Attempt, now: float) -> None:
        """Serve, once no earlier owner can be confirming any more; unless somebody else was promoted."""
        if self._local.record != attempt.record:
            self._refuse(attempt, codes.PROMOTE_RECORD_NEWER.say(), LOOK)
            return
        if now < attempt.serve_at and not self._owner_is_over(attempt):
            return
        self.attempt = None
        held = self._stage.serve(attempt, now)
        epoch = attempt.record.epoch if attempt.record is not None else 0
        self._out.log(f"promoted in epoch {epoch} ({attempt.how}): {attempt.reason}")
        if held:
            self._out.log(held)
        reason = f"{attempt.reason}; {held}" if held else attempt.reason
        self._answer(attempt, f"promoted in epoch {epoch}: {reason}")

    def _owner_is_over(self, attempt: Attempt) -> bool:
        """The old owner has said that it does not serve, or its kernel that nobody listens there any more.
        Of one that did not begin to, nothing follows: somebody before it may go on serving for a lease.
        """
        old = attempt.old
        if old is None:
            return True
        if not attempt.old_served:
            return False
        owner = old.owner.node_id
        entry, answer = self._neighbours.at(owner), self._neighbours.answers.get(owner)
        if entry is None:
            return False
        if answer is not None and entry.answered_at >= attempt.check.asked_at and _is_over(answer, old):
            return True
        backup = self._stage.following()
        end = backup.link_end if backup is not None else None
        # Of a link before the last one nothing follows: since then the two have linked again.
        last = end is not None and not end.asked_again
        ended = end is not None and last and (end.primary_id, end.epoch) == (owner, old.epoch)
        if end is not None and ended and end.handed_over:
            return True
        return entry.refused_at >= (end.closed_at if end is not None and ended else attempt.committed_at)

    # -- the end of an attempt

    def give_up(self, reason: str) -> None:
        """The operator wants it no more. What the authority makes of a commit in flight is found at the
        next.
        """
        if self.attempt is not None:
            self._keeper.forget()
            self._refuse(self.attempt, codes.PROMOTE_GIVEN_UP.say(cause=reason), "")

    def _refuse(self, attempt: Attempt, why: Coded, way: str) -> None:
        self.attempt = None
        self._keeper.forget()
        said = with_next(why, way)
        self._out.warn(said.about("promotion refused"))
        said = said.about("not promoted")
        self.last_refusal = said.sentence
        self._answer(attempt, said)

    def _answer(self, attempt: Attempt, said: Coded | str) -> None:
        """A refusal has a code."""
        if attempt.token is not None:
            token, attempt.token = attempt.token, None
            self._out.do(refused(token, said) if isinstance(said, Coded) else Answer(token, True, said))

    # -- time

    def timers(self, now: float) -> None:
        attempt = self.attempt
        if attempt is not None and attempt.read_at is not None and now >= attempt.read_at:
            attempt.read_at = None
            self._keeper.read(self._read, now)
        self.settle(now)

    def next_deadline(self) -> float | None:
        attempt = self.attempt
        if attempt is None:
            return None
        match attempt.step:
            case PromotionStep.ASKING:
                if not attempt.reading:
                    return min(attempt.check.deadline, attempt.awake_at + self._tuning.peer_patience / 4)
                return min(attempt.read_at or attempt.answer_by, attempt.answer_by)
            case PromotionStep.COMMITTING:
                return attempt.answer_by if attempt.token is not None else None
            case PromotionStep.WAITING:
                return attempt.serve_at


def _has_served(old: InSyncRecord, evidence: Evidence) -> bool:
    """Whether the owner of `old` has certainly begun to serve by it: only then does it change the record, and
    is there history of its epoch.
    """
    positions = [evidence.position, *(answer.position for answer in evidence.answers.values())]
    return old.revision > 1 or any(position.epoch == old.epoch for position in positions)


def _is_over(answer: PeerAnswer, old: InSyncRecord) -> bool:
    """The owner of `old` says that it serves by it no more; of an answer of before it owned it, or before it
    begins to serve, nothing follows.
    """
    return answer.epoch >= old.epoch and not answer.serving and not answer.promoting
