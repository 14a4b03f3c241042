"""Switchover: the planned change of primaries, which loses nothing: drain, hand over, see the heir serve.

Owner: HaBroker, one for the node's life; at most one at a time. Steps, all of them on the old primary:

    DRAINING   clients are not read from and get nothing new; all that was gathered is flushed, until every
               backup that counts has acknowledged the last position, and whatever was due to clients is out;
               then the heir is asked whether it runs, and has to answer
    HANDED     this node has stepped down, and has told the heir so, with that position: it waits to see it
               serve
    RETURNING  the heir did not in time: this node asks to be promoted again, by the ordinary rules

The acknowledgements of an idle pair may be as old as its last heartbeat, and the heir may stand still since:
so it is asked at the very end of the first step, and no answer to anything of before counts.

Of the steps only the first can be taken back, and until its end nothing has happened. A crash of either is an
ordinary crash: before HANDOVER arrives the heir is a backup whose primary has closed its link, and after it
one that is being promoted. The operator is answered once clients are served, by whomever, or nobody is to be
had who does.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.model.values import Position
from ha.core import codes
from ha.core.clocks import Clocks
from ha.core.effects import Announce, Answer, HoldInput, SendMethod, TakeInput, refused
from ha.core.election.promotion import Promotion
from ha.core.membership import Membership, Status
from ha.core.outbox import Outbox
from ha.core.ports import PrimaryModel
from ha.core.primary.primary import Primary
from ha.core.primary.remote_backup import Phase, RemoteBackup
from ha.core.record.authority import PeerAnswer
from ha.core.record.in_sync_record import Incarnation
from ha.core.record.record_keeper import RecordKeeper
from ha.core.refusal import with_next
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning
from ha.core.wire.link import Method, heartbeat, to_json
from understudy.shared.codes import Coded


class SwitchoverStep(enum.Enum):
    DRAINING = "draining"
    HANDED = "handed over"
    RETURNING = "returning"


@dataclass(slots=True)
class SwitchoverPlan:
    """One switchover that was asked for."""

    token: int
    heir: Incarnation
    name: str
    address: str
    epoch: int
    """The one that is to end."""
    until: float
    """When the step that it is in has taken too long."""
    step: SwitchoverStep = SwitchoverStep.DRAINING
    asked: float | None = None
    """When the heir was asked whether it runs, all else being done; None: not all of it is."""
    why: str = ""
    """What went wrong, once this node wants to be primary again."""

    @property
    def whom(self) -> str:
        return f"{self.name} at {self.address}" if self.address else self.name


class SwitchoverStage(Protocol):
    """What HaBroker is, and does, for it."""

    primary: Primary | None
    promotion: Promotion

    @property
    def withheld(self) -> bool:
        """It serves without proof."""

    def known_primary(self) -> str | None:
        """Name and address of the node that serves."""

    def step_down(self, reason: str, now: float, heir: tuple[int, bytes] | None = None) -> None:
        """Serve no more; the last that the peer of `heir` gets on its link is that HANDOVER."""


class Switchover:
    """`plan`: the one under way, or None."""

    def __init__(
        self, me: OwnIdentity, tuning: Tuning, membership: Membership, clocks: Clocks, outbox: Outbox,
        model: PrimaryModel, keeper: RecordKeeper, position: Callable[[], Position],
        stage: SwitchoverStage,
    ) -> None:  # fmt: skip
        self._me = me
        self._tuning = tuning
        self._membership = membership
        self._clocks = clocks
        self._out = outbox
        self._model = model
        self._keeper = keeper
        self._position = position
        self._stage = stage
        self.plan: SwitchoverPlan | None = None

    @property
    def draining(self) -> bool:
        """Clients that come now are held: soon they are told where to go, or served here again."""
        return self.plan is not None and self.plan.step is SwitchoverStep.DRAINING

    def reason(self) -> str:
        """One sentence on what it waits for; "" if there is none."""
        plan = self.plan
        if plan is None:
            return ""
        match plan.step:
            case SwitchoverStep.DRAINING:
                return f"switching over to {plan.name}: takes in nothing new until it has everything"
            case SwitchoverStep.HANDED:
                return f"has handed over to {plan.name}, and waits to see it serve"
            case SwitchoverStep.RETURNING:
                return f"{plan.why}; wants to be primary again"

    # -- the beginning

    def begin(self, token: int, to: str | None, now: float) -> None:
        """An operator wants another to be primary: the backup named `to`, or the best of them."""
        primary, me = self._stage.primary, self._me
        if self._membership.status is Status.STANDALONE:
            self._answer(token, codes.SWITCHOVER_STANDALONE.say())
        elif self.plan is not None:
            said = codes.SWITCHOVER_UNDER_WAY.say(target=self.plan.name)
            self._answer(token, with_next(said, "wait for it"))
        elif primary is None:
            found = self._stage.known_primary()
            said = codes.SWITCHOVER_NOT_PRIMARY.say(node=me.name, primary=found or "nobody that it knows of")
            self._answer(token, with_next(said, "ask that one" if found else "promote one"))
        elif to in (me.name, me.node_id):
            self._answer(token, f"{me.name} serves already, in epoch {primary.epoch}")
        elif self._stage.withheld:
            said = codes.SWITCHOVER_LEASE_EXPIRED.say()
            way = "ask again when its status shows a proof; if it gets none, end it and promote the backup"
            self._answer(token, with_next(said, way))
        else:
            self._choose(primary, token, to, now)

    def _choose(self, primary: Primary, token: int, to: str | None, now: float) -> None:
        backups = [b for b in primary.backups.values() if to in (None, b.name, b.who.node_id)]
        ready = [b for b in backups if b.phase is Phase.IN_SYNC and b.peer is not None]
        if not ready and to is not None:
            named = backups[0] if backups else None
            stands = f"it is {named.phase.value}" if named is not None else "it is no backup of this node"
            names = ", ".join(sorted(b.name for b in primary.backups.values()))
            others = f"its backups are {names}" if names else "start it"
            way = "ask again when its status is ready" if named is not None else others
            said = codes.SWITCHOVER_TARGET_NOT_READY.say(target=to, state=stands)
            self._answer(token, with_next(said, way))
        elif not ready:
            said = codes.SWITCHOVER_NO_BACKUP.say()
            self._answer(token, with_next(said, "start one, and ask again when its status is ready"))
        else:
            best = max(ready, key=lambda b: (b.acked_durable, b.acked, b.proof or 0.0, b.name))
            self._drain(primary, best, token, now)

    def _drain(self, primary: Primary, heir: RemoteBackup, token: int, now: float) -> None:
        address = self._membership.member(heir.who.node_id).address
        limit = now + self._tuning.ack_timeout
        self.plan = SwitchoverPlan(token, heir.who, heir.name, address, primary.epoch, limit)
        primary.drains = True
        self._out.log(f"switches over to {heir.name}: takes in nothing new until it has everything")
        self._out.do(Announce("switchover", heir.who.node_id, heir.name, ""), HoldInput())
        self._tell(heir, None)

    def _tell(self, heir: RemoteBackup, off: str | None) -> None:
        """That it is about to be handed over to, or is not any more: so it holds clients, or refuses them."""
        if heir.peer is not None:
            notice = {"epoch": self._epoch, "position": None, "off": off}
            self._out.do(SendMethod(heir.peer, Method.HANDOVER, to_json(notice)))

    @property
    def _epoch(self) -> int:
        return self.plan.epoch if self.plan is not None else 0

    # -- draining

    def end_tick(self, now: float) -> None:
        """After the flush, which has left nothing gathered: is everything where it is to be?"""
        plan, primary = self.plan, self._stage.primary
        if plan is None or plan.step is not SwitchoverStep.DRAINING or primary is None:
            return
        heir = primary.backups.get(plan.heir.node_id)
        if heir is None or heir.who != plan.heir or heir.phase is not Phase.IN_SYNC or heir.peer is None:
            why = "it is not in sync any more"
            if plan.asked is not None:
                why = "it did not answer, and is not in sync any more"
            self._resume(primary, plan, why)
            return
        position = self._model.position()
        if not self._drained(primary, heir, position):
            plan.asked = None
        elif self._answered(plan, heir, now):
            primary.quiesce(now)
            document = {"epoch": plan.epoch, "position": list(position), "off": None}
            plan.step, plan.until = SwitchoverStep.HANDED, now + self._tuning.backup_timeout
            self._stage.step_down(f"switchover to {plan.whom}", now, (heir.peer, to_json(document)))
            return
        if now >= plan.until:
            self._tell(heir, "it takes too long")
            self._resume(primary, plan, self._left(primary, plan, heir, position))

    def _drained(self, primary: Primary, heir: RemoteBackup, position: Position) -> bool:
        """Both disks of the pair, and whoever else confirms wait for, have the last position; nobody waits
        for an answer; and no change of the record is in flight, which would cross the heir's.
        """
        return (
            primary.flushed_all
            and min(primary.applied, primary.durable, heir.acked, heir.acked_durable) >= position
            and self._position() >= position
            and self._model.all_answered()
            and not self._keeper.busy
            and not self._stage.withheld
        )

    def _answered(self, plan: SwitchoverPlan, heir: RemoteBackup, now: float) -> bool:
        """Has the heir answered since all was done? It is asked here. Its answer echoes when it was asked:
        one to an earlier question is none, however long it was on its way.
        """
        if plan.asked is None and heir.peer is not None:
            plan.asked = now
            self._out.do(SendMethod(heir.peer, Method.HEARTBEAT, heartbeat(self._clocks, now)))
        return plan.asked is not None and heir.has_heard(plan.asked)

    def _left(self, primary: Primary, plan: SwitchoverPlan, heir: RemoteBackup, position: Position) -> str:
        """What was not done in time."""
        limit = f"within {self._tuning.ack_timeout:g} s"
        if plan.asked is not None:
            return f"it has everything, but did not answer {limit}"
        if heir.acked_durable < position:
            return f"it did not acknowledge everything {limit}"
        if self._position() < position:
            return f"the disk of {self._me.name} did not take everything {limit}"
        if self._keeper.busy:
            return f"a change of the record was not committed {limit}"
        return f"clients were not all answered {limit}: {primary.reason()}"

    def _resume(self, primary: Primary, plan: SwitchoverPlan, why: str) -> None:
        """Nothing has happened: this node goes on as it was."""
        primary.drains = False
        self._out.do(TakeInput())
        self._out.log(f"goes on serving: {plan.name} could not take over: {why}")
        said = codes.SWITCHOVER_TAKEN_BACK.say(target=plan.name, cause=why)
        self._end(plan, with_next(said, f"{self._me.name} serves on; ask again"))

    # -- handed over

    def settle(self, now: float) -> None:
        """Somebody said how it stands, or this node has changed its role, or time has passed."""
        plan, primary = self.plan, self._stage.primary
        if plan is None or plan.step is SwitchoverStep.DRAINING:
            return
        serving = self._serving(plan)
        if primary is not None:
            why = plan.why or f"{self._me.name} was promoted again"
            me = self._me.name
            self._end(plan, codes.SWITCHOVER_RETURNED.say(cause=why, node=me, epoch=primary.epoch))
        elif serving is not None and serving.node_id == plan.heir.node_id:
            self._end(plan, f"{plan.name} serves in epoch {serving.epoch}")
        elif serving is not None:
            self._end(plan, codes.SWITCHOVER_OTHER_PROMOTED.say(node=serving.name, epoch=serving.epoch))
        elif plan.step is SwitchoverStep.HANDED:
            self._wait(plan, now)
        elif not self._stage.promotion.active:
            refusal = self._stage.promotion.last_refusal
            self._end(plan, codes.SWITCHOVER_NOBODY_SERVES.say(cause=plan.why, refusal=refusal))

    def _serving(self, plan: SwitchoverPlan) -> PeerAnswer | None:
        """Who serves in a later epoch."""
        later = [a for a in self._stage.promotion.kin().values() if a.serving and a.epoch > plan.epoch]
        return max(later, key=lambda a: a.epoch, default=None)

    def _wait(self, plan: SwitchoverPlan, now: float) -> None:
        said = self._stage.promotion.kin().get(plan.heir.node_id)
        if said is not None and said.incarnation > plan.heir.number:
            plan.why = f"{plan.name} was started again"
        elif now >= plan.until:
            plan.why = f"{plan.name} did not begin to serve within {self._tuning.backup_timeout:g} s"
        else:
            return
        plan.step = SwitchoverStep.RETURNING
        self._out.log(f"wants to be primary again: {plan.why}")
        if not self._stage.promotion.active:
            self._stage.promotion.begin(None, "", now, force_lossy=False, fenced=False)

    # -- the end

    def give_up(self, reason: str) -> None:
        """It came to nothing: this node's role has ended otherwise, or the operator wants it no more."""
        if self.plan is not None:
            self._end(self.plan, codes.SWITCHOVER_TAKEN_BACK.say(target=self.plan.name, cause=reason))

    def _end(self, plan: SwitchoverPlan, said: Coded | str) -> None:
        self.plan = None
        self._answer(plan.token, said)

    def _answer(self, token: int, said: Coded | str) -> None:
        """A refusal has a code."""
        self._out.do(refused(token, said) if isinstance(said, Coded) else Answer(token, True, said))

    def next_deadline(self) -> float | None:
        plan = self.plan
        return plan.until if plan is not None and plan.step is not SwitchoverStep.RETURNING else None
