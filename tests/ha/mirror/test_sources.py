"""A source of ad-hoc replication that says what cannot be: nothing changes, or its connection is closed."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from broker.model.history.batch import Batch
from broker.model.history.record_codec import encode_record
from broker.model.history.records import Dequeue, EnqueueRun, Envelope, QueueDeclare
from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.values import Reason, Scope
from ha.adapter.mirror.mirror_vhost import MirrorVhost
from ha.core.errors import LinkError
from ha.core.mirror.follower import MirrorFollower
from ha.core.mirror.wire import (
    MirrorFrame,
    MirrorMethod,
    Question,
    SourceAnswer,
    encode_end,
    parse_answer,
    parse_end,
)
from ha.core.wire.link import frame
from ha.core.wire.queue_snapshot import encode_piece
from tests.bad_inputs.test_link import Liar
from tests.ha.mirror.mirrors import Mirrors, following, in_order
from tests.ha.pair import Host, raw

UUID = b"u" * 16


def piece(epoch: int, first: int, texts: str, queue: bytes = UUID) -> bytes:
    envelope = Envelope(epoch, "", "q", persistent=True, wall_ms=1, channel=1, largest_frame=30)
    return encode_record(EnqueueRun([queue], [first], envelope, [raw(text) for text in texts]))


def model() -> tuple[Mirrors, MirrorVhost]:
    mirrors = Mirrors()
    mirrors.start()
    mirrors.run(0.1)
    made = MirrorVhost(mirrors.b.running.vhost, "q", ("far:1",), "q", "")
    made.declare(UUID, encode_record(QueueDeclare(UUID, "q", True, False, False)))
    ids = {90: ReplicationIdSet([(1, 3)])}
    made.take_piece((0, -1), (90, 3), ids, piece(90, 1, "abc"))
    return mirrors, made


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
    mirrors, made = model()
    with pytest.raises(LinkError):
        made.take_piece((90, 2) if 90 in ids and 3 in ids[90] else (90, 3), (90, 9), ids, payload)
    assert in_order(mirrors) == "abc"
    with pytest.raises(LinkError):
        made.leave(payload)
    with pytest.raises(LinkError):
        made.declare(b"y" * 16, payload)


@pytest.mark.parametrize(
    "declared",
    [
        b"",
        b"\xff",
        encode_record(QueueDeclare(b"y" * 16, "q", True, False, False)),
        encode_record(QueueDeclare(UUID, "q", True, True, False)),
        encode_record(QueueDeclare(UUID, "q", True, False, False)) * 2,
        encode_record(Dequeue(UUID, 90, Reason.ACKED, [(1, 1)])),
    ],
)
def test_a_queue_that_is_not_the_one_asked_for_does_not_come_to_be(declared: bytes) -> None:
    mirrors = Mirrors()
    mirrors.start()
    mirrors.run(0.1)
    made = MirrorVhost(mirrors.b.running.vhost, "q", ("far:1",), "q", "")
    with pytest.raises(LinkError):
        made.declare(UUID, declared)
    assert made.uuid is None
    assert not mirrors.b.running.vhost.queues


def test_arguments_that_mean_nothing_here_come_along_and_do_nothing() -> None:
    mirrors = Mirrors()
    mirrors.start()
    mirrors.run(0.1)
    vhost = mirrors.b.running.vhost
    odd: list[dict[str, object]] = [
        {"x-max-length": "abc"}, {"x-expires": -1, "x-message-ttl": "1"}, {"x-max-priority": 10**9},
        {"x-dead-letter-exchange": 5, "x-overflow": 7}, {"x-queue-type": "stream"}, {"x-replicate": "all"},
        {"x-replicate": "All"},
    ]  # fmt: skip
    for number, arguments in enumerate(odd):
        made = MirrorVhost(vhost, f"q{number}", ("far:1",), "q", "")
        made.declare(UUID, encode_record(QueueDeclare(UUID, "q", True, False, False, arguments)))
        made.take_piece((0, -1), (90, 2), {90: ReplicationIdSet([(1, 2)])}, piece(90, 1, "ab"))
    mirrors.run(0.1)
    for number, arguments in enumerate(odd):
        queue = vhost.queues[f"q{number}"]
        assert (queue.scope, queue.arguments) == (Scope.STORE, arguments)
        assert mirrors.ask(mirrors.b, "replicate-stop", name=queue.name)["ok"]
        mirrors.run(0.1)
        assert mirrors.consume(mirrors.b, queue.name, 9) == "ab"


def test_messages_of_an_epoch_that_was_passed_make_it_begin_anew() -> None:
    mirrors, made = model()
    with pytest.raises(LinkError, match="anew: epoch 80 after epoch 90"):
        made.take_piece((0, -1), (80, 3), {80: ReplicationIdSet([(1, 1)])}, piece(80, 1, "z"))
    assert made.held() == {}
    made.take_piece((0, -1), (80, 3), {80: ReplicationIdSet([(1, 1)])}, piece(80, 1, "z"))
    made.take_piece((80, 3), (90, 3), {90: ReplicationIdSet([(1, 3)])}, piece(90, 1, "abc"))
    assert in_order(mirrors) == "zabc"
    mirrors.run(0.1)
    mirrors.kill(mirrors.b)
    mirrors.start(mirrors.b)
    assert in_order(mirrors) == "zabc"


class Dequeues:
    """Which ids have left, as a broker's history has it."""

    def __init__(self, host: Host) -> None:
        self.ranges: list[tuple[int, int]] = []
        host.running.broker.sinks.append(self)

    def batch(self, batch: Batch) -> None:
        for record in batch.records:
            if isinstance(record, Dequeue):
                self.ranges += record.ranges


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


def stream(mirrors: Mirrors, made: MirrorVhost, *parts: list[bytes]) -> Deaf:
    """A mirror that holds 1 to 3 of epoch 90 gets these frames."""
    wire = Deaf()
    follower = MirrorFollower("q", made, wire, node_id="b", name="b", cluster_id="")
    follower.opened(1, "far:1", 0.0)
    follower.method(1, MirrorMethod.ANSWER, SourceAnswer(True, "", "far", 90, UUID.hex()).encode(), 0.0)
    for part in parts:
        follower.method(1, MirrorMethod.DATA, b"".join(part), 0.0)
    return wire


def test_what_the_source_has_never_had_goes_when_all_of_it_is_told() -> None:
    mirrors, made = model()
    two = encode_piece((90, 2), {90: ReplicationIdSet([(1, 2)])})
    wire = stream(mirrors, made, frame(MirrorFrame.PIECE, [two]))
    assert in_order(mirrors) == "abc"
    wire = stream(mirrors, made, frame(MirrorFrame.PIECE, [two]), frame(MirrorFrame.WHOLE, []))
    assert not wire.closed
    assert in_order(mirrors) == "ab"


@pytest.mark.parametrize(("upto", "first", "last"), [((90, 2), 1, 3), ((90, 0), 1, 1), ((89, 9), 1, 1)])
def test_a_piece_with_ids_beyond_its_end_is_refused(upto: tuple[int, int], first: int, last: int) -> None:
    mirrors, made = model()
    body = encode_piece(upto, {90: ReplicationIdSet([(first, last)])})
    assert "a piece up to" in stream(mirrors, made, frame(MirrorFrame.PIECE, [body])).closed[0]
    assert in_order(mirrors) == "abc"


def test_what_one_says_that_is_not_followed_changes_nothing() -> None:
    mirrors, made = model()
    follower = MirrorFollower("q", made, Deaf(), node_id="b", name="b", cluster_id="")
    for peer in (1, 2):
        follower.opened(peer, f"far:{peer}", 0.0)
        follower.method(
            peer, MirrorMethod.ANSWER, SourceAnswer(True, "", "far", 90, UUID.hex()).encode(), 0.0
        )
    everything = frame(MirrorFrame.WHOLE, [])
    follower.method(2, MirrorMethod.DATA, b"".join(everything), 0.0)
    follower.method(2, MirrorMethod.ENDED, b"{}", 0.0)
    assert in_order(mirrors) == "abc"
    assert follower.source == "far at far:1"
    follower.method(1, MirrorMethod.DATA, b"".join(everything), 0.0)
    assert in_order(mirrors) == ""


def test_a_dequeue_of_what_is_not_here_is_no_history() -> None:
    mirrors, made = model()
    mirrors.run(0.1)
    history = Dequeues(mirrors.b)
    for epoch, ranges in ((90, [(2, 2), (4, 9)]), (90, [(2, 7)]), (91, [(1, 1)])):
        made.leave(encode_record(Dequeue(UUID, epoch, Reason.ACKED, ranges)))
    mirrors.run(0.1)
    assert history.ranges == [(2, 2), (3, 3)]
    assert in_order(mirrors) == "a"


def test_a_piece_that_does_not_follow_is_refused() -> None:
    mirrors, made = model()
    body = encode_piece((90, 3), {90: ReplicationIdSet([(1, 3)])})
    part = frame(MirrorFrame.PIECE, [body])
    assert "a piece up to" in stream(mirrors, made, part, part).closed[0]


def test_a_source_that_sends_nonsense_is_disconnected_and_asked_again() -> None:
    mirrors = following()
    a = mirrors[0]
    [feed] = a.running.mirrors.source.feeds.values()
    a.running.mirrors.send(feed.peer, MirrorMethod.DATA, b"\0\0\0\0\xee")
    mirrors.until(lambda: mirrors.line["state"] == "connecting")
    assert "unknown link frame type 238" in mirrors.line["error"]
    mirrors.publish(a, "q", "d")
    mirrors.follows(a)


def test_a_source_whose_answer_is_unreadable_is_named_with_its_answer() -> None:
    _, made = model()
    wire = Deaf()
    follower = MirrorFollower("q", made, wire, node_id="b", name="b", cluster_id="")
    follower.opened(2, "far:2", 0.0)
    follower.method(2, MirrorMethod.ANSWER, b"{", 0.0)
    assert wire.closed == ["FRAME_ERROR - an answer about a queue is not JSON"]
    follower.lost(2, 0.0)
    assert follower.error == "far:2: an answer about a queue is not JSON"


def test_methods_no_source_sends_cost_only_the_connection() -> None:
    nothing_of_90 = struct.pack(">QQIQI", 90, 9, 1, 90, 0)
    backwards = encode_record(Dequeue(UUID, 90, Reason.ACKED, [(3, 1)]))
    again = encode_record(Dequeue(UUID, 90, Reason.ACKED, [(1, 3), (2, 1)]))
    for kind, body in (
        (MirrorFrame.PIECE, nothing_of_90), (MirrorFrame.LEFT, backwards), (MirrorFrame.LEFT, again),
    ):  # fmt: skip
        mirrors, made = model()
        assert stream(mirrors, made, frame(kind, [body])).closed
        assert in_order(mirrors) == "abc"


def test_more_epochs_than_can_be_remembered_make_it_begin_anew() -> None:
    mirrors, made = model()
    big = 1 << 62
    ids = {big + epoch: ReplicationIdSet([(1, 1)]) for epoch in range(4000)}
    runs = b"".join(piece(epoch, 1, "x") for epoch in ids)
    with pytest.raises(LinkError, match="too many epochs"):
        made.take_piece((90, 3), (big << 1, 1), ids, runs)
    mirrors.run(0.1)
    assert made.held() == {}


def content(properties: bytes, size: int, *bodies: bytes, class_: int = 60) -> bytes:
    header = struct.pack(">HHQ", class_, 0, size) + properties
    frames = [(2, header), *((3, body) for body in bodies)]
    return b"".join(struct.pack(">BHI", kind, 1, len(of)) + of + b"\xce" for kind, of in frames)


GOOD = content(b"\0\0", 3, b"d", b"ef")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"garbage",
        GOOD[:-1],
        GOOD[:-1] + b"x",
        GOOD + b"\0",
        b"\x03" + GOOD[1:],
        content(b"", 0),
        content(b"\0\0", 4, b"def"),
        content(b"\0\0", 2, b"def"),
        content(b"\0\0", 0, class_=10),
        content(b"\0\1", 0),
        content(b"\x20\0\0\0\0\x09\1xS", 0),
        content(b"\x80\0\x05ab", 0),
    ],
)
def test_a_message_that_cannot_be_read_does_not_come(message: bytes) -> None:
    mirrors, made = model()
    envelope = Envelope(90, "", "q", persistent=True, wall_ms=1, channel=1, largest_frame=30)
    run = encode_record(EnqueueRun([UUID], [4], envelope, [raw("d"), GOOD, message]))
    with pytest.raises(LinkError, match="a message that cannot be read"):
        made.take_piece((90, 3), (90, 6), {90: ReplicationIdSet([(4, 6)])}, run)
    assert in_order(mirrors) == "abc"
    run = encode_record(EnqueueRun([UUID], [4], envelope, [raw("d"), GOOD]))
    made.take_piece((90, 3), (90, 5), {90: ReplicationIdSet([(4, 5)])}, run)
    assert in_order(mirrors) == "abcdf"


def test_words_of_the_other_end_are_one_line_of_a_log() -> None:
    mirrors = following()
    liar = Liar(mirrors, mirrors[0])
    liar.say(MirrorMethod.ASK, Question("q", "", "n" * 32, "x\ny\x1b[2J\ud800", "").encode())
    liar.say(MirrorMethod.HAVE, bytes(4))
    liar.say(MirrorMethod.GO, mirrors[0].running.vhost.queues["q"].uuid)
    names = [line["follower"] for line in mirrors[0].running.status()["followers"]]
    assert names == ["b", "x y [2J?"]
    evil = "no\nP reason\x1b[2J\ud800" + "!" * 400
    said = "no P reason [2J " + "!" * (300 - 16)
    assert parse_answer(SourceAnswer(False, evil, "a\nb").encode()) == SourceAnswer(False, said, "a b")
    assert parse_end(encode_end(evil)) == said
