"""Mutants of the switchover: what a planned change of primaries must not do on its way."""

from __future__ import annotations

from typing import Any

from broker.model.values import FOREVER
from ha.adapter.node import Node
from ha.core.effects import ResumeInput, SendMethod
from ha.core.election.manual import ManualAuthority
from ha.core.election.peers import Peers
from ha.core.election.plan import SwitchoverStep
from ha.core.election.switchover import Switchover
from ha.core.ha_broker import HaBroker
from ha.core.record.authority import Evidence, PeerAnswer, Verdict
from ha.core.wire.link import Method
from tests.simulation.mutants.mutant import Mutant, Patch


def _open_while(step: SwitchoverStep) -> Any:
    """Breaks a gate: no confirm waits for anybody in that step."""

    def breaks(gate: Any) -> Any:
        def broken(self: HaBroker) -> Any:
            plan = self.switchover.plan
            return FOREVER if plan is not None and plan.step is step else gate.fget(self)

        return property(broken)

    return breaks


def _answer_all(stop_serving: Any) -> Any:
    def broken(self: Node, reason: str, now: float) -> None:
        if self.core.switchover.plan is not None:
            self.broker.release()
        stop_serving(self, reason, now)

    return broken


def _go_on(step_down: Any) -> Any:
    def broken(self: HaBroker, reason: str, now: float, target: Any = None) -> None:
        if target is None:
            step_down(self, reason, now)
        else:
            self._out.do(SendMethod(target[0], Method.HANDOVER, target[1]), ResumeInput())

    return broken


def _believe_it(judge: Any) -> Any:
    """The target goes by the handover, whatever the old primary answers."""

    def broken(self: ManualAuthority, e: Evidence) -> Any:
        if e.link_end is not None and e.link_end.handed_over:
            return Verdict(True, "it has been handed over to", "unforced")
        return judge(self, e)

    return broken


def _for_good(outdated: Any) -> Any:
    def broken(self: Peers, answer: PeerAnswer, question: object) -> bool:
        return answer.serving and answer.node_id in self._over

    return broken


_ANYHOW = Patch(Switchover, "_drained", lambda original: lambda self, *where: True)
_UNASKED = Patch(Switchover, "_answered", lambda original: lambda self, *where: True)

MUTANTS = (
    Mutant(
        "confirm what the target has not got",
        "A primary that is to hand over confirms what is still on its way, since the target will have it.",
        (2,),
        (
            Patch(HaBroker, "applied", _open_while(SwitchoverStep.DRAINING)),
            Patch(HaBroker, "durable", _open_while(SwitchoverStep.DRAINING)),
        ),
    ),
    Mutant(
        "confirm after the handover",
        "A primary hands over before the target has the last position, and tells its clients that all is "
        "well.",
        (1, 2),
        (
            _ANYHOW,
            Patch(HaBroker, "applied", _open_while(SwitchoverStep.HANDED)),
            Patch(HaBroker, "durable", _open_while(SwitchoverStep.HANDED)),
            Patch(Node, "stop_serving", _answer_all),
        ),
        because="1 where it is lost by that, 2 where it is not.",
    ),
    Mutant(
        "hand over to one that stands still",
        "The target of an idle pair has acknowledged all that there is, and was frozen since.",
        (6,),
        (_UNASKED,),
    ),
    Mutant(
        "hand over and go on serving",
        "The target is told to serve, and waits for no lease; the old primary keeps its clients as well.",
        (8, 11),
        (Patch(HaBroker, "step_down", _go_on), Patch(ManualAuthority, "_judge", _believe_it)),
        because="11 of a target whose primary has not stepped down, 8 once both serve.",
    ),
    Mutant(
        "never follow again whoever has switched over",
        "That an old primary serves is taken for a word of before its handover, of whatever epoch it is.",
        (27,),
        (Patch(Peers, "outdated", _for_good),),
    ),
)
