"""Promotion: one node's way to being primary: ask the peers and the authority, commit, wait out the old
lease.

Owner: HaBroker, one for the node's life; at most one attempt at a time. `attempt.py` decides. This
module tells it what has happened, and carries out the decisions.

The operator is answered once clients are served, or once it is refused. If the outcome of the commit is
unknown, the operator is told so after `authority_patience`. The attempt goes on, as the commit may happen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from broker.model.values import Position
from ha.core import codes
from ha.core.backup.backup import Backup
from ha.core.clocks import Clocks
from ha.core.compatibility import Compatibility, difference
from ha.core.effects import Answer, Redial, refused
from ha.core.election import attempt as steps
from ha.core.election.attempt import Attempt, Decision, Event, PromotionStep, Rules
from ha.core.election.evidence import evidence_of, newest_known
from ha.core.election.most_complete import has_all_alone
from ha.core.election.peers import Peers
from ha.core.errors import Broken
from ha.core.membership import Membership
from ha.core.outbox import Outbox
from ha.core.record.authority import Authority, Evidence, PeerAnswer, Verdict
from ha.core.record.in_sync_record import InSyncRecord
from ha.core.record.lineage import Lineage
from ha.core.record.local_record import LocalRecord
from ha.core.record.record_keeper import Outcome, RecordKeeper
from ha.core.refusal import with_next
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning
from understudy.shared.codes import Coded

REGISTER_KEYS = ("ha.authority", "ha.cib_set", "ha.etcd.prefix", "ha.witness")


class Promotion:
    """`attempt`: the one under way, or None.

    `following`: the role until now. `ask_all` says hello to every peer that this node has dialed. `serve`
    changes roles: the record is committed, and no earlier owner confirms any more; why confirms are held for
    want of backups, or "". `gone`: in a pair that decides by itself, the other node is gone.
    """

    def __init__(
        self, me: OwnIdentity, tuning: Tuning, membership: Membership, local: LocalRecord, clocks: Clocks,
        outbox: Outbox, authority: Authority, keeper: RecordKeeper, peers: Peers, lineage: Lineage,
        position: Callable[[], Position], following: Callable[[], Backup | None], ask_all: Callable[[], None],
        serve: Callable[[Attempt, float], Coded | None], gone: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._me = me
        self._tuning = tuning
        self._membership = membership
        self._local = local
        self._clocks = clocks
        self._out = outbox
        self._authority = authority
        self._keeper = keeper
        self._peers = peers
        self._lineage = lineage
        self._position = position
        self._following = following
        self._ask_all = ask_all
        self._serve = serve
        self._gone = gone
        self._rules = Rules(
            me, tuning.peer_patience, tuning.authority_patience, tuning.lease, authority.ARBITRATES
        )
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
        """Does it give way to a forced promotion? It does if it is unforced and still asks."""
        attempt = self.attempt
        return attempt is not None and attempt.step is PromotionStep.ASKING and not attempt.force_lossy

    def waits_for(self) -> str:
        """One sentence on what the attempt under way waits for; "" if there is none."""
        return self.attempt.waits_for() if self.attempt is not None else ""

    def evidence(self, attempt: Attempt | None = None) -> Evidence:
        """What a promotion would be judged by; without an attempt, by what peers said last."""
        if attempt is not None:
            ids = self._peers.answered_since(attempt.asked_at)
            unanswered = self._peers.unanswered_since(attempt.asked_at)
        else:
            ids = {i for i, m in self._membership.members.items() if m.connected}
            unanswered = self._peers.away()
        answers = {i: a for i, a in self.cluster_peers().items() if i in ids}
        newest = newest_known(self._local.record, answers)
        if attempt is not None and attempt.has_read:
            newest = attempt.held
        return evidence_of(
            self._me, self._tuning, self._membership.status, self._local, self._clocks.now, newest,
            self._lineage.cluster_id, self._following(), self._position(), answers,
            unanswered, self._peers.foreign_peers(), self._peers.copies(mine=True),
            self._peers.served, self._peers.left_out(), self._gone(),
        )  # fmt: skip

    def cluster_peers(self) -> dict[str, PeerAnswer]:
        """What the others said of themselves last, but for brokers of another cluster."""
        return {i: a for i, a in self._peers.answers.items() if not self._lineage.foreign(a)}

    def judge(self) -> Verdict:
        """Would an unforced promotion be granted, as far as is known without asking?

        A backup in sync may be promoted although its primary last said that it serves: the primary may hang,
        and a promotion asks it again. Where no authority arbitrates, that word is all there is, and it
        counts, as long as that node is not gone.
        """
        evidence, record = self.evidence(), self._local.record
        asks_again = self._authority.ARBITRATES or self._gone()
        if asks_again and record is not None and self._me.who in record.in_sync:
            others = {
                i: a for i, a in evidence.answers.items() if not (a.serving and i == record.owner.node_id)
            }
            evidence = replace(evidence, answers=others)
        return self._authority.judge(evidence, force_lossy=False)

    def judge_by(self, held: InSyncRecord | None) -> Verdict:
        """The same, if the authority holds that."""
        return self._authority.judge(replace(self.evidence(), newest=held), force_lossy=False)

    def needed_instead_of(self, node_id: str) -> bool:
        """That node is there and may not serve, and this one may: it alone has everything."""
        evidence = self.evidence()
        newest = evidence.newest
        alone = newest is not None and has_all_alone(evidence, newest, node_id)
        return alone and self.judge().granted

    def seems_over(self, record: InSyncRecord) -> bool:
        """By what is known without asking, the owner of the record does not serve by it: it is this node, or
        said so last, or its kernel said last that nobody listens."""
        owner = record.owner.node_id
        if owner == self._me.node_id:
            return True
        entry, answer = self._peers.at(owner), self._peers.answers.get(owner)
        if entry is None:
            return False
        if entry.peer is not None:
            return answer is not None and _is_over(answer, record)
        return entry.nobody_listens

    def answers(self, node_id: str) -> bool:
        """That node is there, and said last that it does not serve."""
        entry, answer = self._peers.at(node_id), self._peers.answers.get(node_id)
        return entry is not None and entry.peer is not None and answer is not None and not answer.serving

    def serving_peer(self) -> str:
        """The name of another node that is there and serves, as it says; or ""."""
        there = (a for a in self.cluster_peers().values() if self._membership.member(a.node_id).connected)
        return next((a.name for a in there if a.serving and not a.output_fenced), "")

    def other_register(self) -> str:
        """Another node that is there keeps the record elsewhere: a sentence, or ""."""
        mine = _register_of(self._tuning.compatibility)
        for answer in self.cluster_peers().values():
            theirs = _register_of(answer.compatibility)
            there = theirs and self._membership.member(answer.node_id).connected
            if there and (differs := difference(mine, theirs, answer.name)):
                return differs
        return ""

    def other_attempt(self) -> str:
        """The name of another node whose own promotion is being decided, as far as is known; or ""."""
        there = (a for a in self.cluster_peers().values() if self._membership.member(a.node_id).connected)
        return next((answer.name for answer in there if answer.promoting), "")

    # -- what happens

    def begin(
        self, token: int | None, new_cluster_id: str, now: float, *, force_lossy: bool, fenced: bool | str,
        gone: str = "",
    ) -> None:  # fmt: skip
        """An operator asks; without a token, this node itself, whose switchover that is, or which promotes
        itself. `gone`: id of the node that it follows, whose answer need not be waited for."""
        rules = self._rules
        self.attempt = Attempt(
            token, force_lossy, new_cluster_id, fenced, asked_at=now, deadline=now + rules.peer_patience,
            answer_by=now + rules.authority_patience, awake_at=now, gone=gone,
        )  # fmt: skip
        self._out.do(Redial())
        self._ask_anew()
        reading = self._keeper.read(self._read, now)
        self.attempt = replace(self.attempt, reading=reading)
        self.settle(now)

    def inherit(self, now: float) -> None:
        """The primary has handed over to this node, which asks and commits like any other."""
        if self.attempt is None:
            self.begin(None, "", now, force_lossy=False, fenced=False)
        else:
            self._on(steps.HandedOver(now), now)

    def settle(self, now: float) -> None:
        """Go on as far as what is known allows."""
        attempt = self.attempt
        if attempt is not None:
            all_heard = self._peers.all_heard_since(attempt.asked_at, but=attempt.gone)
            over = attempt.step is PromotionStep.WAITING and self._owner_is_over(attempt)
            trouble = self._keeper.trouble
            self._on(steps.Looked(now, self._local.record, all_heard, over, trouble), now)

    def timers(self, now: float) -> None:
        self._on(steps.Woken(now), now)
        self.settle(now)

    def next_deadline(self) -> float | None:
        return self.attempt.next_look(self._rules) if self.attempt is not None else None

    def give_up(self, reason: str) -> None:
        """The operator wants it no more. What the authority makes of a commit in flight is found at the
        next.
        """
        self._on(steps.GivenUp(reason), 0.0)

    def _read(self, outcome: Outcome, held: InSyncRecord | None, asked_at: float, now: float) -> None:
        self._on(steps.Read(now, outcome, held, self._local.record), now)

    def _committed(self, now: float) -> None:
        backup = self._following()
        self._on(steps.Committed(now, backup.said if backup is not None else None), now)

    def _beaten(self, held: InSyncRecord | None, now: float) -> None:
        self._on(steps.Beaten(held), now)

    def _judge(self, now: float) -> None:
        attempt = self.attempt
        if attempt is None:
            raise Broken("a promotion is judged that has ended")
        evidence = self.evidence(attempt)
        verdict = self._authority.judge(evidence, force_lossy=attempt.force_lossy)
        lineage, old = self._lineage, evidence.newest
        known = [max(a.epoch, a.seen) for a in evidence.answers.values()]
        newest = max([old.epoch if old else 0, *known])
        epoch = lineage.mint(self._authority, newest) if verdict.granted else 0
        self._on(
            steps.Judged(now, verdict, evidence, self._local.record, epoch, lineage.cluster_id), now
        )  # fmt: skip

    def _owner_is_over(self, attempt: Attempt) -> bool:
        """The old owner has said that it does not serve, or its kernel has said that nothing listens there.
        An owner that had not begun to serve proves nothing: a primary before it may go on for a lease."""
        old = attempt.before
        if old is None:
            return True
        if not attempt.old_served:
            return False
        owner = old.owner.node_id
        entry, answer = self._peers.at(owner), self._peers.answers.get(owner)
        if entry is None:
            return False
        if answer is not None and entry.answered_at >= attempt.asked_at and _is_over(answer, old):
            return True
        backup = self._following()
        end = backup.link_end if backup is not None else None
        # Of a link before the last one nothing follows: since then the two have linked again.
        last = end is not None and not end.asked_again
        ended = end is not None and last and (end.primary_id, end.epoch) == (owner, old.epoch)
        if end is not None and ended and end.handed_over:
            return True
        return entry.refused_at >= (end.closed_at if end is not None and ended else attempt.committed_at)

    # -- what is decided

    def _on(self, event: Event, now: float) -> None:
        if self.attempt is None:
            return
        self.attempt, decisions = steps.step(self.attempt, event, self._rules)
        for decision in decisions:
            self._carry_out(decision, now)

    def _carry_out(self, decision: Decision, now: float) -> None:  # noqa: C901 - one line for each decision
        match decision:
            case steps.AskPeers():
                self._ask_anew()
            case steps.ReadAuthority():
                self._keeper.read(self._read, now)
            case steps.LookAgain():
                self.settle(now)
            case steps.Judge():
                self._judge(now)
            case steps.TrustReplica():
                self._trust_replica()
            case steps.TellCommitted():
                if self.attempt is not None and self.attempt.record is not None:
                    epoch = self.attempt.record.epoch
                    self._out.log(codes.PROMOTION_COMMITTED.say(epoch=epoch, state=self.waits_for()))
            case steps.SawEpoch(epoch):
                self._lineage.saw(epoch)
            case steps.Propose(record, expected):
                self._keeper.propose(record, expected, self._committed, self._beaten, now)
            case steps.LeaveOldPrimary(keep_all):
                self._leave_old_primary(keep_all, now)
            case steps.Learn(record):
                self._lineage.learn(record)
            case steps.Adopt(record):
                self._lineage.adopt(record)
            case steps.Owned(asked_at):
                self._keeper.owned(asked_at)
            case steps.Serve(attempt):
                self._serve_by(attempt, now)
            case steps.Refuse(token, why, way):
                self._refuse(token, why, way)
            case steps.Reply(token, said):
                self._reply(token, said)
            case _:
                assert_never(decision)

    def _ask_anew(self) -> None:
        self._peers.ask_anew()
        self._ask_all()

    def _trust_replica(self) -> None:
        record = self._local.record
        if self._local.replica.incomplete and record is not None and self._me.who in record.in_sync:
            self._local.save(record, False)

    def _leave_old_primary(self, keep_all: bool, now: float) -> None:
        backup = self._following()
        if backup is not None:
            backup.leave(now)
            backup.stand_alone(keep_all=keep_all)

    def _serve_by(self, attempt: Attempt, now: float) -> None:
        self.last_refusal = ""
        held = self._serve(attempt, now)
        epoch = attempt.record.epoch if attempt.record is not None else 0
        self._out.log(codes.PROMOTED.say(epoch=epoch, how=attempt.how, why=attempt.reason))
        if held is not None:
            self._out.log(held)
        reason = f"{attempt.reason}; {held.sentence}" if held is not None else attempt.reason
        self._reply(attempt.token, f"promoted in epoch {epoch}: {reason}")

    def _refuse(self, token: int | None, why: Coded, way: str) -> None:
        self._keeper.forget()
        why = with_next(why, way)
        said = why.about("not promoted")
        if token is not None or said.sentence != self.last_refusal:
            self._out.warn(why.about("promotion refused"))
        self.last_refusal = said.sentence
        self._reply(token, said)

    def _reply(self, token: int | None, said: Coded | str) -> None:
        """A refusal has a code."""
        if token is not None:
            self._out.do(refused(token, said) if isinstance(said, Coded) else Answer(token, True, said))


def _register_of(compatibility: Compatibility) -> Compatibility:
    """The settings that say where the record is kept."""
    return {key: compatibility[key] for key in REGISTER_KEYS if key in compatibility}


def _is_over(answer: PeerAnswer, old: InSyncRecord) -> bool:
    """Does the owner of `old` say that it no longer serves by it? An answer from before it owned the record,
    or before it began to serve, proves nothing."""
    return answer.epoch >= old.epoch and not answer.serving and not answer.promoting
