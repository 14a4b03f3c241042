"""The checkers of rules, of dead letters and of internal exchanges object to what they are there for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.checker_tests.checked import TOPOLOGY, Pair, violates
from tests.simulation.clients.rule_plan import RulePlan, StepPlan
from tests.simulation.clients.rule_user import RuleUser, number_of
from tests.simulation.clients.topology import BindingPlan, ExchangePlan
from tests.simulation.harness.inspection import content_of, held, queue_of, vhost_of
from tests.simulation.harness.plan import TrespasserPlan

RULES = RulePlan(
    "r1", durable=True, message_ttl=None, expiration=None, max_length=None, overflow="", dead_letters=False,
    max_priority=0, persistent=1.0, interval=0.01, burst=4, gets=0.0, rejects=0.0,
)  # fmt: skip
BRIEF = StepPlan(message_ttl=20, max_length=None, max_length_bytes=None, overflow="")
FULL = StepPlan(message_ttl=None, max_length=2, max_length_bytes=None, overflow="reject-publish-dlx")
INTERNAL = replace(
    TOPOLOGY,
    exchanges=(*TOPOLOGY.exchanges, ExchangePlan("x.inner", "fanout", True, internal=True)),
    bindings=(*TOPOLOGY.bindings, BindingPlan("amq.fanout", "x.inner", "", to_exchange=True)),
)


class Ruled(Pair):
    """A pair at rest, after a second in which one client has used its queues."""

    def __init__(self, **rules: Any) -> None:
        super().__init__(count=1, rules=(replace(RULES, **rules),))
        self.user: RuleUser = self.world.rule_users[0]
        self.run(1.0)
        self.user.finishing = True
        self.run(0.5)
        assert self.user.finished
        self.user.stop()
        self.run(1.0)
        self.look()

    def look(self) -> None:
        self.checkers.rules.quiet(self.a, self.clock.now)

    def raws(self, queue: str) -> list[bytes]:
        return [raw for _, _, raw in held(self.a, queue)]

    def looks_at(self, queue: str, raw: bytes) -> None:
        message = self.user.messages[number_of(raw)]
        self.checkers.rules.deaths.look(self.user, message, queue, raw)


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_18_octets_are_those_of_bodies(overflow: str) -> None:
    pair = Ruled(max_length_bytes=200, overflow=overflow, body=60, frame=40)
    octets = sum(len(content_of(raw)[2]) for raw in pair.raws("r-r1"))
    assert 0 < octets <= 200
    pair.user.plan = replace(pair.user.plan, max_length_bytes=octets - 1)
    with violates(18):
        pair.look()


def test_18_a_queue_that_refuses_may_be_longer_after_a_promotion_and_takes_nothing() -> None:
    """Found by the simulation (120014166): the backup had heard of what came in the place of what had
    expired, and not yet of that.
    """
    pair = Ruled(max_length=3, overflow="reject-publish")
    queue = queue_of(pair.a, "r-r1")
    assert queue is not None and len(queue.ready) == 3
    pair.user.plan = replace(pair.user.plan, max_length=2)
    with violates(18):
        pair.look()
    for _, envelope, _ in queue.ready:
        envelope.epoch = 1
    pair.look()


def test_18_only_a_full_queue_refuses() -> None:
    pair = Ruled(max_length_bytes=200, overflow="reject-publish", body=60)
    refused = next(message for message in pair.user.messages.values() if message.refused)
    pair.user.on_refused(refused)
    pair.user.plan = replace(pair.user.plan, max_length_bytes=1 << 20)
    with violates(18):
        pair.user.on_refused(refused)


def test_1_a_limit_that_was_never_reached_has_removed_nothing() -> None:
    pair = Ruled(max_length_bytes=200, body=60)
    pair.user.plan = replace(pair.user.plan, max_length_bytes=1 << 20)
    with violates(1):
        pair.look()


def test_18_a_body_is_what_was_published() -> None:
    pair = Ruled(max_length_bytes=200, body=60)
    raw = pair.raws("r-r1")[0]
    pair.looks_at("r-r1", raw)
    with violates(18):
        pair.looks_at("r-r1", raw.replace(b">.", b">,"))


def test_18_a_chain_tells_its_way() -> None:
    pair = Ruled(max_length=0, dead_letters=True, through=True, steps=(BRIEF, FULL), expiration=500)
    full, dead = pair.raws("e2-r1"), pair.raws("d-r1")
    assert len(full) == 2 and dead
    for raw in full:
        assert [(d["queue"], d["reason"]) for d in content_of(raw)[0]["x-death"]] == [
            ("e1-r1", "expired"), ("r-r1", "maxlen"),
        ]  # fmt: skip
        with violates(18):
            pair.looks_at("d-r1", raw)
        with violates(18):
            pair.looks_at("r-r1", raw)
        with violates(18):
            pair.looks_at("e2-r1", raw.replace(b"expired", b"rejects"))
        with violates(18):
            pair.looks_at("e2-r1", raw.replace(b"x-r1", b"x-r2"))
        first = b"x-first-death-queueS\0\0\0\4"
        with violates(18):
            pair.looks_at("e2-r1", raw.replace(first + b"r", first + b"s"))


def test_1_a_message_does_not_get_lost_in_a_chain() -> None:
    pair = Ruled(max_length=0, dead_letters=True, steps=(BRIEF,))
    queue = queue_of(pair.a, "d-r1")
    assert queue is not None
    queue.ready.popleft()
    with violates(1):
        pair.look()


def test_18_a_queue_of_a_chain_keeps_its_own_rules() -> None:
    pair = Ruled(max_length=0, dead_letters=True, steps=(FULL,))
    plan = pair.user.plan
    pair.user.plan = replace(plan, steps=(replace(FULL, max_length=1),))
    with violates(18):
        pair.look()
    pair.user.plan = replace(plan, steps=(replace(FULL, message_ttl=1),))
    with violates(18):
        pair.look()


def on_the_way(**rules: Any) -> Pair:
    """A client's messages of ten seconds are a second old at most."""
    pair = Pair(count=1, rules=(replace(RULES, **rules),))
    pair.run(1.0)
    assert len(held(pair.a, "r-r1")) > 1
    return pair


def put_on(pair: Pair, seconds: float) -> None:
    """The clock that messages are dated by."""
    node = pair.a.running
    node.broker.go_on_from(node.now, node.broker.wall_at(node.now) + seconds * 1000)


@pytest.mark.parametrize("dead_letters", [True, False])
def test_18_no_message_expires_before_its_time(dead_letters: bool) -> None:
    pair = on_the_way(dead_letters=dead_letters, message_ttl=10_000)
    put_on(pair, 1.0)
    pair.run(1.0)
    put_on(pair, 10.0)
    with violates(18, "expires in r-r1 [78].*before its time"):
        pair.run(1.0)


def test_18_the_time_of_a_message_goes_on_while_its_node_is_stopped() -> None:
    """Found by the simulation (7026): a message was taken just before a stop, and recorded after it."""
    pair = on_the_way(dead_letters=True, message_ttl=3000)
    before = len(held(pair.a, "r-r1"))
    while len(held(pair.a, "r-r1")) <= before:
        pair.run(0.0001)
    pair.a.pause()
    pair.run(1.0)
    pair.a.resume()
    checked = pair.checkers.expiry.checked
    pair.run(3.0)
    assert pair.checkers.expiry.checked > checked + before


def test_18_an_expired_message_leaves_no_queue_of_a_chain_early() -> None:
    slow = replace(BRIEF, message_ttl=10_000)
    pair = on_the_way(max_length=2, dead_letters=True, steps=(slow,))
    put_on(pair, 10.0)
    with violates(18, "expires in e1-r1 .*before its time"):
        pair.run(1.0)


def test_18_a_node_without_a_primary_to_follow_goes_by_its_own_clock() -> None:
    pair = on_the_way(message_ttl=10_000)
    since, dating = pair.clock.now, pair.checkers.dating
    for machine in (pair.a, pair.b):
        dating.promoted(machine, since)
        assert dating.kept(since - 1.0)
    before = dating.off(since, since)
    assert dating.off(since + 0.1, since + 0.1) < before < 1.0 and dating.off(since, since + 1.0) > before
    pair.b.life += 1
    dating.promoted(pair.b, since)
    assert not dating.kept(since - 1.0) and dating.kept(since + 0.1)
    put_on(pair, 3600.0)
    pair.run(1.0)


def test_18_what_another_clock_keeps_alive_keeps_those_behind_it() -> None:
    """Found by the simulation (153): after a cold start whose node's clock was a day behind."""
    pair = Ruled(message_ttl=None)
    pair.user.plan = replace(pair.user.plan, message_ttl=100)
    with violates(18, "is in r-r1, and its time is over"):
        pair.look()
    pair.checkers.dating._anew = pair.user.messages[1].sent[0]
    pair.look()


def test_18_what_is_over_is_not_delivered() -> None:
    pair = Ruled(message_ttl=100)
    number, message = next(iter(pair.user.messages.items()))
    pair.user.on_got(message, message.sent[-1])
    with violates(18, f"r1:{number} is delivered"):
        pair.user.on_got(message, message.sent[-1] + 1.0)


def test_18_only_what_is_rejected_goes_round() -> None:
    pair = Ruled(dead_letters=True, steps=(BRIEF,), cycle=True, gets=1.0, rejects=1.0)
    assert not pair.raws("d-r1")
    back = [raw for raw in pair.raws("r-r1") if content_of(raw)[0]]
    counts = [death["count"] for raw in back for death in content_of(raw)[0]["x-death"]]
    assert max(counts) > 1
    pair.user.messages[number_of(back[0])].rejections -= 1
    with violates(18):
        pair.look()
    with violates(18):
        pair.looks_at("r-r1", back[0].replace(b"rejected", b"expired_"))


def test_6_an_internal_exchange_is_closed_to_clients() -> None:
    trespasser = TrespasserPlan("i-x.inner", "x.inner", 0.02)
    pair = Pair(count=1, topology=INTERNAL, trespassers=(trespasser,))
    pair.run(1.0)
    assert pair.journal.trespasses > 1
    checker, promotion = pair.checkers.definitions, pair.checkers.records.promotions[-1]
    checker.promoted(promotion, cold=False)
    vhost_of(pair.a).exchanges["x.inner"].internal = False
    with violates(6):
        checker.promoted(promotion, cold=False)
    with violates(6):
        pair.run(1.0)


def test_18_in_a_cycle_what_is_pushed_on_last_may_have_been_rejected_and_goes_round_once_more() -> None:
    """Found by the simulation (116004169): the last to expire came to a full queue behind, and what it pushed
    out of that came back to the first queue, to expire there.
    """
    plan = replace(RULES, message_ttl=1000, expiration=None, steps=(BRIEF, FULL))
    assert plan.longest_time == 1020
    assert replace(plan, cycle=True).longest_time == 2 * 1020
