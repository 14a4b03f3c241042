"""A switchover as a value: `step` says what follows from each event, and what is to be done, in order.

Pure. `Switchover` gathers the events and carries out the decisions, all of them on the old primary. Phases:

    ASKING     the authority is asked whether it answers, where there is one: without it the target could not
               be promoted; clients notice nothing
    DRAINING   clients are not read from and get nothing new; all that was gathered is flushed, until every
               backup that counts has acknowledged the last position, and whatever was due to clients is out;
               then the target is asked whether it runs, and has to answer
    HANDED     this node has stepped down, and has told the target so, with that position: it waits to see it
               serve
    RETURNING  the target did not in time: this node asks to be promoted again, by the ordinary rules
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from broker.model.values import Position
from ha.core import codes
from ha.core.errors import Broken
from ha.core.primary.remote_backup import Phase
from ha.core.record.in_sync_record import Incarnation
from ha.core.refusal import with_next
from understudy.shared.codes import Coded


class SwitchoverStep(enum.Enum):
    ASKING = "asking"
    DRAINING = "draining"
    HANDED = "handed over"
    RETURNING = "returning"


@dataclass(slots=True, frozen=True)
class Limits:
    """Times in seconds. `name`: this node's; `arbitrates`: there is an authority to ask."""

    name: str
    ack_timeout: float
    backup_timeout: float
    authority_patience: float = 2.0
    arbitrates: bool = False


@dataclass(slots=True, frozen=True)
class SwitchoverPlan:
    """One switchover that was asked for."""

    token: int
    target: Incarnation
    name: str
    address: str
    epoch: int
    """The one that is to end."""
    until: float
    """When the phase that it is in has taken too long."""
    step: SwitchoverStep = SwitchoverStep.ASKING
    asked: float | None = None
    """When the target was asked whether it runs, all else being done; None: not all of it is."""
    why: str = ""
    """What went wrong, once this node wants to be primary again."""

    @property
    def whom(self) -> str:
        return f"{self.name} at {self.address}" if self.address else self.name

    def reason(self) -> str:
        """One sentence on what it waits for."""
        match self.step:
            case SwitchoverStep.ASKING:
                return f"asked to switch over to {self.name}: waits for the authority's answer"
            case SwitchoverStep.DRAINING:
                return f"switching over to {self.name}: takes in nothing new until it has everything"
            case SwitchoverStep.HANDED:
                return f"has handed over to {self.name}, and waits to see it serve"
            case SwitchoverStep.RETURNING:
                return f"{self.why}; wants to be primary again"


# -- events


@dataclass(slots=True, frozen=True)
class Answered:
    """The authority has answered, or cannot: then `trouble` says why. `target_in_sync`: as in `Flushed`."""

    now: float
    trouble: str
    target_in_sync: bool


@dataclass(slots=True, frozen=True)
class Candidate:
    """A backup. `rank`: the highest has the most."""

    who: Incarnation
    name: str
    address: str
    phase: Phase
    linked: bool
    rank: tuple[Any, ...]

    @property
    def ready(self) -> bool:
        return self.phase is Phase.IN_SYNC and self.linked


@dataclass(slots=True, frozen=True)
class Flushed:
    """A tick's flush has left nothing gathered. `target_in_sync`: the target is the same process, in sync and
    linked; `drained`: everything has been acknowledged and answered; `answered`: the target has answered
    since it was asked; `position`: the last one; `missing`: what is not done, once the time is over."""

    now: float
    target_in_sync: bool
    drained: bool
    answered: bool
    position: Position
    missing: str


@dataclass(slots=True, frozen=True)
class Server:
    """A node that serves in a later epoch."""

    node_id: str
    name: str
    epoch: int


@dataclass(slots=True, frozen=True)
class Settled:
    """A peer has answered, this node has changed its role, or time has passed. `epoch`: in which this node
    serves, if it does; `server`: another node that serves; `target_number`: the incarnation that the target
    told last; `promoting`: this node asks to be promoted; `last_refusal`: why it was not."""

    now: float
    epoch: int | None
    server: Server | None
    target_number: int | None
    promoting: bool
    last_refusal: str


@dataclass(slots=True, frozen=True)
class GivenUp:
    """This node's role has ended otherwise, or the operator wants it no more."""

    reason: str


# -- decisions


@dataclass(slots=True, frozen=True)
class AskAuthority:
    """Ask the authority what it holds."""


@dataclass(slots=True, frozen=True)
class Drain:
    """Take in nothing new, and flush all."""


@dataclass(slots=True, frozen=True)
class ServeOn:
    """Nothing has happened: this node goes on as it was."""

    why: str


@dataclass(slots=True, frozen=True)
class Return:
    """Ask to be promoted again, unless it is being asked for."""


@dataclass(slots=True, frozen=True)
class Tell:
    """Tell the target that it is about to be handed over to, or why it is not any more: so it holds clients,
    or refuses them."""

    off: str | None


@dataclass(slots=True, frozen=True)
class AskTarget:
    """Ask it whether it runs. Its answer echoes when it was asked."""

    now: float


@dataclass(slots=True, frozen=True)
class HandOver:
    """Step down; the target gets everything up to `position`."""

    plan: SwitchoverPlan
    position: Position


@dataclass(slots=True, frozen=True)
class Say:
    """For the log."""

    said: Coded


@dataclass(slots=True, frozen=True)
class Reply:
    """It has ended, or did not begin: the operator is told. A refusal has a code."""

    token: int
    said: Coded | str


@dataclass(slots=True, frozen=True)
class End:
    """The plan has come to its end; the operator is told."""

    plan: SwitchoverPlan
    said: Coded | str


Event = Answered | Flushed | Settled | GivenUp
OfPrimary = Drain | ServeOn | Tell | AskTarget | HandOver
"""Decisions that are carried out while this node serves."""
Decision = OfPrimary | AskAuthority | Return | Say | Reply | End
Move = tuple[SwitchoverPlan | None, tuple[Decision, ...]]
"""How the plan goes on, None at its end; and what is to be done."""


# -- the beginning


def choose(
    token: int, to: str | None, candidates: Sequence[Candidate], epoch: int, now: float, limits: Limits
) -> Move:
    """Switch over to the backup named `to`, or to the one that has the most."""
    backups = [b for b in candidates if to in (None, b.name, b.who.node_id)]
    ready = [b for b in backups if b.ready]
    if ready:
        best = max(ready, key=lambda b: b.rank)
        plan = SwitchoverPlan(
            token, best.who, best.name, best.address, epoch, now + limits.authority_patience
        )  # fmt: skip
        return (plan, (AskAuthority(),)) if limits.arbitrates else _drain(plan, now, limits)
    if to is None:
        said = codes.SWITCHOVER_NO_BACKUP.say()
        way = "start one, and ask again when its status is ready"
        return None, (Reply(token, with_next(said, way)),)
    named = backups[0] if backups else None
    stands = f"it is {named.phase.value}" if named is not None else "it is no backup of this node"
    names = ", ".join(sorted(b.name for b in candidates))
    others = f"its backups are {names}" if names else "start it"
    way = "ask again when its status is ready" if named is not None else others
    said = codes.SWITCHOVER_TARGET_NOT_READY.say(target=to, state=stands)
    return None, (Reply(token, with_next(said, way)),)


# -- asking the authority


def _answered(plan: SwitchoverPlan, event: Answered, limits: Limits) -> Move:
    if event.trouble:
        return _without_authority(plan, event.trouble, limits)
    if not event.target_in_sync:
        return _taken_back(plan, "it is not in sync any more", limits)
    return _drain(plan, event.now, limits)


def _unanswered(plan: SwitchoverPlan, event: Settled, limits: Limits) -> Move:
    if event.now < plan.until:
        return plan, ()
    return _without_authority(plan, codes.PROMOTE_AUTHORITY_SILENT.say().sentence, limits)


def _without_authority(plan: SwitchoverPlan, trouble: str, limits: Limits) -> Move:
    said = codes.SWITCHOVER_AUTHORITY_AWAY.say(target=plan.name, trouble=trouble)
    return _over(plan, with_next(said, f"{limits.name} serves on; ask again when the authority answers"))


def _drain(plan: SwitchoverPlan, now: float, limits: Limits) -> Move:
    plan = replace(plan, step=SwitchoverStep.DRAINING, until=now + limits.ack_timeout)
    return plan, (Drain(), Tell(None))


# -- draining


def _flushed(plan: SwitchoverPlan, event: Flushed, limits: Limits) -> Move:
    """On an idle pair the acknowledgements may be as old as the last heartbeat, and the target may have
    stopped since. So it is asked at the very end, and only an answer to that question counts."""
    if not event.target_in_sync:
        lost = "it is not in sync any more"
        if plan.asked is not None:
            lost = "it did not answer, and is not in sync any more"
        return _taken_back(plan, lost, limits)
    asks: tuple[Decision, ...] = ()
    if not event.drained:
        plan = replace(plan, asked=None)
    elif event.answered:
        plan = replace(plan, step=SwitchoverStep.HANDED, until=event.now + limits.backup_timeout)
        return plan, (HandOver(plan, event.position),)
    elif plan.asked is None:
        plan, asks = replace(plan, asked=event.now), (AskTarget(event.now),)
    if event.now < plan.until:
        return plan, asks
    why = event.missing
    if plan.asked is not None:
        limit = f"within {limits.ack_timeout:g} s"
        why = f"it has everything, but did not answer {limit}"
    after, ends = _taken_back(plan, why, limits)
    return after, (*asks, Tell("it takes too long"), *ends)


def _taken_back(plan: SwitchoverPlan, why: str, limits: Limits) -> Move:
    said = codes.SWITCHOVER_TAKEN_BACK.say(target=plan.name, cause=why)
    return None, (ServeOn(why), End(plan, with_next(said, f"{limits.name} serves on; ask again")))


# -- handed over


def _settled(plan: SwitchoverPlan, event: Settled, limits: Limits) -> Move:
    server = event.server
    if event.epoch is not None:
        why = plan.why or f"{limits.name} was promoted again"
        return _over(plan, codes.SWITCHOVER_RETURNED.say(cause=why, node=limits.name, epoch=event.epoch))
    if server is not None and server.node_id == plan.target.node_id:
        return _over(plan, f"{plan.name} serves in epoch {server.epoch}")
    if server is not None:
        return _over(plan, codes.SWITCHOVER_OTHER_PROMOTED.say(node=server.name, epoch=server.epoch))
    if plan.step is SwitchoverStep.HANDED:
        return _waited(plan, event, limits)
    if not event.promoting:
        return _over(plan, codes.SWITCHOVER_NOBODY_SERVES.say(cause=plan.why, refusal=event.last_refusal))
    return plan, ()


def _waited(plan: SwitchoverPlan, event: Settled, limits: Limits) -> Move:
    if event.target_number is not None and event.target_number > plan.target.number:
        why = f"{plan.name} was started again"
    elif event.now >= plan.until:
        why = f"{plan.name} did not begin to serve within {limits.backup_timeout:g} s"
    else:
        return plan, ()
    plan = replace(plan, step=SwitchoverStep.RETURNING, why=why)
    return plan, (Say(codes.SWITCHOVER_RETURNS.say(why=why)), Return())


# -- the end


def _given_up(plan: SwitchoverPlan, event: GivenUp, limits: Limits) -> Move:
    return _over(plan, codes.SWITCHOVER_TAKEN_BACK.say(target=plan.name, cause=event.reason))


def _over(plan: SwitchoverPlan, said: Coded | str) -> Move:
    return None, (End(plan, said),)


_Step = Callable[[SwitchoverPlan, Any, Limits], Move]

STEPS: dict[tuple[SwitchoverStep, type[Any]], _Step] = {
    (SwitchoverStep.ASKING, Answered): _answered,
    (SwitchoverStep.ASKING, Settled): _unanswered,
    (SwitchoverStep.DRAINING, Flushed): _flushed,
    (SwitchoverStep.HANDED, Settled): _settled,
    (SwitchoverStep.RETURNING, Settled): _settled,
}
for _phase in SwitchoverStep:
    STEPS[_phase, GivenUp] = _given_up
"""What follows from an event in each phase. Any other event changes nothing."""


NEXT: dict[SwitchoverStep, frozenset[SwitchoverStep]] = {
    SwitchoverStep.ASKING: frozenset({SwitchoverStep.DRAINING}),
    SwitchoverStep.DRAINING: frozenset({SwitchoverStep.HANDED}),
    SwitchoverStep.HANDED: frozenset({SwitchoverStep.RETURNING}),
    SwitchoverStep.RETURNING: frozenset(),
}
"""From each phase, where to. A plan may stay in each, and end in each. Anything else stops the node."""


def step(plan: SwitchoverPlan, event: Event, limits: Limits) -> Move:
    """How the plan goes on after `event`."""
    move = STEPS.get((plan.step, type(event)))
    if move is None:
        return plan, ()
    after, decisions = move(plan, event, limits)
    if after is not None and after.step not in NEXT[plan.step] | {plan.step}:
        raise Broken(f"a switchover goes from {plan.step.value} to {after.step.value}")
    return after, decisions
