"""An authority that loses the record: it is put back by a primary whose lease holds, and by nobody else.

A linearizable register does not do that. Pacemaker's CIB may, when an older copy wins a merge or somebody
has a hand in it.
"""

from __future__ import annotations

from typing import Any

import pytest

from ha.core import codes
from tests.ha.election.test_register import in_sync, owner, quiet, registered, serving, told, usurp
from tests.ha.pair import Pair


def earlier(pair: Pair, **changes: Any) -> dict[str, Any]:
    """What the register held one change before, as far as it matters: nobody was in sync."""
    held = pair.register.held
    assert held is not None
    return {**held, "revision": held["revision"] - 1, "in_sync": [], **changes}


@pytest.mark.parametrize("instead", ["nothing", "an earlier one"])
@pytest.mark.parametrize("alone", [False, True])
def test_a_record_that_is_lost_is_put_back_and_nothing_stops(instead: str, alone: bool) -> None:
    pair = registered()
    a, b = pair.hosts
    if alone:
        pair.kill(b)
        pair.until(lambda: in_sync(pair) == set())
    held = pair.register.held
    assert held is not None
    pair.register.held = None if instead == "nothing" else earlier(pair)
    pair.until(lambda: pair.register.held == held, 1.2)
    assert a.status == "active" and told(a, codes.RECORD_LOST)
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position), 0.5)
    pair.run(4.0)
    assert a.status == "active" and not a.running.core.output_fenced
    assert len(a.told(codes.RECORD_LOST)) == 1
    if not alone:
        pair.kill(a)
        assert pair.ask(b, "promote")["ok"]


def test_an_excluded_node_in_a_restored_old_record_is_not_promoted() -> None:
    """The very harm of it: who was excluded since stands in it."""
    pair = registered()
    a, b = pair.hosts
    before = pair.register.held
    pair.separate(a, b)
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position))
    assert in_sync(pair) == set()
    pair.register.held = before
    pair.until(lambda: in_sync(pair) == set(), 1.2)
    pair.kill(a)
    assert not pair.ask(b, "promote")["ok"]


@pytest.mark.parametrize("instead", ["nothing", "an earlier one"])
def test_a_change_that_comes_upon_it_replaces_that_too(instead: str) -> None:
    pair = registered()
    a, b = pair.hosts
    quiet(pair, a)
    pair.register.held = None if instead == "nothing" else earlier(pair, in_sync=[["b" * 32, 1]])
    position = pair.publish(a, "q", "x")
    b.frozen = True
    pair.until(lambda: pair.confirmed(a, position), 4.0)
    assert in_sync(pair) == set() and owner(pair) == "a" and a.status == "active"
    assert told(a, codes.RECORD_LOST, "what is to be the record replaces that, too")


def test_what_was_to_be_excluded_meanwhile_is_excluded_once_it_is_put_back() -> None:
    pair = registered()
    a, b = pair.hosts
    pair.register.held = None
    pair.register.delay = 0.3
    pair.until(lambda: told(a, codes.RECORD_LOST, "it is put back"), 2.0)
    pair.kill(b)
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position), 8.0)
    assert in_sync(pair) == set() and a.status == "active"


def test_a_primary_whose_proof_has_run_out_puts_nothing_back() -> None:
    pair = registered()
    a, b = pair.hosts
    pair.kill(b)
    pair.until(lambda: in_sync(pair) == set())
    a.frozen = True
    pair.run(4.0)
    pair.register.held = None
    a.frozen = False
    pair.until(lambda: a.status == "joining", 2.0)
    pair.run(2.0)
    assert pair.register.held is None and told(a, codes.STOPS_SERVING, "the authority has lost the record")
    answer = pair.ask(a, "promote")
    assert answer["code"] == "promote-register-behind"
    assert pair.ask(a, "promote", force_lossy=True)["ok"]


def test_its_proof_runs_out_while_the_authority_does_not_take_it_back() -> None:
    pair = registered()
    a, b = pair.hosts
    pair.kill(b)
    pair.until(lambda: in_sync(pair) == set())
    ask = pair.register.ask
    pair.register.ask = lambda host, requests, now: ask(  # type: ignore[method-assign]
        host, [r for r in requests if r.kind == "read"], now
    )
    pair.register.held = None
    pair.until(lambda: a.status == "joining", 5.0)
    assert pair.register.held is None


def test_who_was_promoted_by_an_earlier_record_wins_over_who_puts_it_back() -> None:
    """One of the two compares and sets first; that it was done in vain costs the other its term."""
    pair = registered()
    a, _ = pair.hosts
    pair.register.delay = 0.2
    pair.register.held = earlier(pair, in_sync=[["b" * 32, 1]])
    pair.until(lambda: told(a, codes.RECORD_LOST, "it is put back"), 2.0)
    usurp(pair, "z")
    pair.until(lambda: a.status == "joining", 2.0)
    assert owner(pair) == "z" and serving(pair) == []


@pytest.mark.parametrize("changes", [{"epoch": 1}, {"owner": ["b" * 32, 1]}])
def test_a_record_of_another_term_is_not_replaced(changes: dict[str, Any]) -> None:
    pair = registered()
    a, _ = pair.hosts
    pair.register.held = other = earlier(pair, **changes)
    pair.run(2.0)
    assert pair.register.held == other and a.status == "joining"


def test_a_promotion_that_waits_puts_nothing_back() -> None:
    pair = registered()
    a, b = pair.hosts
    answers: list[dict[str, Any]] = []
    pair.separate(a, b, reset=True)
    pair.register.cut = {"a"}
    b.running.manage("promote", {}, answers.append, pair.now)
    pair.until(lambda: owner(pair) == "b")
    pair.register.held = None
    pair.until(lambda: bool(answers), 4.0)
    assert answers[0]["code"] == "promote-given-up" and pair.register.held is None


def test_a_promotion_that_is_lost_before_it_serves_leaves_one_primary() -> None:
    """The old one puts its own back while its lease lasts, and the new one, which waits for that, sees it."""
    pair = registered()
    a, b = pair.hosts
    answers: list[dict[str, Any]] = []
    pair.separate(a, b, reset=True)
    b.running.manage("promote", {}, answers.append, pair.now)
    pair.until(lambda: owner(pair) == "b")
    pair.register.held = None
    pair.until(lambda: bool(answers), 5.0)
    pair.run(4.0)
    assert not answers[0]["ok"] and len(serving(pair)) <= 1


def test_an_answer_that_was_overtaken_by_a_commit_is_no_loss() -> None:
    pair = registered()
    a, b = pair.hosts
    pair.register.delay = 0.4
    pair.kill(b)
    pair.until(lambda: in_sync(pair) == set())
    pair.run(5.0)
    assert a.status == "active" and not told(a, codes.RECORD_LOST)
