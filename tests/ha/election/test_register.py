"""The `register` authority: commits that are slow, lost or of unknown outcome, and who wins when two ask."""

from __future__ import annotations

from typing import Any

import pytest

from ha.adapter.settings import HaSettings
from ha.core import codes
from tests.ha.pair import Host, Pair
from understudy.shared.codes import Code


def registered(count: int = 2, **settings: Any) -> Pair:
    """A pair that is up: the first serves, the others are in sync."""
    pair = Pair(count, authority="register", **settings)
    pair.up()
    pair.declare(pair[0], "q")
    pair.run(0.2)
    return pair


def in_sync(pair: Pair) -> set[str]:
    """Names of those that the register has in sync."""
    held = pair.register.held
    assert held is not None
    return {held["names"][node_id] for node_id, _ in held["in_sync"]}


def owner(pair: Pair) -> str:
    held = pair.register.held
    assert held is not None
    return str(held["names"][held["owner"][0]])


def serving(pair: Pair) -> list[str]:
    return [h.name for h in pair.hosts if h.node is not None and h.running.vhost.serving]


def manage(pair: Pair, host: Host, command: str, **args: Any) -> list[dict[str, Any]]:
    """Ask, and do not wait: the answer comes into the list."""
    answers: list[dict[str, Any]] = []
    host.running.manage(command, args, answers.append, pair.now)
    return answers


def told(host: Host, code: Code, words: str = "") -> bool:
    """Whether it has logged that with these words in it."""
    return any(words in line for line in host.told(code))


def test_an_authority_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ha\.authority is 'oracle'"):
        HaSettings(authority="oracle")


@pytest.mark.parametrize("authority", ["manual", "register"])
def test_two_backups_excluded_in_turn_learn_the_true_record(authority: str) -> None:
    """Each would make out of its own exclusion a record that never was, with the other still in it; and the
    two together one that is newer than their primary's, whom they then refuse for ever.
    """
    pair = Pair(3, authority=authority)
    pair.up()
    a, b, c = pair.hosts
    pair.hold(a, b)
    pair.hold(a, c)
    pair.until(lambda: a.running.core.record is not None and not a.running.core.record.in_sync)
    committed = a.running.core.record
    pair.heal()
    pair.until(lambda: told(b, codes.EXCLUDED) and told(c, codes.EXCLUDED))
    for host in (b, c):
        record = host.running.core.record
        assert record is not None and committed is not None and record.version <= committed.version
        assert record.version < committed.version or record == committed
    pair.until(lambda: (b.status, c.status) == ("ready", "ready"), 5.0)


def test_manual_asks_no_authority() -> None:
    pair = Pair()
    pair.start()
    asked: list[object] = []
    pair.register.ask = lambda host, requests, now: asked.extend(requests)  # type: ignore[method-assign]
    pair.run(0.3)
    assert pair.ask(pair[0], "promote")["ok"]
    pair.run(3.0)
    assert not asked


def test_what_is_served_by_is_what_the_register_holds() -> None:
    pair = registered(3)
    a, b, c = pair.hosts
    assert (owner(pair), in_sync(pair)) == ("a", {"b", "c"})
    assert {h.running.core.record == a.running.core.record for h in pair.hosts} == {True}
    position = pair.publish(a, "q", "xyz")
    pair.until(lambda: pair.confirmed(a, position))
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    pair.until(lambda: c.status == "ready" and b.status == "active")
    assert (owner(pair), in_sync(pair)) == ("b", {"c"})
    assert pair.contents(b, "q") == pair.contents(c, "q") == "xyz"


# -- inclusion


def test_confirms_wait_for_a_joiner_before_the_commit_makes_it_ready() -> None:
    pair = Pair(authority="register")
    pair.start()
    pair.run(0.3)
    a, b = pair.hosts
    assert pair.ask(a, "promote")["ok"]
    pair.register.delay = 0.4
    pair.declare(a, "q")
    pair.until(lambda: phase(a, b) == "including")
    assert b.status == "catch-up" and not in_sync(pair)
    b.syncing = False
    position = pair.publish(a, "q", "x")
    pair.run(0.3)
    assert not pair.confirmed(a, position), "from now on the record may name it"
    b.syncing = True
    pair.until(lambda: in_sync(pair) == {"b"})
    assert b.status == "catch-up", "the answer is on its way"
    pair.until(lambda: b.status == "ready")


def phase(primary: Host, backup: Host) -> str:
    role = primary.running.core.primary
    assert role is not None
    state = role.member_states().get(backup.running.me.node_id)
    return str(state["phase"]) if state is not None else "gone"


def muted_inclusion() -> Pair:
    """The register has included b; a does not know whether it has."""
    pair = Pair(authority="register")
    pair.start()
    pair.run(0.3)
    a, b = pair.hosts
    assert pair.ask(a, "promote")["ok"]
    pair.declare(a, "q")
    pair.register.mute = {"a"}
    pair.until(lambda: in_sync(pair) == {"b"})
    assert phase(a, b) == "including" and b.status == "catch-up"
    return pair


def test_a_swap_that_had_landed_is_found_done_when_it_is_asked_again() -> None:
    pair = muted_inclusion()
    a, b = pair.hosts
    pair.run(1.0)
    assert phase(a, b) == "including" and pair.register.swaps == ["a", "a"]
    pair.register.mute.clear()
    pair.until(lambda: b.status == "ready")
    assert pair.register.swaps == ["a", "a"], "the same change once, however often it was asked for"
    assert a.status == "active"


def test_a_link_lost_while_the_inclusion_is_in_doubt_holds_confirms() -> None:
    pair = muted_inclusion()
    a, b = pair.hosts
    pair.separate(a, b, reset=True)
    position = pair.publish(a, "q", "x")
    pair.run(2.5)
    assert not pair.confirmed(a, position), "the register names b, and a cannot know that it does not"
    pair.register.mute.clear()
    pair.until(lambda: pair.confirmed(a, position))
    assert in_sync(pair) == set()
    answer = pair.ask(b, "promote")
    assert not answer["ok"] and serving(pair) == ["a"]


def test_the_new_primary_of_an_inclusion_in_doubt_holds_what_was_confirmed() -> None:
    pair = muted_inclusion()
    a, b = pair.hosts
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position))
    pair.kill(a)
    answer = pair.ask(b, "promote")
    assert answer["ok"] and pair.contents(b, "q") == "x", answer


# -- an inclusion that the authority puts off


def put_off() -> tuple[Pair, Host, Host, Host]:
    """b has caught up again, beside c, which is in sync; but its node has not joined the cluster."""
    pair = registered(3)
    a, b, c = pair.hosts
    pair.kill(b)
    pair.until(lambda: in_sync(pair) == {"c"})
    pair.register.early = {"b"}
    pair.start(b)
    pair.until(lambda: codes.BACKUP_DEFERRED.say(backup="b", why="it is on its way") in a.said)
    return pair, a, b, c


def test_who_is_not_included_yet_is_included_once_it_may_be() -> None:
    pair, a, b, _ = put_off()
    pair.run(4.0)
    assert in_sync(pair) == {"c"} and (a.status, b.status) == ("active", "catch-up")
    assert len(a.told(codes.BACKUP_DEFERRED)) == 1, "said once"
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position))
    assert pair.contents(b, "q") == "x", "it goes on following"
    pair.register.early.clear()
    pair.until(lambda: b.status == "ready")
    assert in_sync(pair) == {"b", "c"}


def test_who_dies_before_it_is_included_holds_nobody() -> None:
    """The inclusion was asked for again and again, and meanwhile no exclusion could be, without which nothing
    was confirmed.
    """
    pair, a, b, c = put_off()
    life = b.running.me.node_id
    pair.kill(b)
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position))
    assert in_sync(pair) == {"c"} and pair.contents(c, "q") == "x"
    role = a.running.core.primary
    assert role is not None and life not in role.backups


def test_another_is_excluded_while_one_is_not_included_yet() -> None:
    pair, a, b, c = put_off()
    pair.kill(c)
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position))
    assert in_sync(pair) == set() and a.status == "active"
    pair.register.early.clear()
    pair.until(lambda: b.status == "ready")
    assert pair.contents(b, "q") == "x"


def test_who_may_be_in_the_record_all_the_same_counts_until_that_is_known() -> None:
    """No answer came to the first request, and "not yet" to the next: it may have been done all the same."""
    pair = muted_inclusion()
    a, b = pair.hosts
    pair.register.mute.clear()
    pair.register.answer_once = ("not yet", None)
    pair.kill(b)
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.register.answer_once is None)
    assert not pair.confirmed(a, position) and in_sync(pair) == {"b"}
    pair.until(lambda: pair.confirmed(a, position))
    assert in_sync(pair) == set()


@pytest.mark.parametrize("back", ["after the answer", "before the answer"])
def test_who_is_lost_while_it_is_not_included_yet_is_not_excluded(back: str) -> None:
    """There is nothing to exclude it from: it was never in the record, and its events say so."""
    pair, a, b, _ = put_off()
    before = len(a.said)
    pair.register.delay = 0.2
    pair.until(lambda: phase(a, b) == "including")
    pair.separate(a, b, reset=True)
    if back == "before the answer":
        pair.heal()
        pair.until(lambda: "asked" in (phase(a, b) or ""))
    pair.until(lambda: told(a, codes.JOINER_GONE, "b "))
    pair.heal()
    pair.register.early.clear()
    pair.until(lambda: b.status == "ready")
    assert not any(said.code == codes.BACKUP_EXCLUDED.name for said in a.said[before:])
    assert in_sync(pair) == {"b", "c"}


# -- exclusion


def test_nothing_is_confirmed_alone_before_the_register_has_the_exclusion() -> None:
    pair = registered()
    a, b = pair.hosts
    pair.register.cut = {"a"}
    pair.kill(b)
    position = pair.publish(a, "q", "x")
    pair.run(2.4)
    assert not pair.confirmed(a, position) and in_sync(pair) == {"b"}
    assert "exclusion of b is committed" in a.running.status()["reason"]
    pair.run(5.0)
    assert not pair.confirmed(a, position)
    pair.register.cut.clear()
    pair.until(lambda: pair.confirmed(a, position))
    assert in_sync(pair) == set() and a.status == "active"


def test_an_exclusion_of_unknown_outcome_releases_no_confirms() -> None:
    pair = registered()
    a, b = pair.hosts
    b.frozen = True
    pair.register.mute = {"a"}
    position = pair.publish(a, "q", "x")
    pair.until(lambda: in_sync(pair) == set())
    pair.run(0.3)
    assert not pair.confirmed(a, position)
    pair.register.mute.clear()
    pair.until(lambda: pair.confirmed(a, position))


def test_the_notice_and_the_close_come_after_the_commit() -> None:
    pair = registered()
    a, b = pair.hosts
    b.syncing = False
    pair.register.delay = 0.5
    pair.publish(a, "q", "x")
    pair.until(lambda: phase(a, b) == "gone")
    pair.publish(a, "q", "y")
    pair.run(0.4)
    assert b.running.core.backup is not None and b.running.core.backup.linked
    assert "y" not in pair.contents(b, "q"), "no more batches"
    pair.until(lambda: in_sync(pair) == set())
    assert not told(b, codes.EXCLUDED)
    pair.until(lambda: told(b, codes.EXCLUDED))
    b.syncing = True
    pair.until(lambda: b.status == "ready")
    assert pair.contents(a, "q") == pair.contents(b, "q") == "xy"


@pytest.mark.parametrize("again", ["the same life", "a new life"])
def test_who_comes_back_while_its_exclusion_is_in_flight_waits_for_it(again: str) -> None:
    pair = registered()
    a, b = pair.hosts
    pair.register.mute = {"a"}
    if again == "a new life":
        pair.kill(b)
        pair.start(b)
    else:
        pair.separate(a, b, reset=True)
        pair.run(0.05)
        pair.heal()
    pair.until(lambda: phase(a, b) == "asked")
    position = pair.publish(a, "q", "x")
    pair.run(0.8)
    assert phase(a, b) == "asked" and b.status != "catch-up"
    assert not pair.confirmed(a, position)
    pair.register.mute.clear()
    pair.until(lambda: phase(a, b) == "in-sync")
    assert pair.confirmed(a, position) and in_sync(pair) == {"b"}
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_three_nodes_lose_two_and_each_is_excluded_by_a_commit_of_its_own() -> None:
    pair = registered(3)
    a, b, c = pair.hosts
    pair.register.delay = 0.1
    before = len(pair.register.swaps)
    pair.kill(b)
    pair.kill(c)
    position = pair.publish(a, "q", "x")
    pair.until(lambda: in_sync(pair) in ({"b"}, {"c"}))
    assert not pair.confirmed(a, position)
    pair.until(lambda: pair.confirmed(a, position))
    assert in_sync(pair) == set() and len(pair.register.swaps) == before + 2


# -- conflict


def usurp(pair: Pair, name: str) -> None:
    """Somebody else's record, which this pair has not heard of by itself."""
    held = dict(pair.register.held or {})
    held["epoch"], held["revision"], held["owner"] = held["epoch"] + (1 << 20), 1, [name * 32, 7]
    held["in_sync"], held["names"] = [], {name * 32: name}
    pair.register.held = held


def test_a_primary_whose_register_has_another_owner_stops_at_once() -> None:
    pair = registered()
    a, b = pair.hosts
    usurp(pair, "z")
    pair.until(lambda: a.status == "joining", 1.1)
    assert not a.running.vhost.serving and told(a, codes.STOPS_SERVING, "the authority has epoch")
    assert not pair.ask(a, "promote")["ok"] and not pair.ask(b, "promote")["ok"]


def test_a_conflict_when_it_excludes_confirms_nothing() -> None:
    pair = registered()
    a, b = pair.hosts
    quiet(pair, a)
    position = pair.publish(a, "q", "x")
    b.frozen = True
    usurp(pair, "z")
    pair.until(lambda: a.status == "joining", 3.0)
    assert not pair.confirmed(a, position)


def quiet(pair: Pair, host: Host) -> None:
    """Reads of that node do not arrive; swaps do."""
    ask = pair.register.ask
    pair.register.ask = lambda h, requests, now: ask(  # type: ignore[method-assign]
        h, [r for r in requests if h is not host or r.kind == "swap"], now
    )
