"""Mutants of what a node makes of a CIB: whether its copy is believed, and when a write counts as done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ha.pacemaker import codes, procedure, standing
from ha.pacemaker.cib import NodeState
from ha.pacemaker.procedure import CibAnswer, CreateSet, Procedure, QueryCib, ReplaceSet
from tests.simulation.mutants.mutant import Mutant, Patch


def _any_quorum(by_quorum: Any) -> Any:
    def broken(view: Any, me: str, lost: Any, votes: Any, *rest: Any) -> Any:
        if isinstance(votes, standing.Votes):
            votes = replace(votes, two_node=False, expected=max(votes.expected, standing.LEAST_VOTES))
        return by_quorum(view, me, lost, votes, *rest)

    return broken


def _gone_is_down(down: Any) -> Any:
    return property(lambda self: not self.up)


def _take_for_equal(judge: Any) -> Any:
    def broken(view: Any, me: str, copies: Any, votes: Any) -> Any:
        return judge(view, me, dict.fromkeys(standing.members(view, me), view), votes)

    return broken


def _written_is_done(swap: Any) -> Any:
    def broken(register: Any, expected: Any, record: Any) -> Procedure:
        steps = swap(register, expected, record)
        commands = next(steps)
        while True:
            results = yield commands
            wrote = isinstance(commands[0], CreateSet | ReplaceSet)
            if wrote and results[0].code == 0:
                return CibAnswer("done", dict(record), codes.AGREED.say())
            try:
                commands = steps.send(results)
            except StopIteration as end:
                answer: CibAnswer = end.value
                return answer

    return broken


def _refuse_at_once(swap: Any) -> Any:
    def broken(register: Any, expected: Any, record: Any) -> Procedure:
        (local,) = yield [QueryCib()]
        view = procedure._view(local, register)
        if not isinstance(view, str) and view.version != expected:
            return CibAnswer("conflict", view.document, codes.CONFLICT.say(held="another record"))
        answer: CibAnswer = yield from swap(register, expected, record)
        return answer

    return broken


def _outrank_nobody(outrank: Any) -> Any:
    return lambda register, view: procedure._look(register)


ALONE = "28 where it serves on with nobody to vouch for it, 8 where two records are in force."

MUTANTS = (
    Mutant(
        "take the quorum of two nodes for one",
        "two_node makes quorum of one vote: each side of a partition has it, and each commits.",
        (28, 8),
        (Patch(standing, "_by_quorum", _any_quorum),),
        because=ALONE,
    ),
    Mutant(
        "take a lost node for a fenced one",
        "Whoever does not answer counts as down, although no switch has taken its power.",
        (28, 8),
        (Patch(NodeState, "down", _gone_is_down),),
        because=ALONE,
    ),
    Mutant(
        "believe in one copy of the CIB",
        "What this node's CIB daemon says is not compared with what those of the other members have.",
        (8,),
        (Patch(procedure, "judge", _take_for_equal),),
    ),
    Mutant(
        "count a write as done once it is in one copy",
        "cibadmin returns 0 as soon as this node's daemon has it; the others may never get it.",
        (8,),
        (Patch(procedure, "swap", _written_is_done),),
    ),
    Mutant(
        "answer a conflict without a look at the others",
        "A swap that is asked for again meets itself in this node's own copy, and that counts as proof, "
        "whoever else may have which.",
        (28, 8),
        (Patch(procedure, "swap", _refuse_at_once),),
        because=ALONE,
    ),
    Mutant(
        "outrank nobody",
        "A node that was away brings a copy of the CIB with a higher epoch, and it becomes everybody's.",
        (8, 27),
        (Patch(procedure, "_outrank", _outrank_nobody),),
        because="8 where a record is told again that was replaced, 27 where nobody whom it names is left.",
    ),
)
