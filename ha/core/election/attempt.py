"""A promotion as a value: `step` says what follows from each event, and what is to be done, in order.

Pure. `Promotion` gathers the events and carries out the decisions. The phases of an attempt:

    ASKING      how everybody stands, and what the authority holds; then the rules decide
    COMMITTING  one swap of the record; while its outcome is unknown the same is asked again, for ever
    WAITING     the record is this node's; it serves once no earlier owner can still be confirming
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ha.core import codes
from ha.core.backup.backup import Said
from ha.core.errors import Broken
from ha.core.record.authority import FORCED, Evidence, Verdict
from ha.core.record.in_sync_record import InSyncRecord, RecordVersion, is_behind, next_record
from ha.core.record.record_keeper import RETRY, Outcome, authority_trouble
from ha.core.role import OwnIdentity
from understudy.shared.codes import Coded

LOOK = "see who serves (understudy status); if nobody does, ask again"


class PromotionStep(enum.Enum):
    ASKING = "asking"
    COMMITTING = "committing"
    WAITING = "waiting"


@dataclass(slots=True, frozen=True)
class Rules:
    """What is the same for all attempts of a node. Times in seconds. `arbitrates`: the authority holds one
    record for all, and not a copy of it with each node."""

    me: OwnIdentity
    peer_patience: float
    authority_patience: float
    lease: float
    arbitrates: bool


@dataclass(slots=True, frozen=True)
class Attempt:
    """One promotion that was asked for."""

    token: int | None
    """Of the operator who waits; None once answered."""
    force_lossy: bool
    new_cluster_id: str
    fenced: bool | str
    """The operator vouches that the old primary, the owner of the record, runs no more; or the node of that
    name, which may be another one: somebody has switched over since."""
    asked_at: float
    """When the peers were asked last."""
    deadline: float
    """Until when their answers are waited for."""
    answer_by: float
    """When the operator is answered at the latest, or the authority is waited for no more."""
    awake_at: float
    """When it was looked at last."""
    gone: str = ""
    """Id of a node whose answer is not waited for: its lease with the authority has run out."""
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

    @property
    def before(self) -> InSyncRecord | None:
        """The record by which an earlier owner may still serve."""
        return self.known if is_behind(self.old, self.known) else self.old

    def waits_for(self) -> str:
        """One sentence on what it waits for."""
        match self.step:
            case PromotionStep.ASKING:
                return "another promotion is being decided"
            case PromotionStep.COMMITTING:
                return "being promoted; the authority has not said yet whether the record is this node's"
            case PromotionStep.WAITING:
                before = self.before
                owner = before.owner_name if before is not None else "nobody"
                whose = owner if self.old_served else f"whoever served before {owner}"
                return f"being promoted; waits until the lease of {whose} has run out"

    def next_look(self, rules: Rules) -> float | None:
        """When time alone may change something."""
        match self.step:
            case PromotionStep.ASKING:
                if not self.reading:
                    return min(self.deadline, self.awake_at + rules.peer_patience / 4)
                return min(self.read_at or self.answer_by, self.answer_by)
            case PromotionStep.COMMITTING:
                return self.answer_by if self.token is not None else None
            case PromotionStep.WAITING:
                return self.serve_at


# -- events


@dataclass(slots=True, frozen=True)
class Looked:
    """A peer has answered, or time has passed. `record`: the newest that this node knows of; `all_heard`:
    each peer has answered since it was asked, or cannot; `owner_over`: the old owner serves no more;
    `trouble`: why the authority said nothing, if it is known."""

    now: float
    record: InSyncRecord | None
    all_heard: bool
    owner_over: bool
    trouble: str = ""


@dataclass(slots=True, frozen=True)
class Woken:
    """A deadline may have come."""

    now: float


@dataclass(slots=True, frozen=True)
class Read:
    """The authority's answer. `record`: the newest that this node knows of."""

    now: float
    outcome: Outcome
    held: InSyncRecord | None
    record: InSyncRecord | None


@dataclass(slots=True, frozen=True)
class Judged:
    """`record`: the newest that this node knows of; `epoch`: the one to be served in; `cluster_id`: of this
    node, if it is of one."""

    now: float
    verdict: Verdict
    evidence: Evidence
    record: InSyncRecord | None
    epoch: int
    cluster_id: str | None


@dataclass(slots=True, frozen=True)
class Committed:
    """The record is this node's. `said`: this node's last acknowledgement to a primary."""

    now: float
    said: Said | None


@dataclass(slots=True, frozen=True)
class Beaten:
    """The authority has another record than the one that was to be replaced."""

    held: InSyncRecord | None


@dataclass(slots=True, frozen=True)
class HandedOver:
    """The primary has handed over to this node. Answers to an earlier question do not count."""

    now: float


@dataclass(slots=True, frozen=True)
class GivenUp:
    """The operator, or this node, wants it no more."""

    reason: str


# -- decisions


@dataclass(slots=True, frozen=True)
class AskPeers:
    """Ask all peers again how they stand."""


@dataclass(slots=True, frozen=True)
class ReadAuthority:
    """Ask the authority what it holds."""


@dataclass(slots=True, frozen=True)
class LookAgain:
    """Look at the attempt once more, now."""


@dataclass(slots=True, frozen=True)
class Judge:
    """Gather the evidence and have the authority judge it."""


@dataclass(slots=True, frozen=True)
class TrustReplica:
    """If the record names this very process, what it has is whole, and on disk, though its primary died
    before it said so. It is marked before the swap, which may be made without this node living to hear of it.
    """


@dataclass(slots=True, frozen=True)
class TellCommitted:
    """For the log, if it has to wait."""


@dataclass(slots=True, frozen=True)
class SawEpoch:
    epoch: int


@dataclass(slots=True, frozen=True)
class Propose:
    """Have `record` replace the one of version `expected` with the authority."""

    record: InSyncRecord
    expected: RecordVersion | None


@dataclass(slots=True, frozen=True)
class LeaveOldPrimary:
    """Follow and acknowledge no primary from now on. `keep_all`: keep also what came of a resync that was not
    finished."""

    keep_all: bool


@dataclass(slots=True, frozen=True)
class Learn:
    """That record's cluster and epoch are ours."""

    record: InSyncRecord


@dataclass(slots=True, frozen=True)
class Adopt:
    """Take the authority's record, if it is newer than this node's own."""

    record: InSyncRecord


@dataclass(slots=True, frozen=True)
class Owned:
    """An answer to a question of `asked_at` shows this node as the owner."""

    asked_at: float


@dataclass(slots=True, frozen=True)
class Serve:
    attempt: Attempt


@dataclass(slots=True, frozen=True)
class Refuse:
    """It ends. `way`: what the operator may do."""

    token: int | None
    why: Coded
    way: str


@dataclass(slots=True, frozen=True)
class Reply:
    """The operator is answered; the attempt goes on."""

    token: int
    said: Coded


Event = Looked | Woken | Read | Judged | Committed | Beaten | HandedOver | GivenUp
Decision = (
    AskPeers | ReadAuthority | LookAgain | Judge | TrustReplica | TellCommitted | SawEpoch | Propose
    | LeaveOldPrimary | Learn | Adopt | Owned | Serve | Refuse | Reply
)  # fmt: skip
Move = tuple[Attempt | None, tuple[Decision, ...]]
"""How the attempt goes on, None at its end; and what is to be done."""


# -- asking


def _look_while_asking(attempt: Attempt, event: Looked, rules: Rules) -> Move:
    now = event.now
    # This process stood still while it asked (SIGSTOP, say): whoever asked it meanwhile had no answer, and
    # may have gone on without it. Where somebody arbitrates, that shows when the record is swapped.
    slept = now - attempt.awake_at > rules.peer_patience / 2 and not rules.arbitrates
    attempt = replace(attempt, awake_at=now)
    if slept:
        return _asked_anew(attempt, now, rules), (AskPeers(), LookAgain())
    if attempt.reading and now >= attempt.answer_by:
        way = "see that it runs and can be reached from here, and ask again"
        return _refused(attempt, authority_trouble(event.trouble), way)
    if attempt.reading or not (event.all_heard or now >= attempt.deadline):
        return attempt, ()
    return attempt, (Judge(),)


def _asked_anew(attempt: Attempt, now: float, rules: Rules) -> Attempt:
    return replace(attempt, asked_at=now, deadline=now + rules.peer_patience)


def _handed_over(attempt: Attempt, event: HandedOver, rules: Rules) -> Move:
    return _asked_anew(attempt, event.now, rules), (AskPeers(),)


def _woken(attempt: Attempt, event: Woken, rules: Rules) -> Move:
    if attempt.read_at is None or event.now < attempt.read_at:
        return attempt, ()
    return replace(attempt, read_at=None), (ReadAuthority(),)


def _read(attempt: Attempt, event: Read, rules: Rules) -> Move:
    """An answer that is older than what this node has heard since is asked for again."""
    behind = is_behind(event.held, event.record) and event.now + RETRY < attempt.answer_by
    if event.outcome is Outcome.UNKNOWN or behind:
        return replace(attempt, read_at=event.now + RETRY), ()
    # A node of no cluster may have been given another pair's authority by mistake.
    adopted = (Adopt(event.held),) if event.held is not None and event.record is not None else ()
    return replace(attempt, reading=False, has_read=True, held=event.held), adopted


def _judged(attempt: Attempt, event: Judged, rules: Rules) -> Move:
    verdict, old = event.verdict, event.evidence.newest
    if not verdict.granted:
        return _refused(attempt, verdict.said, verdict.way)
    cluster = event.cluster_id or (old.cluster_id if old else None) or attempt.new_cluster_id
    record = next_record(old, verdict.how, event.epoch, rules.me.who, rules.me.name, cluster)
    attempt = replace(
        attempt, step=PromotionStep.COMMITTING, answer_by=event.now + rules.authority_patience,
        how=verdict.how, reason=verdict.reason, record=record, old=old, known=event.record,
    )  # fmt: skip
    before = attempt.before
    attempt = replace(attempt, old_served=before is None or _has_served(before, event.evidence))
    expected = old.version if old is not None else None
    return attempt, (SawEpoch(event.epoch), TrustReplica(), Propose(record, expected))


def _has_served(old: InSyncRecord, evidence: Evidence) -> bool:
    """Whether the owner of `old` has certainly begun to serve by it: only then does it change the record, and
    is there history of its epoch."""
    positions = [evidence.position, *(answer.position for answer in evidence.answers.values())]
    return old.revision > 1 or any(position.epoch == old.epoch for position in positions)


# -- committing


def _look_while_committing(attempt: Attempt, event: Looked, rules: Rules) -> Move:
    if event.record != attempt.known:
        # It has replaced the one that the swap expects: whatever the authority says, and when.
        return _beaten(attempt, Beaten(event.record), rules)
    if attempt.token is not None and event.now >= attempt.answer_by:
        said = codes.PROMOTE_UNDECIDED.say(state=attempt.waits_for())
        return replace(attempt, token=None), (Reply(attempt.token, said),)
    return attempt, ()


def _beaten(attempt: Attempt, event: Beaten, rules: Rules) -> Move:
    held = event.held
    if held is None:
        return _refused(attempt, codes.PROMOTE_RECORD_GONE.say(), "ask again")
    said = codes.PROMOTE_RECORD_CHANGED.say(epoch=held.epoch, owner=held.owner_name)
    return None, (Adopt(held), Refuse(attempt.token, said, LOOK))


def _committed(attempt: Attempt, event: Committed, rules: Rules) -> Move:
    """The old owner may go on for a lease after what this node acknowledged to it last, or after now, if that
    is not known."""
    old, now, said, who = attempt.before, event.now, event.said, rules.me.who
    serve_at = now
    fenced = attempt.fenced is True or (old is not None and attempt.fenced == old.owner_name)
    over = old is None or fenced or old.owner.node_id == who.node_id
    if old is not None and not (over and attempt.old_served):
        heard = said is not None and (said.primary_id, said.epoch) == (old.owner.node_id, old.epoch)
        # Of whom it has excluded, who is promoted by force, the old owner needs no word to go on.
        heard = heard and who in old.in_sync
        serve_at = (said.at if said is not None and heard else now) + rules.lease
    attempt = replace(attempt, step=PromotionStep.WAITING, committed_at=now, serve_at=serve_at)
    if attempt.record is None:
        raise Broken("a promotion was committed without a record")
    return attempt, (
        LeaveOldPrimary(keep_all=attempt.how == FORCED),
        Learn(attempt.record),
        Owned(attempt.asked_at),  # the peers were asked then, at the least
        LookAgain(),
        TellCommitted(),
    )


# -- waiting


def _look_while_waiting(attempt: Attempt, event: Looked, rules: Rules) -> Move:
    """Serve, once no earlier owner can be confirming any more; unless somebody else was promoted."""
    if event.record != attempt.record:
        return _refused(attempt, codes.PROMOTE_RECORD_NEWER.say(), LOOK)
    if event.now < attempt.serve_at and not event.owner_over:
        return attempt, ()
    return None, (Serve(attempt),)


# -- the end


def _given_up(attempt: Attempt, event: GivenUp, rules: Rules) -> Move:
    return _refused(attempt, codes.PROMOTE_GIVEN_UP.say(cause=event.reason), "")


def _refused(attempt: Attempt, why: Coded, way: str) -> Move:
    return None, (Refuse(attempt.token, why, way),)


_ASKING, _COMMITTING, _WAITING = PromotionStep

_Step = Callable[[Attempt, Any, Rules], Move]

STEPS: dict[tuple[PromotionStep, type[Any]], _Step] = {
    (_ASKING, Looked): _look_while_asking,
    (_ASKING, Read): _read,
    (_ASKING, Judged): _judged,
    (_ASKING, HandedOver): _handed_over,
    (_COMMITTING, Looked): _look_while_committing,
    (_COMMITTING, Committed): _committed,
    (_COMMITTING, Beaten): _beaten,
    (_WAITING, Looked): _look_while_waiting,
}
for _phase in PromotionStep:
    STEPS[_phase, Woken] = _woken
    STEPS[_phase, GivenUp] = _given_up
"""What follows from an event in each phase. Any other event changes nothing: it comes too late."""


NEXT: dict[PromotionStep, frozenset[PromotionStep]] = {
    _ASKING: frozenset({_COMMITTING}),
    _COMMITTING: frozenset({_WAITING}),
    _WAITING: frozenset(),
}
"""From each phase, where to. An attempt may stay in each, and end in each. Anything else stops the node."""


def step(attempt: Attempt, event: Event, rules: Rules) -> Move:
    """How the attempt goes on after `event`."""
    move = STEPS.get((attempt.step, type(event)))
    if move is None:
        return attempt, ()
    after, decisions = move(attempt, event, rules)
    if after is not None and after.step not in NEXT[attempt.step] | {attempt.step}:
        raise Broken(f"a promotion goes from {attempt.step.value} to {after.step.value}")
    return after, decisions
