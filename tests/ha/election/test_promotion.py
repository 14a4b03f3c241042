"""Who may be promoted, and what becomes of who was: silence, stale primaries, cold starts, demotion."""

from __future__ import annotations

from ha.core import codes
from tests.ha.pair import Pair
from tests.simulation.harness.machines.virtual_disk import VirtualDisk


def test_silence_alone_is_no_reason_to_promote() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.separate(a, b)
    pair.run(5.0)
    answer = pair.ask(b, "promote")
    assert not answer["ok"] and "silent" in answer["reason"], answer
    assert b.status == "ready" and b.running.status()["link"] == "lost"


def test_promote_is_refused_while_the_primary_lives_and_is_success_on_it() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    answer = pair.ask(b, "promote")
    assert answer["code"] == "promote-other-serves"
    assert pair.ask(a, "promote")["ok"]


def test_a_stale_primary_steps_down_and_loses_what_it_did_alone() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "ab")
    pair.run(0.3)
    pair.separate(a, b)
    pair.run(4.0)
    position = pair.publish(a, "q", "cd")
    pair.run(0.2)
    assert pair.confirmed(a, position)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    pair.publish(b, "q", "ef")
    pair.run(0.2)
    assert {a.status, b.status} == {"active"}
    pair.heal()
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "q") == pair.contents(b, "q") == "abef"
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_a_stale_primary_serves_nobody_from_the_instant_it_learns() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    a.frozen = True
    pair.run(5.0)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    a.frozen = False
    pair.until(lambda: a.status == "joining", 3.0)
    assert not a.running.vhost.serving
    pair.until(lambda: a.status == "ready")


def test_cold_start_takes_the_later_copy_whatever_the_order() -> None:
    for first in (0, 1):
        pair = Pair()
        pair.up()
        a, b = pair.hosts
        pair.declare(a, "q")
        pair.publish(a, "q", "ab")
        pair.run(0.3)
        pair.kill(b)
        pair.run(0.1)
        pair.publish(a, "q", "cd")
        pair.run(2.3)
        pair.kill(a)
        pair.start(pair[first])
        pair.run(0.3)
        answer = pair.ask(pair[first], "promote")
        assert answer["ok"] == (first == 0), "the last record has only a, which needs nobody's answer"
        pair.start(pair[1 - first])
        pair.run(0.5)
        if first == 1:
            answer = pair.ask(b, "promote")
            assert not answer["ok"], answer
            assert pair.ask(a, "promote")["ok"]
        pair.until(lambda pair=pair: pair[1].status == "ready")
        assert pair.contents(b, "q") == "abcd"


def test_a_cold_start_names_the_latest_copy_of_several_that_are_later() -> None:
    """Whom a refusal names must not be refused in its turn: an operator goes from one to the next."""
    pair = Pair(3)
    pair.start()
    a, b, c = pair.hosts
    assert pair.ask(c, "promote", force_lossy=True)["ok"]
    pair.until(lambda: a.status == b.status == "ready")
    pair.declare(c, "q")
    position = pair.publish(c, "q", "a")
    pair.until(lambda: pair.confirmed(c, position))
    for letter, stops in (("b", b), ("c", a)):
        stops.disk_does("stop")
        pair.publish(c, "q", letter)
        pair.run(0.2)
    for host in pair.hosts:
        host.node = None
    pair.wires.clear()
    for host in pair.hosts:
        host.disk.power_loss(None)
        host.disk_does("go")
    pair.start()
    pair.run(0.5)
    for host in (a, b):
        answer = pair.ask(host, "promote")
        assert not answer["ok"] and answer["reason"].endswith("promote c"), answer
    assert pair.ask(c, "promote")["ok"]
    pair.until(lambda: a.status == b.status == "ready")
    assert pair.contents(a, "q") == pair.contents(b, "q") == "abc"


def test_cold_start_of_both_needs_all_members() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    position = pair.publish(a, "q", "ab")
    pair.until(lambda: pair.confirmed(a, position))
    for host in (a, b):
        host.node = None
    pair.wires.clear()
    for host in (a, b):
        host.disk.power_loss(None)
    pair.start(b)
    pair.run(0.3)
    answer = pair.ask(b, "promote")
    assert not answer["ok"] and "does not answer" in answer["reason"]
    pair.start(a)
    pair.run(0.3)
    answers = [pair.ask(h, "promote") for h in (b, a)]
    assert any(x["ok"] for x in answers), answers
    pair.until(lambda: sorted(h.status for h in pair.hosts) == ["active", "ready"])
    assert pair.contents(a, "q") == pair.contents(b, "q") == "ab"


def test_demotion_and_promotion_of_the_other() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "ab")
    pair.run(0.3)
    assert pair.ask(a, "demote")["ok"]
    assert a.status == "joining"
    pair.run(0.3)
    assert pair.ask(b, "promote")["ok"]
    pair.until(lambda: a.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_a_broker_of_another_cluster_is_named_as_such() -> None:
    """Given in ha.brokers by mistake: not joined, not learned from, said once, in the way of a promotion."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.kill(b)
    b.disk = VirtualDisk()
    b.log.clear()
    pair.start(b)
    b.running.core._lineage.belong("f" * 32)
    pair.run(3.0)
    assert b.status == "joining" and a.status == "active"
    told = b.told(codes.FOREIGN_CLUSTER)
    assert len(told) == 1 and "127.0.0.1:5000" in told[0]
    answer = pair.ask(b, "promote")
    assert not answer["ok"] and "127.0.0.1:5000 belongs to another cluster" in answer["reason"]
    assert "another cluster" in b.running.status()["reason"]


def test_both_nodes_name_the_primary() -> None:
    pair = Pair()
    pair.up()
    pair.run(0.5)
    assert {host.running.status()["primary"] for host in pair.hosts} == {"a at 127.0.0.1:5000"}
