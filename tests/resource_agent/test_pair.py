"""Two nodes: failover, handing over, the best copy, and what a promotion is refused for."""

from __future__ import annotations

import pika
import pytest

from resource_agent.control_client import ask
from tests.failover.nodes.pair import FAULTS
from tests.resource_agent.site import Node, Site


def connect(node: Node) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", node.port, socket_timeout=5, stack_timeout=10)
    )


def publish(node: Node, *bodies: bytes) -> None:
    """Confirmed, to a durable queue."""
    connection = connect(node)
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2), mandatory=True)
    connection.close()


def read(node: Node) -> list[bytes]:
    connection = connect(node)
    channel = connection.channel()
    found = []
    while (message := channel.basic_get("q", auto_ack=True))[0] is not None:
        found.append(message[2])
    connection.close()
    return found


def test_the_backup_is_promoted_when_the_primary_is_killed(site: Site) -> None:
    a, b = site.whole()
    publish(a, b"one", b"two")
    assert a.ok("monitor", 8).reason == ""
    a.kill()
    a.ok("monitor", 7)
    b.ok("notify", notify_type="pre", notify_operation="promote", notify_promote_uname="b")
    assert b.score == "500"
    b.ok("promote")
    assert read(b) == [b"one", b"two"]
    a.ok("start")
    b.until_score("1000", 8)
    a.until_score("500")


def test_the_last_copy_gets_over_a_promotion_whose_agent_has_died(site: Site) -> None:
    """It serves and the manager takes it for failed: it is demoted, not restarted, and promoted again,
    without the node that it has replaced."""
    a, b = site.whole()
    publish(a, b"one")
    a.kill()
    assert ask(b.control, "POST", "/api/promote", 20, {})[1]["ok"]
    b.ok("notify", notify_type="pre", notify_operation="demote", notify_demote_uname="b")
    b.ok("demote", notify_demote_uname="b")
    b.until_score("500")
    b.ok("promote")
    assert read(b) == [b"one"]


@pytest.mark.system
def test_a_demotion_hands_over_to_whom_the_manager_promotes(site: Site) -> None:
    site.change_lasts(10)
    a, b = site.whole()
    publish(a, b"one")
    told = {"notify_promote_uname": "b", "notify_demote_uname": "a"}
    b.ok("notify", notify_type="pre", notify_operation="demote", **told)
    a.ok("demote", **told)
    assert b.status()["status"] in ("active", "recovering"), "it serves before the manager has asked"
    b.ok("monitor", 0)
    assert b.score == "500", "a change would have Pacemaker compute its transition anew"
    assert "(ha-switchover-begins)" in a.log()
    b.ok("promote")
    b.ok("notify", notify_type="post", notify_operation="promote", **told)
    assert read(b) == [b"one"]
    a.until_score("500")
    b.until_score("1000", 8)


@pytest.mark.system
def test_scores_change_once_in_a_change_of_roles(site: Site) -> None:
    """Each change of one begins Pacemaker's transition anew: the old primary's falls at once, and whatever
    rises does so when the transition is over.
    """
    site.change_lasts(10)
    a, b = site.whole()
    before = len(a.scores), len(b.scores)
    told = {"notify_promote_uname": "b", "notify_demote_uname": "a"}
    for node in (a, b):
        node.ok("notify", notify_type="pre", notify_operation="demote", **told)
    assert a.status()["status"] in ("joining", "catch-up", "ready")
    a.ok("monitor", 8)  # as Pacemaker has it, until it has demoted it
    a.ok("demote", **told)
    a.ok("notify", notify_type="post", notify_operation="demote", **told)
    a.ok("monitor")
    b.ok("notify", notify_type="pre", notify_operation="promote", **told)
    b.ok("promote")
    b.run("monitor")
    assert (a.scores[before[0] :], b.scores[before[1] :]) == (["-INFINITY"], [])
    a.until_score("500")
    b.until_score("1000", 8)


def test_a_demotion_that_does_not_come_is_a_failure_after_a_while(site: Site) -> None:
    a, _b = site.whole()
    a.ok("notify", notify_type="pre", notify_operation="demote", notify_demote_uname="a")
    a.ok("monitor", 8)
    (a.state / "leaving").write_text("0.0")  # it counted until the machine was booted
    a.ok("monitor", 0)


def test_clients_are_told_before_their_address_goes(site: Site) -> None:
    """At the notification that comes before a demotion, and the address's removal."""
    a, b = site.whole()
    told = {"notify_promote_uname": "b", "notify_demote_uname": "a"}
    connection = connect(a)
    for node in (a, b):
        node.ok("notify", notify_type="pre", notify_operation="demote", **told)
    with pytest.raises(FAULTS, match=r"320|stops serving|closed"):
        connection.process_data_events(time_limit=10)
    assert b.status()["status"] in ("active", "recovering")
    a.ok("demote", **told)
    b.ok("promote")
    a.until_score("500")


def test_one_that_fails_over_to_nobody_just_stops_serving(site: Site) -> None:
    a, _b = site.whole()
    a.ok("demote")
    assert a.status()["status"] in ("joining", "catch-up")
    assert a.ok("monitor").reason == ""
    a.ok("promote")
    a.until_score("1000", 8)


@pytest.mark.parametrize("target", ["elsewhere", "a b"])
def test_one_that_is_to_hand_over_to_no_broker_it_knows_just_stops_serving(site: Site, target: str) -> None:
    a, b = site.whole()
    a.ok("demote", notify_promote_uname=target, notify_demote_uname="a")
    assert b.status()["status"] not in ("active", "recovering")
    assert a.status()["status"] in ("joining", "catch-up")


def test_a_promotion_is_refused_while_another_serves_and_the_reason_is_the_brokers(site: Site) -> None:
    a, b = site.whole()
    found = b.ok("promote", 1, seconds=3)
    assert "demote it first" in found.reason and found.seconds < 15
    assert a.ok("monitor", 8).code == 8
    assert b.ok("monitor").code == 0


@pytest.mark.system
def test_the_best_copy_wins_when_all_were_down(site: Site) -> None:
    """b was away while a confirmed more: it scores nothing at any time, and a promotion of it is refused."""
    a, b = site.whole()
    b.ok("stop")
    publish(a, b"later")
    a.ok("stop")
    b.ok("start")
    b.ok("monitor")
    assert b.score == "-INFINITY", "a does not answer, and may hold more"
    assert "does not answer, and may hold later messages" in b.ok("promote", 1).reason
    a.ok("start")
    a.until_score("110")
    b.ok("notify", notify_type="pre", notify_operation="promote")
    assert b.score == "-INFINITY"
    a.ok("promote")
    assert read(a) == [b"later"]


def test_a_backup_that_was_started_again_scores_once_it_has_all(site: Site) -> None:
    a, b = site.whole()
    b.kill()
    a.until_score("1000", 191)
    b.ok("start")
    assert b.score == "-INFINITY" or b.status()["promotable"]
    b.until_score("500")
    a.until_score("1000", 8)
