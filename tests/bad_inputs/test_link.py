"""Bad input on the replication link, numbers 37-39: a peer with the right password that says wrong things.

`Liar` logs in as `ha` at the serving node of a real pair, and speaks the link by hand. Whatever it says, the
pair stays as it was, and confirms go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from broker.amqp091.client import ClientConnection, Closed, ExtensionReceived, Opened
from broker.amqp091.server.handshake import PEER_CAPABILITY
from broker.model.values import ORIGIN, Position
from broker.peer import Peer
from ha.core.mirror.wire import MirrorMethod
from ha.core.record.in_sync_record import RecordVersion
from ha.core.wire.link import VERSION, Ack, Method, batch_frame
from tests.ha.pair import Host, Pair

OTHER_CLUSTER = "f" * 32


class Liar:
    """A peer of its own making, logged in as `ha` or as another user."""

    def __init__(
        self, pair: Pair, host: Host, user: str = "ha", password: str = "ha", vhost: str = "/",
        claim: str = PEER_CAPABILITY,
    ) -> None:  # fmt: skip
        self.pair = pair
        claims = {claim: True} if claim else {}
        self.client = ClientConnection(
            user, password, pair.now, vhost=vhost, capabilities=claims, heartbeat=0
        )
        self.conn = host.running.accept(Peer("127.0.0.1", 9, loopback=True), pair.now)
        self.seen: list[Any] = []
        self.move()
        opened = self.seen.pop(0)
        assert isinstance(opened, Opened), opened

    def move(self) -> None:
        for _ in range(10):
            self.conn.receive(b"".join(self.client.take_output()), self.pair.now)
            self.pair.run(0.01)
            self.client.receive(b"".join(self.conn.take_output()), self.pair.now)
            self.seen += self.client.events()

    def say(self, method: int, payload: bytes | dict[str, Any]) -> None:
        raw = json.dumps(payload).encode() if isinstance(payload, dict) else payload
        self.client.send_extension(method, raw)
        self.move()

    def answer(self, method: Method) -> dict[str, Any]:
        found = [e for e in self.seen if isinstance(e, ExtensionReceived) and e.method_id == method]
        assert found, self.seen
        answer: dict[str, Any] = json.loads(found[-1].payload)
        return answer

    @property
    def closed(self) -> Closed | None:
        return next((e for e in self.seen if isinstance(e, Closed)), None)


def me(**but: Any) -> dict[str, Any]:
    """What a stranger would say of itself."""
    return {
        "node_id": "e" * 32, "name": "liar", "incarnation": 1, "number": 77, "cluster_id": None, "epoch": 0,
        "seen": 0, "status": "joining", "serving": False, "position": [0, 0], "incomplete": False,
        "version": VERSION, "record": None, **but,
    }  # fmt: skip


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "ab")
    pair.run(0.3)
    before = a.running.status()
    yield pair
    after = a.running.status()
    assert {k: after[k] for k in ("status", "epoch", "cluster_id")} == {
        k: before[k] for k in ("status", "epoch", "cluster_id")
    }
    assert (a.status, b.status) == ("active", "ready")
    position = pair.publish(a, "q", "c")
    pair.until(lambda: pair.confirmed(a, position), 1.0)
    assert pair.contents(a, "q") == pair.contents(b, "q") == "abc"


def cluster(pair: Pair) -> str:
    return str(pair[0].running.status()["cluster_id"])


def test_37_a_peer_that_claims_to_serve_in_a_stale_epoch_changes_nothing(pair: Pair) -> None:
    liar = Liar(pair, pair[0])
    liar.say(Method.HELLO, me(cluster_id=cluster(pair), epoch=1, status="active", serving=True))
    assert liar.answer(Method.HELLO_OK)["epoch"] == pair[0].running.status()["epoch"]


def test_37_acks_of_a_stale_epoch_count_for_nothing(pair: Pair) -> None:
    liar = Liar(pair, pair[0])
    liar.say(Method.HELLO, me(cluster_id=cluster(pair)))
    liar.say(Method.JOIN, me(cluster_id=cluster(pair)))
    assert liar.answer(Method.JOIN_OK)["ok"]
    stale = Position(1, 2**40)
    liar.say(Method.ACK, Ack(stale, stale, pair.now, 0, RecordVersion(1, 1), True).encode())
    members = {m["name"]: m for m in pair[0].running.status()["members"]}
    liar.conn.lost(pair.now)
    assert not members["liar"]["in_sync"] and members["liar"]["applied"] == [0, 0]


def test_38_an_ack_of_what_was_never_sent_costs_the_link(pair: Pair) -> None:
    liar = Liar(pair, pair[0])
    liar.say(Method.JOIN, me(cluster_id=cluster(pair)))
    liar.say(Method.ACK, Ack(ORIGIN, ORIGIN, pair.now, 2**50, RecordVersion(0, 0), True).encode())
    assert liar.closed is not None and liar.closed.by_peer


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"\xff" * 100, b"[" * 100_000])
def test_38_a_hello_that_cannot_be_read_costs_the_link(pair: Pair, payload: bytes) -> None:
    liar = Liar(pair, pair[0])
    liar.say(Method.HELLO, payload)
    assert liar.closed is not None and liar.closed.by_peer


@pytest.mark.parametrize(
    ("method", "payload", "told"),
    [
        (Method.HELLO, b"{", "a hello is not JSON"),
        (Method.HELLO, b"[]", "a hello is not a JSON object"),
        (Method.HELLO, b"{}", "a hello that cannot be read: KeyError('position')"),
        (Method.HELLO_OK, b"", "an answer to a hello is not JSON"),
        (Method.JOIN, b"\xff", "a join request is not JSON"),
        (Method.ACK, b"short", "an ack of 5 bytes"),
        (99, b"", "unknown link method 99"),
        (MirrorMethod.ASK, b"{", "a question for a queue is not JSON"),
        (MirrorMethod.GO, b"", "a queue is wanted by who may not want it"),
    ],
)
def test_38_what_cannot_be_read_is_one_line_of_who_and_what(
    pair: Pair, method: int, payload: bytes, told: str
) -> None:
    liar = Liar(pair, pair[0])
    before = len(pair[0].log)
    for _ in range(2):
        liar.client.send_extension(method, payload)
    liar.move()
    lines = pair[0].log[before:]
    assert lines == [f"connection 127.0.0.1:9: closed with 501 FRAME_ERROR - {told}"]
    assert liar.closed is not None
    assert liar.closed.code == 501


@pytest.mark.parametrize("step", [0, 2], ids=["replayed", "skipped"])
def test_38_a_batch_that_does_not_follow_the_one_before_costs_the_link(pair: Pair, step: int) -> None:
    core = pair[1].running.core
    assert core.backup is not None and core.backup.peer is not None
    position = pair[0].running.vhost.history.position
    parts = batch_frame(Position(position.epoch, position.n + step), pair.wall, pair.now, [])
    core.method(core.backup.peer, Method.DATA, b"".join(parts), pair.now)
    pair.run(0.01)
    assert any("where" in line and "was due" in line for line in pair[1].log)
    pair.until(lambda: sum(line.startswith("ready: holds") for line in pair[1].log) == 2, 3.0)


def test_39_another_clusters_peer_is_not_taken_in(pair: Pair) -> None:
    liar = Liar(pair, pair[0])
    liar.say(Method.JOIN, me(cluster_id=OTHER_CLUSTER, epoch=2**40))
    answer = liar.answer(Method.JOIN_OK)
    assert not answer["ok"] and OTHER_CLUSTER in answer["reason"]
    assert any("liar is not taken in" in sentence for sentence in pair[0].log)


def test_39_another_clusters_higher_epoch_makes_nobody_step_down(pair: Pair) -> None:
    liar = Liar(pair, pair[0])
    liar.say(
        Method.HELLO, me(cluster_id=OTHER_CLUSTER, epoch=2**40, seen=2**40, status="active", serving=True)
    )


def test_39_the_nodes_own_id_is_not_taken_in(pair: Pair) -> None:
    node = pair[0].running
    liar = Liar(pair, pair[0])
    own = {"node_id": node.me.node_id, "number": node.me.number, "cluster_id": cluster(pair)}
    liar.say(Method.HELLO, me(**own))
    liar.say(Method.JOIN, me(**own))
    answer = liar.answer(Method.JOIN_OK)
    assert not answer["ok"] and answer["reason"]
