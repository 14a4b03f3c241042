"""Brokers of another cluster, and those that once refused this node: neither hinders a failover."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ha.adapter import codes as adapter_codes
from ha.adapter.peering.peering import REFUSED_REDIAL
from ha.core import codes
from ha.core.election.peers import Peers
from ha.core.membership import Status
from ha.core.record.in_sync_record import Incarnation
from ha.core.role import OwnIdentity
from ha.core.wire.hello import JoinRequest
from ha.core.wire.link import VERSION
from tests.ha.pair import Pair


def test_this_nodes_own_address_is_no_stranger_after_a_refusal() -> None:
    pair = Pair()
    pair.start()
    for host in pair.hosts:
        host.running.core.dial_failed(f"127.0.0.1:{host.port}", pair.now, "403 ACCESS_REFUSED")
    pair.run(0.5)
    answer = pair.ask(pair[0], "promote")
    assert answer["ok"], answer
    pair.until(lambda: pair[1].status == "ready")
    pair.kill(pair[0])
    pair.run(0.01)
    answer = pair.ask(pair[1], "promote")
    assert answer["ok"], answer


def test_a_refusal_is_forgotten_once_the_peer_lets_this_node_in() -> None:
    """It may be stopped before it has answered a hello: that is silence, and nothing else."""
    peers = Peers(["h:1"])
    peers.failed("h:1", "403 ACCESS_REFUSED", 1.0)
    assert peers.away() == [
        "h:1 refuses this node (403 ACCESS_REFUSED; ha.username and ha.password have to be the same on all"
        " nodes)"
    ]
    peers.opened(7, "h:1")
    assert not peers.foreign_peers()
    peers.lost(7)
    assert peers.away() == ["h:1 does not answer"]


def test_a_stranger_does_not_hinder_the_promotion_of_who_is_in_the_record() -> None:
    """A wrong address in ha.brokers must not be found out by the first kill -9."""
    for serving in (False, True):
        pair = Pair(3)
        a, b, c = pair.hosts
        pair.start(a, b)
        assert pair.ask(a, "promote", force_lossy=True)["ok"]
        pair.until(lambda b=b: b.status == "ready")
        pair.start(c)
        c.running.core._lineage.belong("f" * 32)
        pair.run(0.5)
        if serving:
            assert pair.ask(c, "promote", force_lossy=True)["ok"]
        pair.declare(a, "q")
        position = pair.publish(a, "q", "ab")
        pair.until(lambda pair=pair, position=position: pair.confirmed(pair[0], position))
        pair.kill(a)
        pair.run(0.01)
        assert b.running.core.known_primary() is None, "clients are not sent to a foreign peer"
        answer = pair.ask(b, "promote")
        assert answer["ok"], answer
        assert pair.contents(b, "q") == "ab"
        assert b.running.core.cluster_id != c.running.core.cluster_id
        pair.start(a)
        pair.until(lambda a=a: a.status == "ready")


def test_what_keeps_two_nodes_apart_is_in_the_reason_until_they_meet() -> None:
    """Also of one that serves: its operator looks there first."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.kill(b)
    pair.run(3)
    a.running.peerings.due(pair.now, at_once=True)
    (dial,) = a.running.wants_dials()
    a.running.dial_failed(
        dial.dial_id, "its certificate is not accepted: it is old", pair.now, distrusted=True
    )
    a.running.end_tick(pair.now, pair.wall)
    said = f"127.0.0.1:{b.port} has no link with this node (TLS: its certificate is not accepted: it is old)"
    assert a.running.status()["reason"] == f"serving alone; confirms wait for no backup; {said}"
    why = "its certificate is not accepted: it is old"
    refused = adapter_codes.LINK_REFUSED.say(address=f"127.0.0.1:{b.port}", why=why)
    assert a.told(adapter_codes.LINK_REFUSED) == [refused.sentence]
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    pair.run(REFUSED_REDIAL)
    assert "TLS" not in a.running.status()["reason"]


def test_a_node_of_the_primarys_name_is_not_taken_in() -> None:
    """Their ledgers could not be told from each other, and a switchover could not say to whom."""
    me = OwnIdentity("n1", "a", 1, 1)
    ask = JoinRequest(Incarnation("n2", 1), "a", 2, 0, None, VERSION)
    assert ask.refusal(me, "c", Status.ACTIVE, (), epoch=1) == codes.JOIN_SAME_NAME.say(name="a")
    assert replace(ask, name="b").refusal(me, "c", Status.ACTIVE, (), epoch=1) is None
    refused = ask.refusal(me, "c", Status.ACTIVE, (), epoch=None)
    assert refused == codes.JOIN_NOT_PRIMARY.say(node="a", status="active")


@pytest.mark.parametrize("first", [0, 1])
def test_new_nodes_of_one_number_draw_others(first: int) -> None:
    """Of 65,535 numbers two nodes draw the same one now and then, and nothing is lost by another draw."""
    pair = Pair(3)
    numbers = {host.number for host in pair.hosts}
    assert len(numbers) == 3
    a, b, c = pair.hosts
    b.number = c.number = a.number
    pair.start(a, b)
    pair.until(lambda: a.told(codes.NUMBER_DRAWN) and b.told(codes.NUMBER_DRAWN))
    assert pair.ask(pair[first], "promote", force_lossy=True)["ok"]
    pair.start(c)
    pair.until(lambda: sorted(h.status for h in pair.hosts) == ["active", "ready", "ready"])
    drawn = {host.running.me.number for host in pair.hosts}
    assert len(drawn) == 3
    assert drawn == {host.running._files.identity.number for host in pair.hosts}, "durable"


def test_a_second_backup_of_the_same_name_or_number_is_not_taken_in() -> None:
    """Else at the failover: the one could no longer follow the other. Once the first is gone (a machine that
    was replaced), the second is taken in.
    """
    for same in ("name", "number"):
        pair = Pair(3)
        a, b, c = pair.hosts
        if same == "name":
            c.called = "b"
            sentence = "another backup is already called b: change broker.name of one"
        else:
            c.number = b.number
            sentence = (
                f"backup b already has the node number {b.number}: give one node an empty data directory"
            )
        pair.start(a, b)
        assert pair.ask(a, "promote", force_lossy=True)["ok"]
        pair.until(lambda b=b: b.status == "ready")
        pair.start(c)
        c.running.core._lineage._minted = True  # it has been primary elsewhere: its number stays
        pair.run(3)
        assert (b.status, c.status) == ("ready", "joining")
        assert [line for line in a.log if sentence in line] == [
            f"{c.called or 'c'} is not taken in: {sentence}"
        ]
        assert sentence in c.running.status()["reason"]
        pair.kill(b)
        pair.until(lambda c=c: c.status == "ready")


def test_a_node_that_is_not_in_its_own_list_says_so() -> None:
    """It joins; but clients, and a primary that looks for it, are not told where it is."""
    pair = Pair(3)
    a, b, c = pair.hosts
    c.settings["brokers"] = [("127.0.0.1", host.port) for host in (a, b)]
    pair.start()
    assert pair.ask(a, "promote", force_lossy=True)["ok"]
    pair.until(lambda: c.status == b.status == "ready")
    said = "no address in ha.brokers is this node's: nobody can be told where it is"
    assert [said in host.running.status()["reason"] for host in pair.hosts] == [False, False, True]
