"""The authority has lost the record, or a later one, and nobody serves: which node may be forced."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from broker.model.values import Position
from ha.core import codes
from ha.core.election.register import LeasingRegister
from ha.core.membership import Status
from ha.core.record.authority import Evidence, PeerAnswer, Verdict
from ha.core.record.in_sync_record import Incarnation, InSyncRecord
from ha.core.role import OwnIdentity
from tests.ha.election.test_automatic import confirming, serving, up, waits_for
from tests.ha.pair import Pair

HERE = "promote this node with --force-lossy"


def alone_ahead() -> Pair:
    """b has excluded a, and has confirmed messages alone."""
    pair = up()
    pair.declare(pair[0], "q")
    pair.run(0.2)
    pair.kill(pair[0])
    pair.until(lambda: serving(pair) == "b")
    position = pair.publish(pair[1], "q", "xyz")
    pair.until(lambda: pair.confirmed(pair[1], position))
    pair.run(0.5)
    return pair


def test_both_name_the_node_that_has_everything_and_only_that_one_can_be_forced() -> None:
    pair = alone_ahead()
    a, b = pair.hosts
    pair.kill(b)
    pair.register.held = None
    pair.start()
    pair.run(5.0)
    assert serving(pair) == ""
    assert HERE in waits_for(b) and "promote b with --force-lossy" in waits_for(a)
    answer = pair.ask(a, "promote", force_lossy=True)
    assert (answer["ok"], answer["code"]) == (False, codes.PROMOTE_OTHER_HAS_MORE.name)
    assert answer["reason"].endswith("; next: promote b with --force-lossy")
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    assert pair.contents(b, "q") == "xyz"
    pair.until(lambda: a.status == "ready")
    assert a.running.status()["quarantined"] == 0


def test_if_the_better_node_is_gone_the_other_one_can_be_forced() -> None:
    pair = alone_ahead()
    a, b = pair.hosts
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    pair.kill(b)
    pair.register.held = None
    pair.run(5.0)
    assert "next: start b and ask again; b served 5 s ago, so check that node first (" in waits_for(a)
    pair.run(60.0)
    assert "start b and ask again; if that is lost for good, promote this node" in waits_for(a)
    assert pair.ask(a, "promote", force_lossy=True)["ok"]


def test_a_backup_that_runs_on_goes_before_a_primary_that_was_started_again() -> None:
    pair = up()
    a, b = pair.hosts
    pair.register.cut = {"a", "b"}
    pair.kill(a)
    pair.start(a)
    pair.register.held = None
    pair.run(1.0)
    pair.register.cut.clear()
    pair.run(3.0)
    assert "run without a restart since; next: promote b with --force-lossy" in waits_for(a)
    assert f"next: {HERE}" in waits_for(b)
    for host in pair.hosts:
        assert not host.running.status()["promotable"]
    assert not pair.ask(a, "promote", force_lossy=True)["ok"]
    assert pair.ask(b, "promote", force_lossy=True)["ok"]


def test_a_primary_that_steps_down_for_a_lost_record_is_the_one_to_be_forced() -> None:
    """It was fenced: somebody may have been promoted since, as far as it knows."""
    pair = up()
    a, b = pair.hosts
    pair.register.cut = {"a", "b"}
    pair.separate(a, b)
    pair.until(lambda: a.running.core.output_fenced)
    pair.register.held = None
    pair.register.cut.clear()
    pair.until(lambda: serving(pair) == "")
    pair.heal()
    pair.run(3.0)
    assert f"next: {HERE}" in waits_for(a)
    assert "a was the last primary" in waits_for(b) and "promote a with --force-lossy" in waits_for(b)
    assert not pair.ask(b, "promote", force_lossy=True)["ok"]
    assert pair.ask(a, "promote", force_lossy=True)["ok"]
    pair.until(lambda: b.status == "ready")


def test_an_older_record_names_a_node_that_was_excluded_since() -> None:
    """Somebody put an old copy back. It names a, which b has excluded since."""
    pair = up()
    a, b = pair.hosts
    old = pair.register.held
    pair.declare(a, "q")
    pair.separate(a, b, reset=True)
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position))
    pair.kill(a)
    pair.register.held = old
    pair.register.alive_until.clear()
    pair.heal()
    pair.register.cut = {"b"}
    pair.start(a)
    pair.run(1.0)
    pair.register.cut.clear()
    pair.run(5.0)
    assert serving(pair) == ""
    assert "promote a with --force-lossy" in waits_for(b) and HERE in waits_for(a)


def test_a_forced_node_waits_for_the_lease_that_the_lost_record_gave() -> None:
    """a is cut off from all, and serves on for the rest of its lease."""
    pair = up()
    a, b = pair.hosts
    pair.separate(a, b, reset=True)
    pair.register.cut = {"a"}
    pair.register.held = None
    answers: list[dict[str, Any]] = []
    b.running.manage("promote", {"force_lossy": True}, answers.append, pair.now)
    end = pair.now + 6.0
    while pair.now < end:
        pair.run(0.02)
        assert confirming(pair) in ("a", "", "b")
    assert confirming(pair) == "b" and answers[0]["ok"]


# -- any two nodes


def node(name: str, rng: random.Random, records: list[InSyncRecord]) -> dict[str, Any]:
    """How a node stands, as it knows it and tells the other."""
    spoilt = rng.choice((0, 0, 0, 2))
    return {
        "name": name, "number": rng.choice((1, 1, 2)),
        "position": Position(rng.choice((1, 2)), rng.randrange(3)),
        "incomplete": spoilt > 0 or rng.random() < 0.3, "spoilt": spoilt,
        "record": rng.choice([*records, None]),
    }  # fmt: skip


def some_record(rng: random.Random, revision: int) -> InSyncRecord:
    """A small world, so that much of it meets."""
    owner, other = rng.sample("ab", 2)
    backups = {Incarnation(other, rng.choice((1, 2)))} if rng.random() < 0.6 else set()
    who = Incarnation(owner, rng.choice((1, 2)))
    return InSyncRecord("c", 1, revision, who, frozenset(backups), {"a": "a", "b": "b"})


def view(mine: dict[str, Any], other: dict[str, Any], held: InSyncRecord | None) -> Evidence:
    """What the first knows when both have said how they stand."""
    me = OwnIdentity(mine["name"], mine["name"], mine["number"], 1 if mine["name"] == "a" else 2)
    told = PeerAnswer(
        other["name"], other["name"], other["number"], "joining", False, 0, other["position"],
        other["record"], "c", other["incomplete"], other["spoilt"], 1 if other["name"] == "a" else 2,
    )  # fmt: skip
    return Evidence(
        me=me, status=Status.JOINING, record=mine["record"], newest=held, record_lost=False,
        incomplete=mine["incomplete"], resetting=mine["spoilt"], ended=0, position=mine["position"],
        linked=False, link_end=None, answers={other["name"]: told},
    )  # fmt: skip


def judged(e: Evidence, *, force: bool = False) -> Verdict:
    return LeasingRegister().judge(e, force_lossy=force)


@pytest.mark.parametrize("seed", range(400))
def test_two_nodes_name_the_same_one_and_only_that_one_can_be_forced(seed: int) -> None:
    rng = random.Random(seed)
    old, *records = [some_record(rng, revision) for revision in (1, 2, 3)]
    a, b = node("a", rng, records), node("b", rng, records)
    if a["record"] is None and b["record"] is None:
        a["record"] = records[0]
    held = rng.choice((old, None))
    views = view(a, b, held), view(b, a, held)
    here = [HERE in judged(e).sentence for e in views]
    assert here.count(True) == 1
    best, worse = views if here[0] else views[::-1]
    assert judged(worse).sentence.endswith(f"promote {best.me.name} with --force-lossy")
    assert judged(best, force=True).granted and not judged(worse, force=True).granted
    assert judged(replace(worse, answers={}), force=True).granted
