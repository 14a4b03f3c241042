"""Corners of a switchover that a transcript cannot show: clients that come early, and words out of place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.amqp091.codec.grammar import encode_frame
from ha.adapter.inbox import Arrived
from ha.core import codes
from ha.core.wire.link import Method, to_json
from tests.ha.client import Client, knock
from tests.ha.pair import STEP, Host, Pair


def pair_of(count: int = 2, **settings: Any) -> Pair:
    pair = Pair(count, **settings)
    pair.up()
    pair.declare(pair[0], "q")
    pair.run(0.2)
    return pair


def switch(pair: Pair, host: Host, to: str | None = None) -> list[dict[str, Any]]:
    """Ask for it; the answer comes into the list."""
    answers: list[dict[str, Any]] = []
    host.running.manage("switchover", {"to": to}, answers.append, pair.now)
    return answers


def said(conn: Any) -> bytes:
    return b"".join(conn.take_output())


OPEN_OK = encode_frame(0, "connection.open-ok")


def test_clients_that_come_early_are_held_by_both_and_let_in_by_the_target() -> None:
    pair = pair_of()
    a, b = pair[0], pair[1]
    b.syncing = False
    pair.publish(a, "q", "x")
    answers = switch(pair, a)
    pair.run(0.1)
    early = [knock(pair, a), knock(pair, b)]
    pair.run(0.2)
    assert not answers
    assert all(OPEN_OK not in (text := said(conn)) and b"320" not in text for conn in early)
    b.syncing = True
    pair.until(lambda: bool(answers))
    assert answers[0]["ok"], answers
    pair.run(0.3)
    assert OPEN_OK in said(early[1])
    assert b"switchover to b at 127.0.0.1:5001" in said(early[0])


def test_clients_that_come_early_are_served_when_it_comes_to_nothing() -> None:
    pair = pair_of(min_backups=1, on_backup_loss="block")
    a, b = pair[0], pair[1]
    b.syncing = False
    pair.publish(a, "q", "x")
    answers = switch(pair, a)
    pair.run(0.1)
    early = knock(pair, a)
    pair.until(lambda: bool(answers))
    assert not answers[0]["ok"]
    pair.run(0.3)
    assert OPEN_OK in said(early)


def test_draining_reads_nothing_from_clients_and_still_confirms() -> None:
    pair = pair_of()
    a, b = pair[0], pair[1]
    client = Client("x", a, pair.now)
    pair.run(STEP)
    client.begin(pair.now)
    pair.run(STEP)
    b.syncing = False
    client.publish("q", "ab", pair.now)
    pair.run(STEP)
    answers = switch(pair, a)
    pair.run(STEP)
    assert client.conn.paused_reading
    assert not client.pump(pair.now)
    b.syncing = True
    pair.until(lambda: bool(answers))
    words = client.pump(pair.now)
    assert words[0] == "x: confirmed up to 2"
    assert "320" in words[1]
    assert pair.contents(b, "q") == "ab"


def test_it_waits_for_whoever_else_confirms_wait_for() -> None:
    pair = pair_of(3)
    a, c = pair[0], pair[2]
    c.syncing = False
    pair.publish(a, "q", "x")
    answers = switch(pair, a, "b")
    pair.run(0.5)
    assert a.status == "active"
    c.syncing = True
    pair.until(lambda: bool(answers))
    assert answers[0]["ok"]


def test_a_demotion_meanwhile_ends_it() -> None:
    pair = pair_of()
    a, b = pair[0], pair[1]
    b.syncing = False
    pair.publish(a, "q", "x")
    answers = switch(pair, a)
    pair.run(0.1)
    assert pair.ask(a, "demote")["ok"]
    assert answers[0]["reason"] == "not switched over to b: demoted meanwhile"
    assert a.status == "joining"
    assert not a.running.broker.input_paused


def hostile(epoch: Callable[[int], int], n: Callable[[int], int]) -> Callable[[Pair], bytes]:
    def make(pair: Pair) -> bytes:
        here = pair[1].running.replica.position
        return to_json({"epoch": epoch(here.epoch), "position": [epoch(here.epoch), n(here.n)], "off": None})

    return make


WRONG = {
    "a position that it has not got": hostile(lambda e: e, lambda n: n + 1),
    "a position that it has passed": hostile(lambda e: e, lambda n: n - 1),
    "another epoch": hostile(lambda e: e + 65536, lambda n: n),
    "no position": lambda pair: to_json({"epoch": 65537, "position": "here", "off": None}),
    "no numbers": lambda pair: to_json({"epoch": "e", "position": [[], {}], "off": None}),
    "no JSON": lambda pair: b"{",
}


@pytest.mark.parametrize("what", WRONG)
def test_a_handover_that_cannot_be_right_costs_the_link_and_nothing_else(what: str) -> None:
    pair = pair_of()
    b = pair[1]
    backup = b.running.core.backup
    assert backup is not None and backup.peer is not None
    b.running._inbox.put(Arrived(backup.peer, Method.HANDOVER, WRONG[what](pair)))
    pair.run(STEP)
    assert b.running.core.primary is None
    assert not b.running.core.promotion.active
    pair.until(lambda: b.status == "ready")
    assert pair[0].status == "active"


def test_a_handover_by_a_stranger_is_none() -> None:
    pair = pair_of()
    b = pair[1]
    position = b.running.replica.position
    text = to_json({"epoch": position.epoch, "position": list(position), "off": None})
    b.running._inbox.put(Arrived(4711, Method.HANDOVER, text))
    pair.run(0.5)
    assert (pair[0].status, b.status) == ("active", "ready")
    assert not b.running.core.promotion.active


def test_who_was_asked_by_the_old_primary_takes_no_handover_of_before() -> None:
    pair = pair_of(backup_timeout=1.0)
    a, b = pair[0], pair[1]
    link = next(w for w in pair.wires if w.dialer is b and w.acceptor is a)
    answers = switch(pair, a)
    pair.until(lambda: (plan := a.running.core.switchover.plan) is not None and plan.asked is not None)
    pair.run(STEP)
    pair.wires.remove(link)  # b has answered; what a says on the link from now on stays on its way
    pair.until(lambda: bool(answers), limit=5.0)
    assert answers[0]["reason"].endswith("a serves in epoch 131073"), answers
    late = b"".join(link.conn.take_output())
    assert late.count(b'"position":[') == 1
    b.running.dial_received(link.dial_id, late, pair.now)
    pair.wires.append(link)
    pair.until(lambda: (a.status, b.status) == ("active", "ready"))
    assert not b.told(codes.HANDS_OVER)


@pytest.mark.parametrize(("asked", "serves"), [(None, True), (0, True), (1, False)])
def test_what_a_primary_said_before_its_handover_is_no_objection(asked: int | None, serves: bool) -> None:
    """By the question that it answers, whatever the order of arrival: the target's first is of after it."""
    pair = pair_of()
    a, b = pair[0], pair[1]
    stood = a.running.core.stand()
    answers = switch(pair, a)
    pair.until(lambda: b.running.core.promotion.active)
    [peer] = b.running.core.peers.dialed
    b.running._inbox.put(Arrived(peer, Method.HELLO_OK, to_json({**stood, "asked": asked})))
    pair.until(lambda: not b.running.core.promotion.active)
    assert (b.running.core.primary is not None) is serves
    if serves:
        pair.until(lambda: bool(answers), limit=0.5)
        assert answers[0]["ok"], answers
    else:
        assert "a is serving" in b.running.core.promotion.last_refusal


def test_a_hello_overtaken_by_the_handover_is_no_objection() -> None:
    pair = pair_of(3)
    a, b, c = pair.hosts
    wire = next(w for w in pair.wires if w.dialer is a and w.acceptor is b)
    pair.wires.remove(wire)
    pair.run(1.1)
    late = b"".join(a.running.take_dial_output(wire.dial_id))
    assert b'"serving":true' in late
    pair.hold(c, b)  # so that the target has not decided when it comes
    answers = switch(pair, a, "b")
    pair.until(lambda: b.running.core.promotion.active)
    pair.run(0.1)
    wire.conn.receive(late, pair.now)
    pair.until(lambda: bool(answers), limit=0.9)
    assert answers[0]["ok"], answers


def test_a_handover_during_a_promotion_of_the_target_succeeds() -> None:
    pair = pair_of(3)
    a, b, c = pair.hosts
    pair.wires.remove(next(w for w in pair.wires if w.dialer is a and w.acceptor is b))
    pair.hold(c, b)
    asked: list[dict[str, Any]] = []
    b.running.manage("promote", {}, asked.append, pair.now)
    pair.run(0.1)  # a has said that it serves, and c is waited for
    answers = switch(pair, a, "b")
    pair.until(lambda: bool(b.told(codes.HANDS_OVER)))
    pair.heal()
    pair.until(lambda: bool(answers), limit=0.9)
    assert answers[0]["ok"] and asked[0]["ok"], (answers, asked)


@pytest.mark.parametrize("sleep", [0.0, 0.2, 0.3, 0.45, 0.55, 1.0, 3.0])
def test_a_third_node_is_promoted_while_the_target_hangs(sleep: float) -> None:
    """Nobody arbitrates, and no answer of it was no objection. Both may be refused because of the other."""
    pair = pair_of(3)
    a, b, c = pair.hosts
    pair.hold(c, b)
    switch(pair, a, "b")
    pair.until(lambda: b.running.core.promotion.active)
    pair.run(0.03)
    b.frozen = True
    asked: list[dict[str, Any]] = []
    c.running.manage("promote", {}, asked.append, pair.now)
    pair.run(sleep)
    pair.heal()
    b.frozen = False
    for _ in range(400):
        pair.run(STEP)
        assert sum(host.running.core.status.serves for host in pair.hosts) < 2, (a.log, b.log, c.log)
    if not any(host.running.core.status.serves for host in pair.hosts):
        assert 0.25 <= sleep <= 0.5 and not asked[0]["ok"], (sleep, asked)
        assert pair.ask(c, "promote")["ok"]
        pair.run(2.0)
    assert sorted(host.status for host in pair.hosts) == ["active", "ready", "ready"]


def test_the_named_one_by_its_id_and_the_best_of_several() -> None:
    pair = pair_of(3)
    a, c = pair[0], pair[2]
    answers = switch(pair, a, c.running.me.node_id)
    pair.until(lambda: bool(answers))
    assert answers[0]["reason"] == f"c serves in epoch {c.running.core.epoch}"
    pair.until(lambda: {h.status for h in pair.hosts} == {"active", "ready"})
    pair.publish(c, "q", "x")
    again = switch(pair, c)
    pair.until(lambda: bool(again))
    assert again[0]["ok"]
