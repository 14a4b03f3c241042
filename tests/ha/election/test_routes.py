"""Members with an address on each of two networks: what is known of one by all its routes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from broker.model.values import Position
from ha.core import codes
from ha.core.backup.backup import Backup
from ha.core.election.peers import Peers
from ha.core.primary.primary import Primary
from ha.core.record.authority import PeerAnswer
from ha.core.wire.link import Method
from tests.ha.pair import FIRST, SECOND, Host, Pair

A, B = "10.0.0.1:1|192.168.0.1:1", "10.0.0.2:1|192.168.0.2:1"
B1, B2 = B.split("|")


def answer(node: str, incarnation: int = 1, said: int = 0) -> PeerAnswer:
    return PeerAnswer(
        node,
        node,
        incarnation,
        "ready",
        False,
        1,
        Position(1, 1),
        None,
        life=f"{node}.{incarnation}",
        said=said,
    )


def two() -> Peers:
    """This node has met itself, and the other one on both routes."""
    peers = Peers([A, B])
    peers.opened(1, "192.168.0.1:1")
    peers.met_self(1, "192.168.0.1:1")
    for peer, address in ((2, B1), (3, B2)):
        peers.opened(peer, address)
        peers.answered(address, answer("b"), None, 1.0)
    peers.heard(answer("b"), 1.0)
    return peers


def test_what_meets_itself_on_one_route_is_itself_on_all() -> None:
    peers = two()
    assert [member.is_self for member in peers.members] == [True, False]
    assert peers.own_address() == "10.0.0.1:1" and peers.several
    assert peers.away() == [] and peers.left_out() == ""


def test_a_node_is_away_when_its_last_route_is() -> None:
    peers = two()
    assert peers.lost(2) is None, "it is still there"
    peers.failed(B1, "", 2.0)
    assert peers.away() == [] and peers.troubles() == [f"{B1} does not answer"]
    assert peers.lost(3) == "b"
    assert peers.away() == [f"{B} does not answer"] and peers.troubles() == []
    peers.failed(B2, "403 ACCESS_REFUSED", 2.0)
    assert peers.away()[0].startswith(f"{B1} does not answer and {B2} refuses this node (403")
    assert peers.unanswered_since(1.5) == peers.away() and peers.unanswered_since(1.0) == []


def test_a_refusal_counts_once_each_route_has_said_so() -> None:
    peers = two()
    other = peers.at("b")
    assert other is not None
    for peer in (2, 3):
        peers.lost(peer)
    peers.failed(B1, "", 2.0, nobody=True)
    assert not other.nobody_listens and other.refused_at < 0
    peers.failed(B2, "", 2.5)
    assert not other.nobody_listens, "silence is no refusal"
    peers.failed(B2, "", 3.0, nobody=True)
    assert other.nobody_listens and other.refused_at == 2.0
    peers.opened(4, B2)
    peers.lost(4)
    assert not other.nobody_listens, "somebody listened since"


def test_a_route_on_which_that_process_was_never_met_need_not_refuse() -> None:
    peers = two()
    for peer in (2, 3):
        peers.lost(peer)
    peers.opened(4, B1)
    peers.answered(B1, answer("b", 2), None, 3.0)
    peers.lost(4)
    peers.failed(B2, "", 4.0)
    peers.failed(B1, "", 4.0, nobody=True)
    other = peers.at("b")
    assert other is not None and other.nobody_listens


def test_an_answer_on_one_route_is_enough_and_silence_on_one_is_not() -> None:
    peers = two()
    peers.ask_anew()
    peers.lost(2)
    peers.failed(B1, "", 5.0)
    assert not peers.all_heard_since(5.0), "the other route is open"
    peers.answered(B2, answer("b"), peers.question, 5.1)
    assert peers.all_heard_since(5.0) and peers.unanswered_since(5.0) == []


def test_a_restart_that_shows_on_one_route_first_is_no_copy() -> None:
    peers = two()
    again = answer("b", 2)
    assert peers.twin(again, B1) is None
    peers.answered(B1, again, None, 2.0)
    assert peers.twin(again, None) is None
    assert peers.earlier(answer("b"), B2) and not peers.earlier(again, B2)
    assert peers.twin(replace(again, life="copy"), B2) == B1


def test_what_comes_late_by_another_route_does_not_replace_what_was_said_after_it() -> None:
    peers = Peers([A, B])
    late, newest = answer("b", said=4), answer("b", said=9)
    peers.heard(newest, 1.0)
    assert peers.newest(late) is newest and peers.newest(answer("b", 2, said=1)).incarnation == 2
    assert peers.newest(answer("b")).said == 0, "of a node that numbers nothing"


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.settings["routes"] = made.routes()
    return made


def backup_of(host: Host) -> Backup:
    assert host.running.core.backup is not None
    return host.running.core.backup


def primary_of(host: Host) -> Primary:
    assert host.running.core.primary is not None
    return host.running.core.primary


def network_of(pair: Pair, host: Host) -> int:
    """Over which its link goes."""
    return next(wire.network for wire in pair.wires if wire.dial_id == backup_of(host).peer)


def asked_at(host: Host) -> int:
    (remote,) = primary_of(host).backups.values()
    return remote.asked_at


def moved(host: Host) -> list[str]:
    return host.told(codes.LINK_MOVES)


def has_moved(host: Host, times: int) -> bool:
    return len(moved(host)) == times


@pytest.mark.parametrize("authority", ["manual", "pair"])
def test_the_link_moves_when_its_network_is_cut_and_nobody_is_promoted(authority: str) -> None:
    pair = Pair(authority=authority)
    pair.settings["routes"] = pair.routes()
    a, b = pair.hosts
    if authority == "pair":
        a.settings["role"], b.settings["role"] = "primary", "backup"
        pair.start()
        pair.until(lambda: (a.status, b.status) == ("active", "ready"))
    else:
        pair.up()
    pair.until(lambda: b.status == "ready")
    pair.declare(a, "q")
    epoch = a.running.core.epoch
    for count in (1, 2, 3):
        pair.dead = {network_of(pair, b)}
        start = pair.now
        pair.until(partial(has_moved, b, count))
        assert pair.now - start < 2 * a.running.settings.heartbeat + 0.15
        pair.until(lambda: b.status == "ready" and backup_of(b).linked)
        assert pair.now - start < 2 * a.running.settings.heartbeat + 0.5
        assert a.running.core.record is not None and len(a.running.core.record.in_sync) == 1
        if b.running.core.pair is not None:
            assert b.running.core.pair.online(pair.now)
        pair.dead = set()
        pair.run(3)
    assert (a.running.core.epoch, b.status, len(moved(b))) == (epoch, "ready", 3)
    (other,) = (line for line in b.running.status()["members"] if not line["self"])
    assert sorted(other["routes"].values()) == ["link", "up"]
    (other,) = (line for line in a.running.status()["members"] if not line["self"])
    assert other["routes"] == {"127.0.0.1:5001": "up", "127.0.0.1:6001": "up"}
    assert not a.told(codes.STOPS_SERVING) and not b.told(codes.PROMOTED)


def test_a_request_that_was_held_up_does_not_end_the_link_that_came_after_it(pair: Pair) -> None:
    a, b = pair.hosts
    pair.up()
    backup = b.running.core.backup
    assert backup is not None
    first = asked_at(a)
    pair.reset(a, b)
    pair.run(1)
    assert b.status == "ready" and backup.linked
    (remote,) = primary_of(a).backups.values()
    before, peer = remote.asked_at, remote.peer
    assert before > first > 0
    request = {
        "node_id": remote.who.node_id, "name": "b", "incarnation": remote.who.number, "number": remote.number,
        "cluster_id": a.running.core.cluster_id, "version": b.running.status()["version"],
        "life": remote.life, "epoch": 0, "asked_at": first,
    }  # fmt: skip
    a.running.core.method(12345, Method.JOIN, json.dumps(request).encode(), pair.now)
    pair.run(1)
    (remote,) = primary_of(a).backups.values()
    assert remote.peer == peer and primary_of(a).in_sync_names() == ["b"]


def test_a_primary_that_dies_while_a_route_is_cut_is_not_over_by_the_refusal_of_the_other(pair: Pair) -> None:
    a, b = pair.hosts
    pair.up()
    pair.dead = {0, 1} - {network_of(pair, b)}
    pair.run(1)
    record = b.running.core.record
    pair.kill(a)
    pair.run(1)
    assert record is not None and not b.running.core.promotion.seems_over(record)
    pair.dead = set()
    pair.run(1)
    assert b.running.core.promotion.seems_over(record)


def test_another_node_on_the_second_route_is_named_and_does_not_count() -> None:
    pair = Pair(3)
    pair.settings["routes"] = pair.routes()
    a, b, c = pair.hosts
    pair.other_host[SECOND + 1] = c
    pair.start(a, b, c)
    pair.run(1)
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: b.status == c.status == "ready")
    second = f"127.0.0.1:{SECOND + 1}"
    said = codes.ROUTES_DIFFER.say(other=f"127.0.0.1:{b.port}").sentence
    pair.run(3)
    for host in (a, c):  # c finds itself there
        assert host.told(codes.ROUTES_DIFFER) == [f"{second} {said}"]
        assert f"{second} {said}" in host.running.status()["reason"]
    assert len(a.running.status()["members"]) == 3
    assert [member.node_id for member in a.running.core.peers.members][1:] == [
        b.running.me.node_id,
        c.running.me.node_id,
    ]


def test_a_backup_that_cannot_dial_hears_that_the_primary_goes_on_without_it(pair: Pair) -> None:
    """It goes on alone, and dies. Whatever the end of the link seemed to say, nobody takes over."""
    a, b = pair.hosts
    pair.settings["authority"] = "pair"
    a.settings["role"], b.settings["role"] = "primary", "backup"
    pair.start()
    pair.until(lambda: (a.status, b.status) == ("active", "ready"))
    pair.unresolved = {a.port: "why", a.port + SECOND - FIRST: "why"}
    for wire in list(pair.wires):
        if wire.dialer is b:
            pair.wires.remove(wire)
            b.running.dial_closed(wire.dial_id, True, pair.now)
            wire.conn.lost(pair.now)
    pair.run(4)
    assert b.status == "joining", "its hello has the record that excludes this node"
    pair.kill(a)
    b.running.core.admit(peer=False)  # a client's vote
    pair.run(10)
    assert b.status == "joining"
