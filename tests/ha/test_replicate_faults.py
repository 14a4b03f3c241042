"""What goes wrong on a queue's way to a broker of no cluster: cuts anywhere, slow followers, wrong words."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from broker.model.record_codec import encode_record
from broker.model.records import EnqueueRun, Envelope, QueueDeclare
from broker.model.replication_id_set import ReplicationIdSet
from ha.adapter.copy_vhost import CopyVhost
from ha.core import queue_feed
from ha.core.copy_link import Answer, CopyFrame, CopyMethod, Question
from ha.core.errors import LinkError
from ha.core.link import frame
from ha.core.queue_copy import QueueCopy
from ha.core.queue_snapshot import encode_piece
from tests.bad_inputs.test_link import Liar
from tests.ha.copies import Copies, following
from tests.ha.pair import raw


def in_order(copies: Copies) -> str:
    """What the follower holds; its ids ascend, and none is there twice."""
    entries = copies.b.running.vhost.queues["q"].held_entries()
    ids = [(envelope.epoch, seq) for seq, envelope, _ in entries]
    assert ids == sorted(set(ids))
    return copies.contents(copies.b, "q")


def test_a_link_cut_at_any_byte_leaves_a_part_in_order_and_the_rest_comes() -> None:
    copies = following(texts="")
    a, b = copies.hosts
    cuts = 0
    for passing in range(400, 2000, 5):  # before that it is not logged in
        copies.separate(a, b, reset=True)
        copies.until(lambda: copies.line["state"] == "connecting")
        copies.consume(a, "q", 1)
        copies.publish(a, "q", "abc")
        queue = a.running.vhost.queues["q"]
        taken = [queue.pop(no_ack=False) for _ in range(3)][1]
        assert taken is not None
        queue.acknowledge([taken])
        if queue.message_count > 8:
            queue.purge()
        copies.heal()
        copies.link_ends["a", "b"] = passing
        copies.until(lambda: bool(copies.cut) or copies.line["state"] == "following")
        if not copies.cut:
            del copies.link_ends["a", "b"]
            break
        cuts += 1
        held = in_order(copies)
        if passing % 7 == 0:
            copies.kill(b, keep=passing % 2 == 0)
            copies.start(b)
            assert passing % 2 or in_order(copies) == held
        copies.heal()
        copies.follows(a)
    assert cuts > 50, cuts
    copies.follows(a)


def test_the_live_stream_cut_at_any_byte() -> None:
    copies = following(texts="abcd")
    a = copies[0]
    for passing in range(1, 200):
        copies.link_ends["a", "b"] = passing
        copies.consume(a, "q", 1)
        copies.publish(a, "q", "x")
        copies.run(0.05)
        copies.link_ends.pop(("a", "b"), None)
        in_order(copies)
        copies.heal()
        copies.follows(a)


def test_a_frozen_follower_holds_no_confirm_and_no_more_than_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_feed, "WINDOW", 500)
    copies = following()
    a, b = copies.hosts
    b.frozen = True
    for _ in range(50):
        position = copies.publish(a, "q", "abcdefghij")
        copies.run(0.02)
        assert copies.confirmed(a, position)
    [feed] = a.running.replications.feeds.feeds.values()
    assert feed.sent - feed.received < 1500
    assert a.running.next_deadline() != a.running.now, "it does not spin"
    copies.consume(a, "q", 100)
    b.frozen = False
    copies.follows(a)


def test_a_follower_for_which_too_much_has_left_compares_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_feed, "WINDOW", 500)
    monkeypatch.setattr(queue_feed, "MOST_RANGES", 5)
    copies = following(texts="abcdefghijklmnopqrstuvwxyz")
    a, b = copies.hosts
    b.frozen = True
    for _ in range(10):
        copies.publish(a, "q", "0123456789")
        copies.run(0.02)
    queue = a.running.vhost.queues["q"]
    entries = [entry for entry in (queue.pop(no_ack=False) for _ in range(26)) if entry is not None]
    queue.acknowledge(entries[::2])
    copies.run(0.1)
    assert a.running.status()["followers"] == []
    b.frozen = False
    copies.until(lambda: "too far behind" in copies.line["error"])
    copies.follows(a)


def test_a_follower_that_can_take_no_more_stops_the_stream_and_not_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_feed, "WINDOW", 500)
    copies = following()
    a, b = copies.hosts
    b.running.broker.disk.raised = True
    for _ in range(30):
        copies.publish(a, "q", "abcdefghij")
        copies.run(0.02)
    assert b.running.vhost.queues["q"].total_count < 60
    b.running.broker.disk.raised = False
    copies.follows(a)


# -- what is refused


def refused(copies: Copies, **more: Any) -> str:
    asked = {"source": copies.addresses, "queue": "q"} | more
    answer = copies.ask(copies.b, "replicate", 20.0, **asked)
    assert not answer["ok"], answer
    assert "\n" not in answer["reason"]
    assert copies.b.running.dials.addresses == []
    return str(answer["reason"])


def test_what_makes_no_sense_is_refused_with_a_sentence_and_nothing_is_left() -> None:
    copies = Copies(3)
    copies.begin()
    b = copies.b
    copies[0].running.vhost.declare_queue("mine", owner=copies, exclusive=True)
    assert "it has no queue 'nope'" in refused(copies, queue="nope")
    assert "exclusive to a connection" in refused(copies, queue="mine")
    assert "it does not serve (ready); a at 127.0.0.1:5000 does" in refused(copies, source=["127.0.0.1:5001"])
    assert "it is this very broker" in refused(copies, source=[f"127.0.0.1:{b.port}"])
    assert "a queue's name has" in refused(copies, queue="")
    assert "reserved prefix" in refused(copies, name="amq.x")
    for wrong in (
        [],
        ["x"],
        ["h:0"],
        ["h:99999"],
        "h:1",
        ["h:1", "h:1"],
        None,
        [f"h:{n}" for n in range(1, 99)],
    ):
        assert "addresses HOST:PORT" in refused(copies, source=wrong)
    copies.declare(b, "q")
    assert "there is a queue 'q' here already" in refused(copies)
    assert list(b.running.vhost.queues) == ["q"]
    answer = copies.ask(copies[0], "replicate", source=["127.0.0.1:5002"], queue="q", name="z")
    assert answer["reason"] == "a belongs to a pair; only a broker of its own follows another's queue"
    answer = copies.ask(b, "replicate-stop", name="q")
    assert answer["reason"] == "there is no queue 'q' that follows another broker's"


def test_nobody_there_or_a_wrong_password() -> None:
    copies = Copies()
    copies.begin()
    copies.kill(copies[0])
    assert refused(copies) == "127.0.0.1:5000: nobody answers there"
    copies.start(copies[0])
    copies.kill(copies.b)
    copies.b.settings["password"] = "wrong"
    copies.start(copies.b)
    assert "403 ACCESS_REFUSED" in refused(copies)
    assert not any("wrong" in line for line in copies.b.log)


def test_a_silent_source_is_given_up_by_who_asked() -> None:
    copies = Copies()
    copies.begin()
    copies[0].frozen = True
    assert "nobody answers there" in refused(copies)


ASKED = Question("q", "", "n" * 32, "x", "").encode()


@pytest.mark.parametrize(
    "words",
    [
        [(CopyMethod.GO, b"u" * 16)],
        [(CopyMethod.ASK, ASKED), (CopyMethod.GO, b"short")],
        [(CopyMethod.ASK, ASKED), (CopyMethod.HAVE, b"\0\0\0\1"), (CopyMethod.GO, b"u" * 16)],
        [(CopyMethod.ASK, ASKED), (CopyMethod.HAVE, bytes(5)), (CopyMethod.GO, b"u" * 16)],
        [(CopyMethod.ASK, b"{}")],
        [(CopyMethod.ASK, b"\xff")],
        [(CopyMethod.ASK, json.dumps({"queue": 1}).encode())],
        [(CopyMethod.DATA, b"")],
        [(CopyMethod.ANSWER, b"")],
    ],
)
def test_who_says_what_a_follower_may_not_is_closed_and_nobody_else(
    words: list[tuple[CopyMethod, bytes]],
) -> None:
    copies = following()
    liar = Liar(copies, copies[0])
    for method, payload in words:
        liar.client.send_extension(method, payload)
    liar.move()
    assert liar.closed is not None and liar.closed.code == 501
    copies.publish(copies[0], "q", "d")
    copies.follows(copies[0])


def test_a_follower_that_acknowledges_what_was_not_sent_is_closed() -> None:
    copies = following()
    liar = Liar(copies, copies[0])
    uuid = copies[0].running.vhost.queues["q"].uuid
    for method, payload in (
        (CopyMethod.ASK, ASKED), (CopyMethod.HAVE, bytes(4)), (CopyMethod.GO, uuid),
        (CopyMethod.ACK, (1 << 40).to_bytes(8, "big")),
    ):  # fmt: skip
        liar.client.send_extension(method, payload)
    liar.move()
    assert liar.closed is not None
    assert [line["follower"] for line in copies[0].running.status()["followers"]] == ["b"]


def test_a_source_that_was_deleted_between_the_answer_and_the_beginning() -> None:
    copies = following()
    liar = Liar(copies, copies[0])
    for method, payload in ((CopyMethod.ASK, ASKED), (CopyMethod.HAVE, bytes(4)), (CopyMethod.GO, b"u" * 16)):
        liar.client.send_extension(method, payload)
    liar.move()
    assert liar.closed is None
    ended = [event for event in liar.seen if getattr(event, "method_id", 0) == CopyMethod.ENDED]
    assert json.loads(ended[0].payload) == {"gone": True, "reason": "the queue is deleted"}


# -- a source that says what cannot be

UUID = b"u" * 16


def piece(epoch: int, first: int, texts: str, queue: bytes = UUID) -> bytes:
    envelope = Envelope(epoch, "", "q", persistent=True, wall_ms=1, channel=1, largest_frame=30)
    return encode_record(EnqueueRun([queue], [first], envelope, [raw(text) for text in texts]))


def model() -> tuple[Copies, CopyVhost]:
    copies = Copies()
    copies.start()
    copies.run(0.1)
    made = CopyVhost(copies.b.running.vhost, "q", ("far:1",), "q")
    made.declare(UUID, encode_record(QueueDeclare(UUID, "q", True, False, False)))
    ids = {90: ReplicationIdSet([(1, 3)])}
    made.take_piece((0, -1), (90, 3), ids, piece(90, 1, "abc"))
    return copies, made


@pytest.mark.parametrize(
    ("payload", "ids"),
    [
        (piece(90, 4, "d"), {}),
        (piece(90, 4, "de"), {90: ReplicationIdSet([(4, 4)])}),
        (piece(90, 4, "d", b"x" * 16), {90: ReplicationIdSet([(4, 4)])}),
        (piece(90, 4, ""), {90: ReplicationIdSet([(4, 4)])}),
        (piece(90, 3, "c"), {90: ReplicationIdSet([(3, 3)])}),
        (piece(90, 4, "d")[:-1], {90: ReplicationIdSet([(4, 4)])}),
        (encode_record(QueueDeclare(UUID, "q", True, False, False)), {}),
    ],
)
def test_pieces_that_cannot_be_right_change_nothing(payload: bytes, ids: Any) -> None:
    copies, made = model()
    with pytest.raises(LinkError):
        made.take_piece((90, 2) if 90 in ids and 3 in ids[90] else (90, 3), (90, 9), ids, payload)
    assert in_order(copies) == "abc"
    with pytest.raises(LinkError):
        made.leave(payload)
    with pytest.raises(LinkError):
        made.declare(b"y" * 16, payload)


def test_messages_of_an_epoch_that_was_passed_make_it_begin_anew() -> None:
    copies, made = model()
    with pytest.raises(LinkError, match="anew: epoch 80 after epoch 90"):
        made.take_piece((0, -1), (80, 3), {80: ReplicationIdSet([(1, 1)])}, piece(80, 1, "z"))
    assert made.held() == {}
    made.take_piece((0, -1), (80, 3), {80: ReplicationIdSet([(1, 1)])}, piece(80, 1, "z"))
    made.take_piece((80, 3), (90, 3), {90: ReplicationIdSet([(1, 3)])}, piece(90, 1, "abc"))
    assert in_order(copies) == "zabc"
    copies.run(0.1)
    copies.kill(copies.b)
    copies.start(copies.b)
    assert in_order(copies) == "zabc"


class Deaf:
    """Connections on which nobody listens; what was closed is told."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def send(self, peer: int, method: int, payload: bytes) -> None:
        return None

    def send_pieces(self, peer: int, method: int, parts: list[bytes]) -> None:
        return None

    def close(self, peer: int, code: int, text: str) -> None:
        self.closed.append(text)


def stream(copies: Copies, made: CopyVhost, *parts: list[bytes]) -> Deaf:
    """A copy that holds 1 to 3 of epoch 90 gets these frames."""
    wire = Deaf()
    copy = QueueCopy("q", made, wire, node_id="b", name="b", cluster_id="")
    copy.opened(1, "far:1", 0.0)
    copy.method(1, CopyMethod.ANSWER, Answer(True, "", "far", 90, UUID.hex()).encode(), 0.0)
    for part in parts:
        copy.method(1, CopyMethod.DATA, b"".join(part), 0.0)
    return wire


def test_what_the_source_has_never_had_goes_when_all_of_it_is_told() -> None:
    copies, made = model()
    two = encode_piece((90, 2), {90: ReplicationIdSet([(1, 2)])})
    wire = stream(copies, made, frame(CopyFrame.PIECE, [two]))
    assert in_order(copies) == "abc"
    wire = stream(copies, made, frame(CopyFrame.PIECE, [two]), frame(CopyFrame.WHOLE, []))
    assert not wire.closed
    assert in_order(copies) == "ab"


@pytest.mark.parametrize(("upto", "first", "last"), [((90, 2), 1, 3), ((90, 0), 1, 1), ((89, 9), 1, 1)])
def test_a_piece_with_ids_beyond_its_end_is_refused(upto: tuple[int, int], first: int, last: int) -> None:
    copies, made = model()
    body = encode_piece(upto, {90: ReplicationIdSet([(first, last)])})
    assert "a piece up to" in stream(copies, made, frame(CopyFrame.PIECE, [body])).closed[0]
    assert in_order(copies) == "abc"


def test_a_piece_that_does_not_follow_is_refused() -> None:
    copies, made = model()
    body = encode_piece((90, 3), {90: ReplicationIdSet([(1, 3)])})
    part = frame(CopyFrame.PIECE, [body])
    assert "a piece up to" in stream(copies, made, part, part).closed[0]


def test_a_source_that_sends_what_cannot_be_read_loses_its_connection_and_is_asked_again() -> None:
    copies = following()
    a = copies[0]
    [feed] = a.running.replications.feeds.feeds.values()
    a.running.replications.send(feed.peer, CopyMethod.DATA, b"\0\0\0\0\xee")
    copies.until(lambda: copies.line["state"] == "connecting")
    assert "unknown link frame type 238" in copies.line["error"]
    copies.publish(a, "q", "d")
    copies.follows(a)


# -- anything, in any order


class Fate:
    """One seed: a pair that is written to, read from, cut, killed and promoted, and a follower that is cut
    and killed too. What that holds is in order and without a double at every step, and in the end all of it.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.copies = following(3, texts="")
        self.primary = self.copies[0]
        self.held: list[Any] = []

    def step(self) -> None:
        copies, chance, primary = self.copies, self.random, self.primary
        what = chance.choices(
            [
                "publish",
                "transient",
                "take",
                "ack",
                "requeue",
                "purge",
                "cut",
                "freeze",
                "restart",
                "fail",
                "run",
            ],
            [9, 3, 6, 5, 3, 1, 3, 1, 1, 1, 6],
        )[0]
        queue = primary.running.vhost.queues["q"]
        match what:
            case "publish" | "transient":
                texts = "".join(chance.choices("abcdefghij", k=chance.randint(1, 30)))
                copies.publish(primary, "q", texts, persistent=what == "publish")
            case "take":
                popped = (queue.pop(no_ack=chance.random() < 0.3) for _ in range(chance.randint(1, 20)))
                self.held += [
                    e for e in popped if e is not None and e[0] in queue._unacked.get(e[1].epoch, {})
                ]
            case "ack" | "requeue":
                chance.shuffle(self.held)
                some, self.held = self.held[::2], self.held[1::2]
                (queue.acknowledge if what == "ack" else queue.requeue)(some)
            case "purge":
                queue.purge()
            case "cut":
                copies.link_ends[primary.name, "c"] = chance.randint(1, 600)
            case "freeze":
                copies.b.frozen = not copies.b.frozen
            case "restart":
                copies.kill(copies.b, keep=chance.random() < 0.5)
                copies.start(copies.b)
            case "fail":
                self.fail()
        copies.run(chance.choice([0.0, 0.005, 0.01, 0.05, 0.3]))
        if copies.cut and chance.random() < 0.4:
            copies.heal()
        if copies.b.running.vhost.serving:
            in_order(copies)

    def fail(self) -> None:
        copies, old = self.copies, self.primary
        other = copies[1] if old is copies[0] else copies[0]
        if other.node is None or other.status != "ready" or old.status not in ("active", "recovering"):
            return
        copies.kill(old)
        assert copies.ask(other, "promote", 10.0, force_lossy=True)["ok"]
        copies.start(old)
        self.primary, self.held = other, []

    def end(self) -> None:
        copies = self.copies
        copies.heal()
        copies.link_ends.clear()
        copies.b.frozen = False
        copies.publish(self.primary, "q", "!")
        copies.follows(self.primary)
        in_order(copies)


@pytest.mark.parametrize("number", range(40))
def test_whatever_happens_the_follower_ends_equal(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(os.environ.get("REPLICATE_SEED", number))
    print(f"REPLICATE_SEED={seed}")
    monkeypatch.setattr(queue_feed, "SHARE", 300)
    monkeypatch.setattr(queue_feed, "WINDOW", 900)
    fate = Fate(seed)
    for _ in range(60):
        fate.step()
    fate.end()
