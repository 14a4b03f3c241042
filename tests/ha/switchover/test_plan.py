"""A switchover as a value: every phase with every event, without a node."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from broker.model.values import Position
from ha.core.election import plan as steps
from ha.core.election.plan import Candidate, Decision, Event, Limits, Server, SwitchoverPlan, SwitchoverStep
from ha.core.errors import Broken
from ha.core.primary.remote_backup import Phase
from ha.core.record.in_sync_record import Incarnation

LIMITS = Limits("a", ack_timeout=2.0, backup_timeout=5.0)
END = Position(1, 9)
ASKING = SwitchoverPlan(7, Incarnation("b", 1), "b", "host:1", 1, until=2.0)
PLAN = replace(ASKING, step=SwitchoverStep.DRAINING)
HANDED = replace(PLAN, step=SwitchoverStep.HANDED, until=6.0)
RETURNING = replace(HANDED, step=SwitchoverStep.RETURNING, why="b was started again")
PHASES = {plan.step: plan for plan in (ASKING, PLAN, HANDED, RETURNING)}


def flushed(now: float = 1.0, *, drained: bool = True, answered: bool = False) -> steps.Flushed:
    return steps.Flushed(now, True, drained, answered, END, "clients were not all answered")


def settled(now: float = 1.0, server: Server | None = None, number: int | None = 1) -> steps.Settled:
    return steps.Settled(now, None, server, number, promoting=False, last_refusal="not promoted")


EVENTS: tuple[Event, ...] = (
    steps.Answered(1.0, "", True),
    flushed(),
    settled(),
    steps.GivenUp("demoted meanwhile"),
)


def kinds(decisions: tuple[Decision, ...]) -> list[str]:
    return [type(decision).__name__ for decision in decisions]


def said(decisions: tuple[Decision, ...]) -> str:
    (end,) = [decision for decision in decisions if isinstance(decision, steps.End)]
    return str(end.said)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("phase", SwitchoverStep)
def test_each_phase_answers_each_event_or_it_changes_nothing(phase: SwitchoverStep, event: Event) -> None:
    plan = PHASES[phase]
    after, decisions = steps.step(plan, event, LIMITS)
    if (phase, type(event)) not in steps.STEPS:
        assert after is plan and not decisions
    assert (after is None) == (kinds(decisions)[-1:] == ["End"])


def test_the_table_names_known_events_and_all_of_them() -> None:
    assert {event for _, event in steps.STEPS} == set(get_args(Event)) == {type(event) for event in EVENTS}


@pytest.mark.parametrize("after", SwitchoverStep)
@pytest.mark.parametrize("phase", SwitchoverStep)
def test_only_the_phases_of_the_table_follow(
    phase: SwitchoverStep, after: SwitchoverStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = steps.GivenUp("demoted meanwhile")
    monkeypatch.setitem(steps.STEPS, (phase, steps.GivenUp), lambda *_: (PHASES[after], ()))
    order = list(SwitchoverStep)
    if order.index(after) - order.index(phase) in (0, 1):
        assert steps.step(PHASES[phase], event, LIMITS) == (PHASES[after], ())
    else:
        with pytest.raises(Broken, match=f"from {phase.value} to {after.value}"):
            steps.step(PHASES[phase], event, LIMITS)


def test_the_way_to_the_target_serving() -> None:
    plan, decisions = steps.step(PLAN, flushed(drained=False), LIMITS)
    assert (plan, decisions) == (PLAN, ())
    plan, decisions = steps.step(PLAN, flushed(), LIMITS)
    assert plan is not None and plan.asked == 1.0 and kinds(decisions) == ["AskTarget"]
    plan, decisions = steps.step(plan, flushed(1.5, answered=True), LIMITS)
    assert plan == replace(HANDED, asked=1.0, until=6.5)
    assert decisions == (steps.HandOver(plan, END),)
    assert steps.step(plan, settled(2.0), LIMITS) == (plan, ())
    after, decisions = steps.step(plan, settled(2.0, Server("b", "b", 2)), LIMITS)
    assert after is None and said(decisions) == "b serves in epoch 2"


def test_an_answer_counts_only_while_all_is_drained() -> None:
    asked = replace(PLAN, asked=1.0)
    assert steps.step(asked, flushed(drained=False), LIMITS) == (PLAN, ())


@pytest.mark.parametrize(
    ("asked", "why"), [(None, "were not all answered"), (1.0, "did not answer within 2 s")]
)
def test_what_takes_too_long_is_taken_back(asked: float | None, why: str) -> None:
    late = flushed(2.0, drained=asked is not None)
    after, decisions = steps.step(replace(PLAN, asked=asked), late, LIMITS)
    assert after is None and kinds(decisions) == ["Tell", "ServeOn", "End"] and why in said(decisions)


@pytest.mark.parametrize(("now", "number", "why"), [(1.0, 2, "started again"), (6.0, 1, "within 5 s")])
def test_a_target_that_does_not_serve_has_the_old_primary_return(now: float, number: int, why: str) -> None:
    after, decisions = steps.step(HANDED, settled(now, number=number), LIMITS)
    assert after is not None and after.step is SwitchoverStep.RETURNING and why in after.why
    assert kinds(decisions) == ["Say", "Return"]


def test_the_backup_that_has_the_most_is_chosen() -> None:
    def candidate(name: str, *rank: int, phase: Phase = Phase.IN_SYNC) -> Candidate:
        return Candidate(Incarnation(name, 1), name, "", phase, True, rank)

    backups = [candidate("b", 1), candidate("c", 2), candidate("d", 3, phase=Phase.CATCHING)]
    plan, decisions = steps.choose(7, None, backups, 1, 0.0, LIMITS)
    assert plan is not None and plan.name == "c" and kinds(decisions) == ["Drain", "Tell"]
    plan, decisions = steps.choose(7, "d", backups, 1, 0.0, LIMITS)
    assert plan is None and kinds(decisions) == ["Reply"]
