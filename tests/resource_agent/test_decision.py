"""The decision table: every input there is, against what the OCF API says of each code."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from resource_agent.codes import Code, Score
from resource_agent.decision import Asked, Decision, Facts, Process, State, decide

BOTH = (True, False)
EVERY = [Facts(*each) for each in product(BOTH, Process, State, BOTH, BOTH, BOTH)]
SERVING = {State.STANDALONE, State.ACTIVE, State.ALONE, State.RENEWING, State.LEASE_EXPIRED}
FAILED = {State.SILENT, State.STALLED}
PROMOTABLE = {State.READY, State.DOUBTFUL, State.FORMER_OWNER, State.BEST_COPY}


def has_failed(facts: Facts) -> bool:
    """There is a process, and it is no use."""
    alive = facts.process is Process.ALIVE
    return facts.process in (Process.FROZEN, Process.DOOMED) or (alive and facts.state in FAILED)


def alive_in(facts: Facts, states: set[State]) -> bool:
    return facts.process is Process.ALIVE and facts.state in states


@pytest.mark.parametrize("asked", list(Asked))
def test_every_input_has_an_allowed_answer(asked: Asked) -> None:
    """Each action may answer some codes only; a failure always says why; each score belongs to a role."""
    allowed: dict[Asked, set[Code | None]] = {
        Asked.START: {None, Code.SUCCESS, Code.GENERIC, Code.FAILED_PROMOTED, Code.ARGS, Code.INSTALLED},
        Asked.STOP: {None, Code.SUCCESS},
        Asked.MONITOR: set(Code) - {Code.PERM, Code.CONFIGURED, Code.UNIMPLEMENTED},
        Asked.PROBE: set(Code) - {Code.PERM, Code.CONFIGURED, Code.UNIMPLEMENTED, Code.INSTALLED},
        Asked.PROMOTE: set(Code) - {Code.PERM, Code.CONFIGURED, Code.UNIMPLEMENTED, Code.RUNNING_PROMOTED}
        - {Code.DEGRADED, Code.DEGRADED_PROMOTED} | {None},
        Asked.DEMOTE: {None, Code.SUCCESS, Code.ARGS},
    }  # fmt: skip
    seen: set[Code | None] = set()
    for facts in EVERY:
        found = decide(asked, facts)
        seen.add(found.code)
        assert found.code in allowed[asked], facts
        assert found.sentence or found.code is None, facts
        if found.score is Score.SERVING:
            assert alive_in(facts, {State.ACTIVE, State.ALONE}), facts
        if found.score is Score.IN_RECORD:
            assert alive_in(facts, {State.READY}), facts
        if found.score is Score.DOUBTFUL:
            assert alive_in(facts, {State.DOUBTFUL}), facts
    assert seen == allowed[asked], "a code that no input has"


@pytest.mark.parametrize("asked", [Asked.MONITOR, Asked.PROBE])
def test_a_monitor_tells_what_is_there(asked: Asked) -> None:
    for facts in EVERY:
        found = decide(asked, facts)
        if facts.process is Process.ABSENT:
            missing = asked is Asked.MONITOR and not facts.installed
            expected = Code.INSTALLED if missing else Code.NOT_RUNNING
            assert (found.code, found.score) == (expected, Score.NONE), facts
        elif has_failed(facts):
            expected = Code.FAILED_PROMOTED if facts.promoted else Code.GENERIC
            assert (found.code, found.score) == (expected, Score.NEVER), facts
        elif facts.state is State.STANDALONE:
            assert (found.code, found.score) == (Code.ARGS, Score.NEVER), facts
        elif asked is Asked.MONITOR and facts.state in SERVING and facts.target:
            assert found.code is Code.SUCCESS, facts
        elif asked is Asked.MONITOR and facts.leaving and facts.state not in SERVING | {State.STARTING}:
            assert found.code is Code.RUNNING_PROMOTED, facts
        elif facts.state in SERVING:
            degraded = facts.state is not State.ACTIVE
            expected = Code.DEGRADED_PROMOTED if degraded else Code.RUNNING_PROMOTED
            assert found.code is expected, facts
        else:
            degraded = facts.state is State.TROUBLED
            assert found.code is (Code.DEGRADED if degraded else Code.SUCCESS), facts


def test_whether_the_program_is_there_matters_only_where_nothing_runs() -> None:
    for facts in EVERY:
        if facts.process is not Process.ABSENT:
            for asked in Asked:
                assert decide(asked, facts) == decide(asked, facts._replace(installed=True)), facts


def test_a_stop_of_the_stopped_is_success_and_of_anything_else_work() -> None:
    for facts in EVERY:
        found = decide(Asked.STOP, facts)
        assert (found.code is Code.SUCCESS) is (facts.process is Process.ABSENT), facts
        assert found.score is Score.NONE, facts


def test_start_promote_and_demote_of_what_is_so_already_are_success() -> None:
    for facts in EVERY:
        if alive_in(facts, set(State) - FAILED - {State.STANDALONE}):
            assert decide(Asked.START, facts).code is Code.SUCCESS, facts
        if alive_in(facts, {State.ACTIVE, State.ALONE}):
            assert decide(Asked.PROMOTE, facts).code is Code.SUCCESS, facts
        if facts.process is Process.ABSENT:
            assert decide(Asked.DEMOTE, facts).code is Code.SUCCESS, facts
        if alive_in(facts, set(State) - FAILED - SERVING - {State.PROMOTING}):
            assert decide(Asked.DEMOTE, facts).code is Code.SUCCESS, facts


def test_nothing_is_promoted_that_may_not_be() -> None:
    for facts in EVERY:
        found = decide(Asked.PROMOTE, facts)
        if found.code is None:
            patient = {State.STARTING, State.PROMOTING, State.RENEWING, State.LEASE_EXPIRED}
            assert alive_in(facts, PROMOTABLE | patient), facts
        if alive_in(facts, {State.BEHIND, State.TROUBLED}):
            assert (found.code, found.score) == (Code.GENERIC, Score.NEVER), facts


def test_a_demotion_leaves_nothing_that_could_serve() -> None:
    """What has failed, serves, or is about to, is not said to be demoted before that is done."""
    for facts in EVERY:
        killed = facts.process is Process.DOOMED
        dangerous = (has_failed(facts) and not killed) or alive_in(
            facts, SERVING - {State.STANDALONE} | {State.PROMOTING}
        )
        assert (decide(Asked.DEMOTE, facts).code is None) is dangerous, facts


def test_the_better_copy_has_the_higher_score() -> None:
    """Pacemaker promotes the highest: proven, in the record, primary without proof, in the record but out of
    touch with its authority, best copies, nobody.
    """
    order = [
        State.ACTIVE,
        State.READY,
        State.LEASE_EXPIRED,
        State.DOUBTFUL,
        State.FORMER_OWNER,
        State.BEST_COPY,
    ]
    scores = [decide(Asked.MONITOR, alive(state)).score for state in order]
    numbers = [int(score.value) for score in scores]
    assert numbers == sorted(numbers, reverse=True) and len(set(numbers)) == len(order)
    for state in (State.BEHIND, State.TROUBLED, State.SILENT, State.STALLED):
        assert decide(Asked.MONITOR, alive(state)).score is Score.NEVER


def test_a_start_is_unpromoted_and_has_no_score_until_it_answers() -> None:
    assert decide(Asked.MONITOR, alive(State.STARTING)) == Decision(
        Code.SUCCESS, Score.NONE, "it starts, and does not answer yet"
    )


def alive(state: State) -> Facts:
    return Facts(True, Process.ALIVE, state, promoted=False, target=False, leaving=False)


def test_scores_rise_in_this_order() -> None:
    rising = [Score.NEVER, Score.NONE, Score.BEST_COPY, Score.FORMER_OWNER, Score.DOUBTFUL]
    rising += [Score.LEASE_EXPIRED, Score.IN_RECORD, Score.SERVING]
    for before, after in pairwise(rising):
        assert after.raises(before) and not before.raises(after) and not before.raises(before)
