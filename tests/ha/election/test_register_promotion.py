"""Promotion with the `register` authority: who wins, what is refused, and what is known of it afterwards."""

from __future__ import annotations

from ha.core import codes
from ha.core.record.in_sync_record import RecordVersion
from ha.core.wire.link import Ack, Method
from tests.ha.election.test_register import (
    in_sync,
    manage,
    muted_inclusion,
    owner,
    phase,
    registered,
    serving,
    told,
)
from tests.ha.pair import Pair


def test_two_that_promote_at_once_are_decided_by_the_register() -> None:
    for delay in (0.0, 0.05, 0.3):
        for swap in (False, True):
            pair = registered(3)
            a, b, c = pair.hosts
            pair.kill(a)
            pair.register.delay = delay
            hosts = (c, b) if swap else (b, c)
            answers = [manage(pair, host, "promote") for host in hosts]
            pair.until(lambda answers=answers: all(answers))
            oks = [answer[0]["ok"] for answer in answers]
            assert oks.count(True) == 1, answers
            assert serving(pair) == [hosts[oks.index(True)].name] == [owner(pair)]
            pair.until(lambda pair=pair: {h.status for h in pair.hosts[1:]} == {"active", "ready"})


def test_two_empty_nodes_promoted_at_once_make_one_cluster() -> None:
    pair = Pair(authority="register")
    pair.start()
    pair.run(0.5)
    answers = [manage(pair, host, "promote") for host in pair.hosts]
    pair.until(lambda: all(answers))
    assert [a[0]["ok"] for a in answers].count(True) == 1, answers
    pair.until(lambda: {h.status for h in pair.hosts} == {"active", "ready"})
    assert pair[0].running.core.cluster_id == pair[1].running.core.cluster_id


def test_a_promotion_that_cannot_ask_the_register_is_refused() -> None:
    pair = registered()
    a, b = pair.hosts
    pair.kill(a)
    pair.register.cut = {"b"}
    answer = pair.ask(b, "promote", limit=2.5)
    assert answer["code"] == "promote-authority-silent"
    pair.register.cut.clear()
    assert pair.ask(b, "promote")["ok"]


def test_who_has_lost_its_record_takes_none_of_another_cluster() -> None:
    """It asked a register that was not its own, and wrote down what no later start of it reads."""
    pair = registered()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "x")
    pair.run(0.3)
    pair.kill(a)
    pair.kill(b)
    b.disk.unlink("/b/insync.json")
    b.disk.sync_directory("/b")
    mine, pair.register.held = pair.register.held, {**(pair.register.held or {}), "cluster_id": "f" * 32}
    pair.start(b)
    pair.run(0.5)
    assert not pair.ask(b, "promote", limit=3.0)["ok"]
    pair.kill(b)
    pair.register.held = mine
    pair.start()
    pair.until(lambda: pair.ask(a, "promote", limit=3.0)["ok"])
    pair.until(lambda: b.status == "ready")
    assert pair.contents(b, "q") == "x"


def test_a_backup_of_a_primary_that_hangs_is_promotable() -> None:
    """A resource manager goes by it: what the primary said last, before it hung, is nothing against it."""
    pair = registered()
    a, b = pair.hosts
    a.frozen = True
    pair.until(lambda: b.running.status()["link"] == "lost", 10)
    for _ in range(30):
        found = b.running.status()
        assert found["promotable"], found["reason"]
        pair.run(0.1)
    assert pair.ask(b, "promote", limit=10)["ok"]


def test_a_forced_promotion_of_an_excluded_node_waits_for_the_lease() -> None:
    """Its last word to the old primary says nothing of that one, which goes on by what the register says."""
    pair = registered()
    a, b = pair.hosts
    pair.separate(a, b)
    pair.until(lambda: in_sync(pair) == set())
    pair.run(a.running.core.tuning.lease + 0.5)
    answers = manage(pair, b, "promote", force_lossy=True)
    while not answers:
        pair.run(0.005)
        hosts = [h for h in pair.hosts if h.running.vhost.serving and not h.running.core.output_fenced]
        assert len(hosts) < 2, f"two serve: {a.log[-2:]}, {b.log[-2:]}"
    assert answers[0]["ok"], answers
    assert serving(pair) == ["b"]


def test_who_forces_need_not_wait_for_one_that_is_refused_again_and_again() -> None:
    """A resource manager asks anew as soon as it has its answer."""
    pair = registered()
    a, b = pair.hosts
    pair.separate(a, b, reset=True)
    pair.until(lambda: in_sync(pair) == set())
    pair.kill(a)
    pair.heal()
    unforced = manage(pair, b, "promote")
    pair.until(lambda: b.running.core.promotion.active)
    assert not unforced
    forced = manage(pair, b, "promote", force_lossy=True)
    again = manage(pair, b, "promote", force_lossy=True)
    pair.until(lambda: bool(forced))
    assert forced[0]["ok"] and serving(pair) == ["b"], forced
    assert unforced[0]["code"] == "promote-given-up"
    assert again[0]["code"] == "promote-pending", "forced is forced"


def test_a_promotion_of_unknown_outcome_is_told_as_that_and_goes_on() -> None:
    pair = registered()
    a, b = pair.hosts
    pair.kill(a)
    pair.register.delay = 0.1
    answers = manage(pair, b, "promote")
    pair.until(lambda: b.running.core.keeper.busy)
    pair.register.mute = {"b"}
    pair.until(lambda: bool(answers), 3.0)
    assert answers[0]["code"] == "promote-undecided", answers
    assert serving(pair) == [] and owner(pair) == "b"
    again = pair.ask(b, "promote")
    assert again["code"] == "promote-pending", again
    pair.register.mute.clear()
    pair.until(lambda: b.status == "active")
    assert pair.register.swaps.count("b") == 1


def test_a_node_that_dies_unaware_of_its_promotion_can_be_promoted() -> None:
    """It was included when its primary died, and had not heard of that either: its disk still had it in the
    midst of a catch-up, and nobody else is in the record that it leaves behind."""
    pair = muted_inclusion()
    a, b = pair.hosts
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position))
    pair.kill(a)
    pair.register.delay = 0.1
    answers = manage(pair, b, "promote")
    pair.until(lambda: b.running.core.keeper.busy)
    pair.register.mute = {"b"}
    pair.until(lambda: owner(pair) == "b")
    assert not answers and in_sync(pair) == set()
    pair.kill(b)
    pair.register.mute.clear()
    pair.start(b)
    pair.run(0.5)
    answer = pair.ask(b, "promote")
    assert answer["ok"] and pair.contents(b, "q") == "x", answer


def test_a_running_member_needs_no_more_than_the_register() -> None:
    """Silence of the old primary is enough: it can confirm nothing once the lease has run out."""
    pair = registered()
    a, b = pair.hosts
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position))
    pair.separate(a, b)
    pair.register.cut = {"a"}
    pair.run(0.5)
    answer = pair.ask(b, "promote")
    assert answer["ok"], answer
    assert pair.contents(b, "q") == "x"
    assert a.running.broker.output_fenced, "it serves no more, although it has not heard of anybody"
    pair.heal()
    pair.until(lambda: a.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_who_is_not_in_the_register_is_refused_whatever_it_believes() -> None:
    pair = registered()
    a, b = pair.hosts
    pair.separate(a, b, reset=True)
    pair.until(lambda: in_sync(pair) == set())
    pair.kill(a)
    assert b.status == "ready", "it has not heard of its exclusion"
    answer = pair.ask(b, "promote")
    assert not answer["ok"], answer


def test_a_primary_that_can_prove_nothing_is_in_nobodys_way() -> None:
    """Of three, a has lost c and the register: it can neither exclude c nor confirm, and b still hears it."""
    pair = registered(3)
    a, b, c = pair.hosts
    answer = pair.ask(b, "promote")
    assert answer["code"] == "promote-other-serves"
    pair.kill(c)
    pair.register.cut = {"a"}
    pair.until(lambda: a.running.broker.output_fenced)
    assert a.running.status()["withheld"]
    answer = pair.ask(a, "promote")
    assert answer["code"] == "promote-lease-expired"
    answer = pair.ask(b, "promote")
    assert answer["ok"], answer
    assert serving(pair) == ["b"] or a.running.broker.output_fenced
    pair.until(lambda: a.status == "ready")


def test_a_demoted_primary_forgets_the_commit_that_it_had_asked_for() -> None:
    pair = registered()
    a, b = pair.hosts
    pair.kill(b)
    pair.register.delay = 0.5
    pair.until(lambda: a.running.core.keeper.busy)
    assert pair.ask(a, "demote")["ok"]
    pair.until(lambda: in_sync(pair) == set())
    pair.run(1.0)
    assert a.status == "joining" and not serving(pair)
    assert not told(a, codes.BACKUP_EXCLUDED)
    pair.register.delay = 0.0
    answer = pair.ask(a, "promote")
    assert answer["ok"] and "last primary" in answer["reason"], answer


def test_who_steps_down_closes_the_link_of_one_that_it_was_excluding() -> None:
    pair = registered()
    a, b = pair.hosts
    b.syncing = False
    pair.register.cut = {"a"}
    pair.publish(a, "q", "x")
    pair.until(lambda: phase(a, b) == "gone")
    assert b.running.core.backup is not None and b.running.core.backup.linked
    assert pair.ask(a, "demote")["ok"]
    pair.run(0.05)
    assert not b.running.core.backup.linked


def test_a_promotion_is_given_up_when_the_operator_demotes() -> None:
    pair = registered()
    a, b = pair.hosts
    pair.kill(a)
    pair.register.delay = 0.5
    answers = manage(pair, b, "promote")
    pair.until(lambda: b.running.core.keeper.busy)
    assert pair.ask(b, "demote")["ok"]
    assert answers[0]["code"] == "promote-given-up"
    pair.run(2.0)
    assert serving(pair) == [] and owner(pair) == "b"
    pair.register.delay = 0.0
    assert pair.ask(b, "promote")["ok"]


def test_an_answer_that_comes_after_the_news_of_a_successor_is_too_late() -> None:
    """b's swap was done, c has promoted itself over it, and b hears of c first."""
    pair = registered(3)
    a, b, c = pair.hosts
    pair.kill(a)
    answers = manage(pair, b, "promote", fenced=True)
    pair.register.delay = 0.1
    pair.until(lambda: b.running.core.keeper.busy)
    pair.until(lambda: owner(pair) == "b")
    pair.register.late = {"b": 1.2}
    pair.register.delay = 0.0
    assert pair.ask(c, "promote", fenced=True)["ok"]
    pair.until(lambda: b.running.core.record == c.running.core.record)
    pair.step()
    assert answers and answers[0]["code"] == "promote-record-changed", answers
    assert not b.running.core.keeper.busy, "whatever comes in answer is nobody's business now"
    pair.run(1.5)
    pair.until(lambda: b.status == "ready" and c.status == "active")
    assert serving(pair) == ["c"]
    assert b.running.core.record == c.running.core.record


def test_after_a_restart_what_was_in_flight_is_read_again() -> None:
    pair = muted_inclusion()
    a, b = pair.hosts
    everything = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, everything))
    pair.kill(a)
    pair.start(a)
    pair.register.mute.clear()
    pair.run(0.5)
    answer = pair.ask(a, "promote")
    assert not answer["ok"] and "promote b" in answer["reason"], answer
    assert pair.ask(b, "promote")["ok"]
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "q") == pair.contents(b, "q") == "x"


def test_a_cold_start_goes_by_the_register() -> None:
    pair = registered()
    a, b = pair.hosts
    pair.separate(a, b, reset=True)
    pair.until(lambda: in_sync(pair) == set())
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position))
    pair.kill(a)
    pair.kill(b)
    pair.heal()
    pair.start(b)
    pair.run(0.3)
    answer = pair.ask(b, "promote")
    assert answer["code"] == "promote-not-in-record", answer
    pair.start(a)
    pair.run(0.3)
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: b.status == "ready")
    assert pair.contents(b, "q") == "x"


def test_an_answer_that_cannot_be_read_is_none() -> None:
    pair = registered()
    a, b = pair.hosts
    held = pair.register.held
    pair.register.held = {"epoch": 1, "revision": 1}
    pair.until(lambda: told(a, codes.AUTHORITY_UNREADABLE), 1.1)
    pair.register.held = held
    pair.run(1.0)
    assert a.status == "active" and b.status == "ready"


def test_a_backup_of_a_later_epoch_makes_its_primary_stop() -> None:
    pair = registered()
    core = pair[0].running.core
    assert core.primary is not None and core.record is not None
    peer = next(p for p in pair[0].running.hooks.peers if core.primary.backup_at(p) is not None)
    later = RecordVersion(core.epoch + 1, 1)
    position = core._position()
    core.method(peer, Method.ACK, Ack(position, position, 0.0, 0, later, True).encode(), pair.now)
    assert pair[0].status == "joining" and not told(pair[0], codes.STOPS_SERVING)
    pair.run(0.01)
    assert told(pair[0], codes.STOPS_SERVING, "a backup knows of epoch")


def test_a_slow_late_joiner_gets_no_more_time_than_an_absent_one() -> None:
    """Found by the simulation (116015273): the time that an expected member has began anew when it joined, so
    that confirms waited for twice as long."""
    pair = registered(3, backup_timeout=2.0)
    a, b, c = pair.hosts
    pair.kill(a)
    pair.separate(b, c)
    manage(pair, b, "promote")
    pair.until(lambda: b.status == "recovering", 10.0)
    promoted = pair.now
    pair.run(1.0)
    c.syncing = False
    pair.heal()
    pair.until(lambda: phase(b, c) == "guarded")
    position = pair.publish(b, "q", "x")
    pair.until(lambda: pair.confirmed(b, position))
    assert pair.now - promoted < 2.2
    assert (
        codes.BACKUP_EXCLUDED.say(backup="c", why="it has not caught up within 2 s of the promotion")
        in b.said
    )
