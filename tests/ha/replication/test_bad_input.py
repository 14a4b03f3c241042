"""What a peer or an authority may send and no node survived, or believed too much of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.model.values import Position
from ha.core import codes
from ha.core.effects import ExpelPeer
from ha.core.election import peer_methods
from ha.core.record.in_sync_record import RecordVersion
from ha.core.wire.link import Ack, Method
from tests.bad_inputs.test_link import Liar, cluster, me
from tests.ha.election.test_register import registered, told
from tests.ha.pair import Host, Pair

NUMBERS = ["Infinity", "-Infinity", "NaN", "1e999", "-1", "18446744073709551616", '"x"', "null", "[]", "{}"]


def pair_up() -> Pair:
    pair = Pair()
    pair.up()
    pair.declare(pair[0], "q")
    return pair


def as_before(pair: Pair) -> None:
    a, b = pair.hosts
    pair.run(0.1)
    assert (a.running.stopped, b.running.stopped) == (None, None)
    pair.until(lambda: (a.status, b.status) == ("active", "ready"), 3.0)
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position), 1.0)


LONG = ["x" * 1000, "\U0001f407" * 1000, "\ud800", "\0" * 300]


@pytest.mark.parametrize("text", LONG, ids=["long", "wide", "surrogate", "nul"])
def test_whatever_stands_in_a_hello_no_sentence_about_it_breaks_the_node(text: str) -> None:
    pair = pair_up()
    for document in (
        me(cluster_id=cluster(pair), epoch=text),
        me(cluster_id=cluster(pair), name=text),
        me(cluster_id=text),
        me(cluster_id=text, name=text, node_id=text, serving=True, status=text, epoch=1 << 40),
    ):
        for method in (Method.HELLO, Method.JOIN):
            liar = Liar(pair, pair[0])
            liar.say(method, document)
            liar.conn.lost(pair.now)
    as_before(pair)


def test_a_primary_with_a_long_name_is_met_and_its_clients_are_told_so() -> None:
    pair = pair_up()
    a, b = pair.hosts
    liar, epoch = Liar(pair, a), a.running.core.epoch + (1 << 20)
    assert a.running.core.record is not None
    liar.say(
        Method.HELLO,
        me(cluster_id=cluster(pair), name="\U0001f407" * 1000, epoch=epoch, status="active", serving=True,
           record=a.running.core.record.as_json() | {"epoch": epoch}),
    )  # fmt: skip
    pair.run(0.1)
    assert (a.running.stopped, a.status) == (None, "joining")
    assert pair.ask(b, "promote")["ok"] or b.running.stopped is None


def spoilt(document: dict[str, Any], key: str, number: str) -> bytes:
    """The document with that text in the place of a number."""
    return json.dumps({**document, key: "@"}).replace('"@"', number).encode()


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("key", ["epoch", "seen", "incarnation", "number"])
def test_a_hello_with_a_number_that_is_none(key: str, number: str) -> None:
    pair = pair_up()
    liar = Liar(pair, pair[0])
    liar.say(Method.HELLO, spoilt(me(cluster_id=cluster(pair)), key, number))
    assert liar.closed is not None and liar.closed.by_peer
    as_before(pair)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_hello_with_a_record_or_position_that_is_none(number: str) -> None:
    pair = pair_up()
    record = dict(pair[0].running.core.record.as_json()) if pair[0].running.core.record else {}
    bad = json.loads(spoilt(record, "epoch", number))
    for spoiling in ({"record": bad}, {"position": [bad["epoch"], 0]}, {"position": [0, bad["epoch"]]}):
        liar = Liar(pair, pair[0])
        liar.say(Method.HELLO, me(cluster_id=cluster(pair), **spoiling))
        assert liar.closed is not None and liar.closed.by_peer, spoiling
    as_before(pair)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("key", ["epoch", "incarnation", "number"])
def test_a_request_to_join_with_a_number_that_is_none(key: str, number: str) -> None:
    pair = pair_up()
    liar = Liar(pair, pair[0])
    liar.say(Method.JOIN, spoilt(me(cluster_id=cluster(pair)), key, number))
    assert liar.closed is not None and liar.closed.by_peer
    as_before(pair)


def said_by_primary(pair: Pair, method: Method, payload: bytes) -> None:
    """As if it had come down b's link."""
    core = pair[1].running.core
    assert core.backup is not None and core.backup.peer is not None
    core.method(core.backup.peer, method, payload, pair.now)


@pytest.mark.parametrize("number", NUMBERS)
def test_an_exclusion_with_a_revision_that_is_none(number: str) -> None:
    pair = pair_up()
    record = pair[0].running.core.record
    assert record is not None
    spoiled = spoilt(record.as_json(), "revision", number)
    said_by_primary(pair, Method.EXCLUDED, b'{"reason": "", "record": %b}' % spoiled)
    assert pair[1].running.stopped is None
    as_before(pair) if pair[1].status == "ready" else pair.run(0.1)
    assert pair[1].running.stopped is None


@pytest.mark.parametrize("number", NUMBERS)
def test_an_authority_whose_document_has_a_number_that_is_none(number: str) -> None:
    pair = registered()
    a, b = pair.hosts
    held = pair.register.held
    assert held is not None
    pair.register.held = json.loads(spoilt(held, "epoch", number))
    pair.until(lambda: told(a, codes.AUTHORITY_UNREADABLE), 1.1)
    pair.register.held = held
    pair.run(1.0)
    assert a.status == "active" and b.status == "ready"


def test_an_ack_of_a_foreign_peer_makes_no_primary_step_down() -> None:
    pair = pair_up()
    liar = Liar(pair, pair[0])
    later = RecordVersion(pair[0].running.core.epoch + 1, 1)
    liar.say(Method.ACK, Ack(Position(1, 1), Position(1, 1), 0.0, 0, later, True).encode())
    as_before(pair)


def test_a_request_to_join_with_the_primarys_own_id_and_another_number() -> None:
    pair = pair_up()
    liar = Liar(pair, pair[0])
    liar.say(Method.JOIN, me(cluster_id=cluster(pair), node_id=pair[0].running.me.node_id))
    assert not liar.answer(Method.JOIN_OK)["ok"]
    as_before(pair)


def link_end_clean(host: Host) -> bool:
    backup = host.running.core.backup
    assert backup is not None and backup.link_end is not None
    return backup.link_end.clean


def test_a_backup_that_closes_the_link_itself_has_no_proof_of_its_end() -> None:
    pair = pair_up()
    b = pair[1]
    said_by_primary(pair, Method.DATA, b"\0\0\0\0\xff")
    assert not link_end_clean(b)
    pair.separate(pair[0], b)
    pair.run(0.1)
    answer = pair.ask(b, "promote")
    assert not answer["ok"], answer


def test_what_a_node_holds_is_not_listened_to_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_methods, "HAVE_MOST", 16 << 20)
    pair = pair_up()
    core = pair[0].running.core
    peer = 4711
    piece = b"\0" * (1 << 20)
    closed: list[ExpelPeer] = []
    for _ in range(20):
        core.method(peer, Method.HAVE, piece, pair.now)
        closed += [effect for effect in core.take_effects() if isinstance(effect, ExpelPeer)]
        pair.step()
    assert closed[0] == ExpelPeer(peer, "FRAME_ERROR - it holds more than a request to join may say")
    core.peer_lost(peer, True, pair.now)
    as_before(pair)


def test_a_backup_that_is_not_taken_in_says_so_once() -> None:
    pair = pair_up()
    a, b = pair.hosts
    pair.kill(b)
    pair.start(b)
    other = b.running.core
    other._local.record = None
    other._lineage.cluster_id = None
    object.__setattr__(other._me, "number", a.number)
    pair.run(3.0)
    assert len(b.told(codes.JOIN_REFUSED)) == 1, b.log
