"""A switchover to a target that stands still: the primary serves on, whatever it has acknowledged before.

What lies between its last word and the switchover is what counts: on an idle pair nothing is owed.
"""

from __future__ import annotations

from typing import Any

import pytest

from ha.core import codes
from ha.core.primary.primary import Primary
from tests.ha.pair import STEP, Pair
from tests.ha.switchover.test_switchover import pair_of, switch

AUTHORITIES = pytest.mark.parametrize("authority", ["manual", "register"])


def idle(count: int = 2, **settings: Any) -> Pair:
    """Everything that a serves is everywhere, and nobody waits for anything."""
    pair = pair_of(count, **settings)
    pair.publish(pair[0], "q", "x")
    pair.run(0.3)
    return pair


def primary_of(pair: Pair) -> Primary:
    primary = pair[0].running.core.primary
    assert primary is not None, pair[0].log[-3:]
    return primary


def called_off(pair: Pair, answers: list[dict[str, Any]]) -> str:
    """Within its time, in which a has served without a break; the reason."""
    a, begun = pair[0], pair.now
    epoch = a.running.core.epoch
    while not answers:
        primary_of(pair)
        pair.run(STEP)
    assert pair.now - begun <= a.running.core.tuning.ack_timeout + 2 * STEP
    assert not answers[0]["ok"]
    assert (a.running.core.epoch, a.running.broker.input_paused) == (epoch, False)
    position = pair.publish(a, "q", "y")
    pair.until(lambda: pair.confirmed(a, position), limit=5.0)
    return str(answers[0]["reason"])


@AUTHORITIES
@pytest.mark.parametrize("since", [0.0, 0.7, 1.2])
def test_a_target_that_stands_still_gets_nothing(authority: str, since: float) -> None:
    pair = idle(authority=authority)
    pair[1].frozen = True
    pair.run(since)
    reason = called_off(pair, switch(pair, pair[0]))
    assert reason.startswith("not switched over to b: it did not answer, and is not in sync any more")
    assert reason.endswith("a serves on; ask again")
    pair[1].frozen = False
    pair.until(lambda: primary_of(pair).in_sync_names() == ["b"])
    assert pair[1].status == "ready"
    again = switch(pair, pair[0])
    pair.until(lambda: bool(again))
    assert again[0]["ok"], again


@AUTHORITIES
def test_an_answer_to_what_was_asked_before_proves_nothing(authority: str) -> None:
    pair = idle(authority=authority)
    a, b = pair.hosts
    pair.hold(b, a)
    pair.run(0.8)  # it has answered a heartbeat meanwhile
    backup = primary_of(pair).backups[b.running.me.node_id]
    heard = backup.lease_from or 0.0
    answers = switch(pair, a)
    b.frozen = True
    [link] = [w for w in pair.wires if w.dialer is b and w.acceptor is a]
    late = bytes(link.out)
    assert late
    link.out.clear()
    link.conn.receive(late, pair.now)
    pair.run(STEP)
    assert heard < (backup.lease_from or 0.0) < pair.now - STEP
    assert "did not answer" in called_off(pair, answers)


@AUTHORITIES
def test_a_target_that_hears_and_cannot_answer_gets_nothing(authority: str) -> None:
    pair = idle(authority=authority)
    a, b = pair.hosts
    pair.hold(b, a)
    answers = switch(pair, a)
    assert "did not answer" in called_off(pair, answers)
    assert not b.told(codes.HANDS_OVER)


@AUTHORITIES
def test_of_three_the_one_that_is_named_stands_still(authority: str) -> None:
    pair = idle(3, authority=authority)
    pair[1].frozen = True
    pair.run(0.7)
    assert "did not answer" in called_off(pair, switch(pair, pair[0], "b"))
    answers = switch(pair, pair[0], "c")
    pair.until(lambda: bool(answers))
    assert answers[0]["ok"], answers


def test_of_three_the_one_that_answers_is_the_best() -> None:
    pair = idle(3)
    pair[2].frozen = True
    pair.run(0.7)
    answers = switch(pair, pair[0])
    pair.until(lambda: bool(answers))
    assert answers[0]["reason"].startswith("b serves in epoch "), answers


def test_a_target_that_hangs_during_the_drain_is_not_handed_over_to() -> None:
    pair = idle(3)
    a, b, c = pair.hosts
    c.syncing = False
    pair.publish(a, "q", "z")
    answers = switch(pair, a, "b")
    pair.run(0.5)
    b.frozen = True
    pair.run(STEP)
    c.syncing = True
    assert "did not answer" in called_off(pair, answers)


def test_one_that_runs_is_handed_over_to_a_round_trip_later() -> None:
    pair = idle()
    a, b = pair.hosts
    pair.run(0.2)
    switch(pair, a)
    begun = pair.now
    pair.until(lambda: b.running.core.promotion.active or b.running.core.primary is not None)
    question, answer, handover = 1, 1, 1
    assert pair.now - begun <= (question + answer + handover + 1) * STEP
