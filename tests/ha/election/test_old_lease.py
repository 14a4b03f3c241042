"""Whom a promoted node waits for before it serves: the lease of the old primary, and what cuts it short."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ha.election.test_lease import AUTHORITIES, LEASE, Client, up
from tests.ha.pair import Host, Pair


@pytest.mark.parametrize("authority", AUTHORITIES)
def test_a_silent_old_primary_has_its_lease_before_the_new_one_serves(authority: str) -> None:
    pair = up(authority=authority)
    a, b = pair.hosts
    pair.separate(a, b)
    backup = b.running.core.backup
    assert backup is not None and backup.said is not None
    answers: list[dict[str, Any]] = []
    force = authority == "manual"
    b.running.manage("promote", {"force_lossy": force}, answers.append, pair.now)
    pair.until(lambda: b.running.core.promotion.committed is not None)
    said = backup.said.at
    assert "lease of a has run out" in b.running.status()["reason"]
    assert not b.running.vhost.serving
    pair.until(lambda: bool(answers))
    assert answers[0]["ok"] and b.running.vhost.serving
    assert said + LEASE <= pair.now < said + LEASE + 0.1
    if authority == "register":
        assert a.running.broker.output_fenced or a.status == "joining"


def test_promotion_does_not_wait_for_a_fenced_or_ended_primary() -> None:
    for how in ("fenced", "killed", "demoted"):
        pair = up(authority="register")
        a, b = pair.hosts
        if how == "killed":
            pair.kill(a)
        elif how == "demoted":
            assert pair.ask(a, "demote")["ok"]
        else:
            a.frozen = True
        since = pair.now
        answer = pair.ask(b, "promote", fenced=how == "fenced")
        assert answer["ok"] and pair.now - since < 0.7, (how, pair.now - since)


def test_a_dial_that_is_refused_while_it_waits_ends_the_wait() -> None:
    pair = up(authority="register")
    a, b = pair.hosts
    a.frozen = True
    answers: list[dict[str, Any]] = []
    b.running.manage("promote", {}, answers.append, pair.now)
    pair.until(lambda: b.running.core.promotion.committed is not None)
    pair.kill(a)
    since = pair.now
    pair.until(lambda: bool(answers))
    assert pair.now - since < 0.5


def test_a_node_never_linked_to_the_owner_waits_a_lease_from_its_commit() -> None:
    pair = up(3, authority="register")
    a, b, c = pair.hosts
    pair.kill(a)
    pair.separate(b, c)
    assert pair.ask(b, "promote")["ok"]
    b.frozen = True
    answers: list[dict[str, Any]] = []
    c.running.manage("promote", {}, answers.append, pair.now)
    pair.until(lambda: c.running.core.promotion.committed is not None)
    committed = pair.now
    pair.until(lambda: bool(answers))
    assert answers[0]["ok"] and committed + LEASE - 0.01 <= pair.now < committed + LEASE + 0.1


def test_the_last_primary_again_waits_for_nobody() -> None:
    pair = up(authority="register")
    a, b = pair.hosts
    assert pair.ask(a, "demote")["ok"]
    b.frozen = True
    since = pair.now
    assert pair.ask(a, "promote")["ok"] and pair.now - since < 0.7


def test_whoever_waits_gives_way_to_a_newer_record() -> None:
    pair = up(3, authority="register")
    a, b, c = pair.hosts
    a.frozen = True
    answers: list[dict[str, Any]] = []
    b.running.manage("promote", {}, answers.append, pair.now)
    pair.until(lambda: b.running.core.promotion.committed is not None)
    answer = pair.ask(c, "promote", fenced=True)
    assert answer["ok"], answer
    pair.until(lambda: bool(answers))
    assert not answers[0]["ok"]
    assert c.running.vhost.serving and not b.running.vhost.serving
    pair.until(lambda: b.status == "ready")


def test_one_that_waits_itself_is_not_taken_for_one_that_serves_no_more() -> None:
    pair = up(3, authority="register")
    a, b, c = pair.hosts
    a.frozen = True
    b.running.manage("promote", {}, lambda answer: None, pair.now)
    pair.until(lambda: b.running.core.promotion.committed is not None)
    b.frozen = True
    answers: list[dict[str, Any]] = []
    c.running.manage("promote", {}, answers.append, pair.now)
    b.frozen = False
    pair.until(lambda: c.running.core.promotion.committed is not None)
    assert b.running.core.promotion.committed is not None and not c.running.vhost.serving
    pair.until(lambda: bool(answers))
    assert answers[0]["ok"] and not b.running.vhost.serving and not b.running.core.promotion.active


def cut_off() -> tuple[Pair, Client]:
    """Three nodes of which `a` has just been cut off from all but its clients; and a client of it."""
    pair = up(3, authority="register")
    a, b, c = pair.hosts
    client = Client(pair, a)
    pair.separate(a, b)
    pair.separate(a, c)
    pair.register.cut.add("a")
    return pair, client


def never_both(pair: Pair, *new_primaries: Host) -> None:
    """Until one of them serves, and at that time: `a` gives nothing to clients any more."""
    pair.until(lambda: any(h.running.vhost.serving for h in new_primaries), 10.0)
    assert pair[0].running.broker.output_fenced or not pair[0].running.vhost.serving


def test_an_owner_that_never_served_proves_nothing_of_earlier_owners() -> None:
    """b is promoted, and waits out the lease of a; c is promoted over it: b has not served, a still does."""
    pair, _ = cut_off()
    _, b, c = pair.hosts
    b.running.manage("promote", {}, lambda answer: None, pair.now)
    pair.until(lambda: b.running.core.promotion.committed is not None)
    answers: list[dict[str, Any]] = []
    c.running.manage("promote", {}, answers.append, pair.now)
    pair.until(lambda: c.running.core.promotion.committed is not None)
    committed = pair.now
    assert "whoever served before b" in c.running.status()["reason"]
    never_both(pair, b, c)
    assert answers[0]["ok"] and pair.now < committed + LEASE + 0.1


def test_one_that_died_while_it_waited_proves_nothing_of_those_before_it() -> None:
    pair, _ = cut_off()
    _, b, c = pair.hosts
    b.running.manage("promote", {}, lambda answer: None, pair.now)
    pair.until(lambda: b.running.core.promotion.committed is not None)
    pair.kill(b)
    c.running.manage("promote", {}, lambda answer: None, pair.now)
    never_both(pair, c)


def test_whoever_fences_one_that_waited_has_not_fenced_those_before_it() -> None:
    pair, _ = cut_off()
    _, b, c = pair.hosts
    b.running.manage("promote", {}, lambda answer: None, pair.now)
    pair.until(lambda: b.running.core.promotion.committed is not None)
    pair.kill(b)
    c.running.manage("promote", {"fenced": True}, lambda answer: None, pair.now)
    never_both(pair, c)


def test_one_that_was_demoted_while_it_waited_waits_again() -> None:
    pair, _ = cut_off()
    b = pair[1]
    b.running.manage("promote", {}, lambda answer: None, pair.now)
    pair.until(lambda: b.running.core.promotion.committed is not None)
    assert pair.ask(b, "demote")["ok"]
    b.running.manage("promote", {}, lambda answer: None, pair.now)
    never_both(pair, b)
