"""A promotion as a value: every phase with every event, without a node."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from ha.core.backup.backup import Said
from ha.core.election import attempt as steps
from ha.core.election.attempt import Attempt, Decision, Event, PromotionStep, Rules
from ha.core.errors import Broken
from ha.core.record.authority import Verdict
from ha.core.record.in_sync_record import Incarnation, InSyncRecord, next_record
from ha.core.record.record_keeper import RETRY, Outcome
from ha.core.role import OwnIdentity
from tests.ha.election.test_refusals import evidence

RULES = Rules(OwnIdentity("b", "b", 1, 2), 2.0, 10.0, 3.0, arbitrates=False)
OLD = next_record(None, "bootstrap", 1, Incarnation("a", 1), "a", "cluster")
NEW = next_record(OLD, "unforced", 2, Incarnation("b", 1), "b", "cluster")
OTHER = next_record(OLD, "unforced", 3, Incarnation("c", 1), "c", "cluster")
ASKING = Attempt(7, False, "", False, asked_at=0.0, deadline=2.0, answer_by=10.0, awake_at=0.0)
COMMITTING = replace(
    ASKING, step=PromotionStep.COMMITTING, record=NEW, old=OLD, known=OLD, how="unforced", reason="why"
)
WAITING = replace(COMMITTING, step=PromotionStep.WAITING, serve_at=5.0)
PHASES = {attempt.step: attempt for attempt in (ASKING, COMMITTING, WAITING)}


def looked(now: float = 1.0, record: InSyncRecord | None = OLD, *, heard: bool = False) -> steps.Looked:
    return steps.Looked(now, record, heard, owner_over=False)


EVENTS: tuple[Event, ...] = (
    looked(),
    steps.Woken(1.0),
    steps.Read(1.0, Outcome.DONE, OLD, OLD),
    steps.Judged(1.0, Verdict(False, "no", way="wait", code="x"), evidence(), OLD, 2, "cluster"),
    steps.Committed(1.0, None),
    steps.Beaten(OTHER),
    steps.HandedOver(1.0),
    steps.GivenUp("demoted meanwhile"),
)


def kinds(decisions: tuple[Decision, ...]) -> list[str]:
    return [type(decision).__name__ for decision in decisions]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("phase", PromotionStep)
def test_each_phase_answers_each_event_or_it_changes_nothing(phase: PromotionStep, event: Event) -> None:
    attempt = PHASES[phase]
    after, decisions = steps.step(attempt, event, RULES)
    if (phase, type(event)) not in steps.STEPS:
        assert after is attempt and not decisions
    if after is None:
        assert kinds(decisions)[-1] in ("Refuse", "Serve")


def test_the_table_names_known_events_and_all_of_them() -> None:
    assert {event for _, event in steps.STEPS} == set(get_args(Event)) == {type(event) for event in EVENTS}


@pytest.mark.parametrize("after", PromotionStep)
@pytest.mark.parametrize("phase", PromotionStep)
def test_only_the_phases_of_the_table_follow(
    phase: PromotionStep, after: PromotionStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(steps.STEPS, (phase, steps.Woken), lambda *_: (PHASES[after], ()))
    order = list(PromotionStep)
    if order.index(after) - order.index(phase) in (0, 1):
        assert steps.step(PHASES[phase], steps.Woken(1.0), RULES) == (PHASES[after], ())
    else:
        with pytest.raises(Broken, match=f"from {phase.value} to {after.value}"):
            steps.step(PHASES[phase], steps.Woken(1.0), RULES)


def test_the_way_to_serving() -> None:
    attempt, decisions = steps.step(ASKING, looked(heard=True), RULES)
    assert attempt is not None and kinds(decisions) == ["Judge"]
    granted = Verdict(True, "why", how="unforced")
    judged = steps.Judged(1.0, granted, evidence(newest=OLD), OLD, 2, "cluster")
    attempt, decisions = steps.step(attempt, judged, RULES)
    assert attempt is not None and attempt.step is PromotionStep.COMMITTING and attempt.record == NEW
    assert kinds(decisions) == ["SawEpoch", "TrustReplica", "Propose"]
    attempt, decisions = steps.step(attempt, steps.Committed(2.0, Said("a", 1, 1.5)), RULES)
    assert attempt is not None and attempt.step is PromotionStep.WAITING
    assert attempt.serve_at == 2.0 + RULES.lease, "a lease after now: the old owner's set does not have it"
    assert kinds(decisions) == ["LeaveOldPrimary", "Learn", "Owned", "LookAgain", "TellCommitted"]
    assert steps.step(attempt, looked(4.9, NEW), RULES) == (attempt, ())
    assert steps.step(attempt, looked(5.0, NEW), RULES) == (None, (steps.Serve(attempt),))


def test_an_answer_that_is_older_than_what_is_known_is_asked_for_again() -> None:
    reading = replace(ASKING, reading=True)
    behind = steps.Read(1.0, Outcome.DONE, OLD, OTHER)
    after, decisions = steps.step(reading, behind, RULES)
    assert after == replace(reading, read_at=1.0 + RETRY) and not decisions
    assert after is not None
    assert kinds(steps.step(after, steps.Woken(1.0 + RETRY), RULES)[1]) == ["ReadAuthority"]
    assert kinds(steps.step(after, looked(10.0), replace(RULES, arbitrates=True))[1]) == ["Refuse"]


def test_one_that_stood_still_while_it_asked_asks_anew() -> None:
    after, decisions = steps.step(ASKING, looked(1.5, heard=True), RULES)
    assert after == replace(ASKING, asked_at=1.5, deadline=3.5, awake_at=1.5)
    assert kinds(decisions) == ["AskPeers", "LookAgain"]


def test_an_undecided_commit_is_told_once_and_goes_on() -> None:
    after, decisions = steps.step(COMMITTING, looked(10.0), RULES)
    assert after == replace(COMMITTING, token=None) and kinds(decisions) == ["Reply"]
    assert after is not None and steps.step(after, looked(11.0), RULES) == (after, ())
