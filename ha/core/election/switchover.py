"""Switchover: the planned change of primaries, which loses nothing: drain, hand over, see the target serve.

Owner: HaBroker, one for the node's life; at most one at a time. `plan.py` decides. This module tells it
what has happened, and carries out the decisions.

Until the handover it can be taken back, and nothing has happened. A crash of either node is an
ordinary crash: before HANDOVER arrives the target is a backup whose primary has closed its link, and after it
one that is being promoted. The operator is answered once some node serves clients, or none can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, assert_never

from broker.model.values import Position
from ha.core import codes
from ha.core.clocks import Clocks
from ha.core.effects import Announce, Answer, PauseInput, ResumeInput, SendMethod, refused
from ha.core.election import plan as steps
from ha.core.election.plan import (
    Candidate,
    Decision,
    Event,
    Limits,
    Move,
    Server,
    SwitchoverPlan,
    SwitchoverStep,
)
from ha.core.election.promotion import Promotion
from ha.core.errors import Broken
from ha.core.membership import Membership, Status
from ha.core.outbox import Outbox
from ha.core.ports import PrimaryModel
from ha.core.primary.primary import Primary
from ha.core.primary.remote_backup import Phase, RemoteBackup
from ha.core.record.in_sync_record import InSyncRecord
from ha.core.record.record_keeper import Outcome, RecordKeeper, authority_trouble
from ha.core.refusal import with_next
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning
from ha.core.wire.link import Method, heartbeat, to_json
from understudy.shared.codes import Coded


class StepDown(Protocol):
    def __call__(self, reason: str, now: float, target: tuple[int, bytes] | None = None) -> None:
        """Stop serving. The last that the peer of `target` gets on its link is that HANDOVER."""


class Switchover:
    """`plan`: the one under way, or None.

    `serving`: the primary's role, while this node has it. `known_primary`: name and address of the node that
    serves.
    """

    def __init__(
        self, me: OwnIdentity, tuning: Tuning, membership: Membership, clocks: Clocks, outbox: Outbox,
        model: PrimaryModel, keeper: RecordKeeper, position: Callable[[], Position], promotion: Promotion,
        serving: Callable[[], Primary | None], known_primary: Callable[[], str | None], step_down: StepDown,
    ) -> None:  # fmt: skip
        self._me = me
        self._membership = membership
        self._clocks = clocks
        self._out = outbox
        self._model = model
        self._keeper = keeper
        self._position = position
        self._promotion = promotion
        self._serving = serving
        self._known_primary = known_primary
        self._step_down = step_down
        self._limits = Limits(
            me.name, tuning.ack_timeout, tuning.backup_timeout, tuning.authority_patience, keeper.arbitrates
        )  # fmt: skip
        self.plan: SwitchoverPlan | None = None

    @property
    def draining(self) -> bool:
        """Clients that come now are held: soon they are told where to go, or served here again."""
        return self.plan is not None and self.plan.step is SwitchoverStep.DRAINING

    @property
    def revocable(self) -> bool:
        """It can be taken back: this node has not handed over."""
        return self.plan is not None and self.plan.step in (SwitchoverStep.ASKING, SwitchoverStep.DRAINING)

    def reason(self) -> str:
        """One sentence on what it waits for; "" if there is none."""
        return self.plan.reason() if self.plan is not None else ""

    # -- what happens

    def begin(self, token: int, to: str | None, now: float) -> None:
        """An operator wants another to be primary: the backup named `to`, or the best of them."""
        primary, me = self._serving(), self._me
        if self._membership.status is Status.STANDALONE:
            self._reply(token, codes.SWITCHOVER_STANDALONE.say())
        elif self.plan is not None:
            said = codes.SWITCHOVER_UNDER_WAY.say(target=self.plan.name)
            self._reply(token, with_next(said, "wait for it"))
        elif primary is None:
            found = self._known_primary()
            said = codes.SWITCHOVER_NOT_PRIMARY.say(node=me.name, primary=found or "nobody that it knows of")
            self._reply(token, with_next(said, "ask that one" if found else "promote one"))
        elif to in (me.name, me.node_id):
            self._reply(token, f"{me.name} serves already, in epoch {primary.epoch}")
        elif primary.lease.expired:
            said = codes.SWITCHOVER_LEASE_EXPIRED.say()
            way = "ask again when its status shows a proof; if it gets none, end it and promote the backup"
            self._reply(token, with_next(said, way))
        else:
            candidates = [self._candidate(backup) for backup in primary.backups.values()]
            self._go_on(steps.choose(token, to, candidates, primary.epoch, now, self._limits), now)

    def _candidate(self, backup: RemoteBackup) -> Candidate:
        member = self._membership.members.get(backup.who.node_id)
        address = member.address if member is not None else ""
        rank = (backup.acked_durable, backup.acked, backup.lease_from or 0.0, backup.name)
        return Candidate(backup.who, backup.name, address, backup.phase, backup.peer is not None, rank)

    def end_tick(self, now: float) -> None:
        """After a flush that has left nothing gathered: see how far the drain has come."""
        plan, primary = self.plan, self._serving()
        if plan is None or plan.step is not SwitchoverStep.DRAINING or primary is None:
            return
        target, position = self._target(primary, plan), self._model.position()
        if target is None:
            self._on(steps.Flushed(now, False, False, False, position, ""), now)
            return
        drained = self._drained(primary, target, position)
        answered = drained and self._answered(plan, target)
        missing = self._missing(primary, target, position) if now >= plan.until else ""
        self._on(steps.Flushed(now, True, drained, answered, position, missing), now)

    def settle(self, now: float) -> None:
        """Somebody said how it stands, or this node has changed its role, or time has passed."""
        plan, primary = self.plan, self._serving()
        if plan is None or plan.step is SwitchoverStep.DRAINING:
            return
        if plan.step is SwitchoverStep.ASKING and primary is None:
            self.give_up("this node serves no more")
            return
        known = self._promotion.cluster_peers()
        later = [a for a in known.values() if a.serving and a.epoch > plan.epoch]
        best = max(later, key=lambda a: a.epoch, default=None)
        server = Server(best.node_id, best.name, best.epoch) if best is not None else None
        said = known.get(plan.target.node_id)
        event = steps.Settled(
            now, primary.epoch if primary is not None else None, server,
            said.incarnation if said is not None else None, self._promotion.active,
            self._promotion.last_refusal,
        )  # fmt: skip
        self._on(event, now)

    def _read(self, outcome: Outcome, held: InSyncRecord | None, asked_at: float, now: float) -> None:
        plan, primary = self.plan, self._serving()
        if plan is None or primary is None:
            return
        trouble = ""
        if outcome is not Outcome.DONE:
            trouble = authority_trouble(self._keeper.trouble).sentence
        self._on(steps.Answered(now, trouble, self._target(primary, plan) is not None), now)

    def give_up(self, reason: str) -> None:
        """It came to nothing: this node's role has ended otherwise, or the operator wants it no more."""
        self._on(steps.GivenUp(reason), 0.0)

    def next_deadline(self) -> float | None:
        plan = self.plan
        return plan.until if plan is not None and plan.step is not SwitchoverStep.RETURNING else None

    # -- how far it is drained

    def _target(self, primary: Primary, plan: SwitchoverPlan) -> RemoteBackup | None:
        """While it is the same process, in sync and linked."""
        found = primary.backups.get(plan.target.node_id)
        if found is None or found.who != plan.target:
            return None
        return found if found.phase is Phase.IN_SYNC and found.peer is not None else None

    def _drained(self, primary: Primary, target: RemoteBackup, position: Position) -> bool:
        """All who confirms wait for, and both disks of the pair, have the last position; no client waits for
        an answer; and no change of the record is in flight, which would collide with the target's."""
        return (
            primary.flushed_all
            and min(primary.applied, primary.durable, target.acked, target.acked_durable) >= position
            and self._position() >= position
            and self._model.all_answered()
            and not self._keeper.busy
            and not primary.lease.expired
        )

    def _answered(self, plan: SwitchoverPlan, target: RemoteBackup) -> bool:
        """An answer to an earlier question is none, however long it was on its way."""
        return plan.asked is not None and target.has_heard(plan.asked)

    def _missing(self, primary: Primary, target: RemoteBackup, position: Position) -> str:
        """What was not done in time, as a sentence."""
        limit = f"within {self._limits.ack_timeout:g} s"
        if target.acked_durable < position:
            return f"it did not acknowledge everything {limit}"
        if self._position() < position:
            return f"the disk of {self._me.name} did not take everything {limit}"
        if self._keeper.busy:
            return f"a change of the record was not committed {limit}"
        return f"clients were not all answered {limit}: {primary.reason()}"

    # -- what is decided

    def _on(self, event: Event, now: float) -> None:
        if self.plan is not None:
            self._go_on(steps.step(self.plan, event, self._limits), now)

    def _go_on(self, move: Move, now: float) -> None:
        before = self.plan
        self.plan, decisions = move
        for decision in decisions:
            self._carry_out(decision, self.plan or before, now)

    def _carry_out(self, decision: Decision, plan: SwitchoverPlan | None, now: float) -> None:
        match decision:
            case steps.Reply(token, said):
                self._reply(token, said)
            case steps.Say(told):
                self._out.log(told)
            case steps.End(ended, said):
                self._end(ended, said)
            case steps.AskAuthority():
                self._keeper.read(self._read, now)
            case steps.Return():
                if not self._promotion.active:
                    self._promotion.begin(None, "", now, force_lossy=False, fenced=False)
            case _:
                primary = self._serving()
                if plan is None or primary is None:
                    raise Broken("a switchover goes on without a primary")
                self._carry_out_serving(decision, plan, primary, now)

    def _carry_out_serving(
        self, decision: steps.OfPrimary, plan: SwitchoverPlan, primary: Primary, now: float
    ) -> None:
        match decision:
            case steps.Drain():
                primary.drains = True
                self._out.log(codes.SWITCHOVER_BEGINS.say(target=plan.name))
                self._out.do(Announce("switchover", plan.target.node_id, plan.name, ""), PauseInput())
            case steps.ServeOn(why):
                self._serve_on(primary, plan, why)
            case steps.Tell(off):
                notice = {"epoch": plan.epoch, "position": None, "off": off}
                self._send(primary, plan, Method.HANDOVER, to_json(notice))
            case steps.AskTarget(at):
                self._send(primary, plan, Method.HEARTBEAT, heartbeat(self._clocks, at))
            case steps.HandOver(handed, position):
                primary.cut_checkpoint(now)
                document = {"epoch": handed.epoch, "position": list(position), "off": None}
                peer = self._peer(primary, plan)
                self._step_down(f"switchover to {handed.whom}", now, (peer, to_json(document)))
            case _:
                assert_never(decision)

    def _send(self, primary: Primary, plan: SwitchoverPlan, method: Method, payload: bytes) -> None:
        self._out.do(SendMethod(self._peer(primary, plan), method, payload))

    def _peer(self, primary: Primary, plan: SwitchoverPlan) -> int:
        target = self._target(primary, plan)
        if target is None or target.peer is None:
            raise Broken("a switchover goes on without its target")
        return target.peer

    def _serve_on(self, primary: Primary, plan: SwitchoverPlan, why: str) -> None:
        primary.drains = False
        self._out.do(ResumeInput())
        self._out.log(codes.SWITCHOVER_CALLED_OFF.say(target=plan.name, why=why))

    def _end(self, plan: SwitchoverPlan, said: Coded | str) -> None:
        self._reply(plan.token, said)

    def _reply(self, token: int, said: Coded | str) -> None:
        """A refusal has a code."""
        self._out.do(refused(token, said) if isinstance(said, Coded) else Answer(token, True, said))
