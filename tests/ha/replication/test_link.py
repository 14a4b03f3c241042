"""The link's codec: whatever the cuts, the same frames; whatever the bytes, no crash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.values import Position
from ha.core.backup import coming_contents
from ha.core.backup.coming_contents import ComingContents
from ha.core.errors import LinkError
from ha.core.record.in_sync_record import Incarnation, RecordVersion, first_record, record_from_json
from ha.core.wire.link import (
    Ack,
    Frame,
    LeftOut,
    StreamDecoder,
    batch_frame,
    batch_of_contents,
    content_number,
    frame,
    parse_ack,
    parse_batch,
    parse_json,
)
from ha.core.wire.queue_snapshot import (
    HaveDecoder,
    decode_ids,
    encode_have,
    encode_ids,
    minus,
    total,
)
from understudy.shared.octets import cut

BODIES = st.lists(st.tuples(st.sampled_from(Frame), st.binary(max_size=40)), max_size=8)


@given(BODIES, st.integers(1, 50))
def test_frames_survive_any_cut(frames: list[tuple[Frame, bytes]], room: int) -> None:
    stream = b"".join(b"".join(frame(kind, [body])) for kind, body in frames)
    decoder = StreamDecoder(Frame)
    found = [f for piece in cut([stream], room) for f in decoder.feed(piece)]
    assert found == frames
    assert decoder.received == len(stream)


@given(st.binary(max_size=60))
def test_garbage_is_a_link_error_or_nothing(data: bytes) -> None:
    for parse in (StreamDecoder(Frame).feed, parse_ack, parse_json, parse_batch, decode_ids, _have):
        try:
            parse(data)
        except LinkError:
            pass


def test_a_batch_frame_is_not_longer_than_its_records() -> None:
    parts = batch_frame(Position(65537, 9), 1700, 3.5, [b"one", b"two"])
    [(kind, body)] = StreamDecoder(Frame).feed(b"".join(parts))
    assert kind is Frame.BATCH
    assert parse_batch(body) == ((65537, 9), 1700, 3.5, b"onetwo")


def test_an_ack_comes_back_as_it_was() -> None:
    ack = Ack(Position(1, 5), Position(1, 4), 2.25, 10**12, RecordVersion(1, 3), True)
    assert parse_ack(ack.encode()) == ack


def test_an_absurd_length_is_refused_before_it_is_awaited() -> None:
    with pytest.raises(LinkError, match="bytes"):
        StreamDecoder(Frame).feed(b"\xff\xff\xff\xff\x01")


IDS = st.dictionaries(st.integers(1, 2**40), st.sets(st.integers(1, 200), min_size=1), max_size=4)


@given(IDS, IDS)
def test_ids_on_the_wire_and_their_difference(left: dict[int, set[int]], right: dict[int, set[int]]) -> None:
    def sets(ids: dict[int, set[int]]) -> dict[int, ReplicationIdSet]:
        return {epoch: ReplicationIdSet.of(seqs) for epoch, seqs in ids.items()}

    def flat(ids: dict[int, ReplicationIdSet]) -> set[tuple[int, int]]:
        return {(e, s) for e, found in ids.items() for a, b in found.ranges() for s in range(a, b + 1)}

    body = encode_ids(sets(left))
    back, end = decode_ids(body)
    assert end == len(body) and flat(back) == {(e, s) for e, found in left.items() for s in found}
    rest = minus(sets(left), sets(right))
    assert flat(rest) == flat(sets(left)) - flat(sets(right))
    assert total(rest) == len(flat(rest))


def test_have() -> None:
    held = {bytes([i]) * 16: {7: ReplicationIdSet([(1, 5), (9, 9)])} for i in range(5)}
    payloads = encode_have(held, 100)
    assert len(payloads) > 1
    back = _have(*payloads)
    assert {q: list(ids[7].ranges()) for q, ids in back.items()} == {q: [(1, 5), (9, 9)] for q in held}
    with pytest.raises(LinkError):
        _have(*payloads[:-1], payloads[-1][:-1])
    stream = b"".join(payloads)
    assert _have(*(stream[at : at + 1] for at in range(len(stream)))).keys() == held.keys()


def _have(*payloads: bytes) -> dict[bytes, dict[int, ReplicationIdSet]]:
    decoder = HaveDecoder()
    for payload in payloads:
        decoder.feed(payload)
    return decoder.whole()


def test_a_record_and_its_revisions() -> None:
    a, b, b2 = Incarnation("a", 1), Incarnation("b", 1), Incarnation("b", 2)
    record = first_record("c", 65537, a, "A").included(b, "B")
    assert record_from_json(record.as_json()) == record
    assert record.included(b2, "B").in_sync == {b2}
    assert record.excluded(b).in_sync == frozenset()
    assert record.excluded(b).version > record.version
    new_primary = record.promoted(131074, b, "B", "c")
    assert (new_primary.owner, new_primary.in_sync, new_primary.version) == (b, frozenset(), (131074, 1))
    with pytest.raises(LinkError):
        record_from_json({"epoch": 1})


def test_a_record_does_not_grow_with_every_node_that_was_ever_in_it() -> None:
    record = first_record("c" * 32, 1, Incarnation("a" * 32, 1), "a")
    for number in range(100):
        who = Incarnation(f"{number:032x}", 1)
        record = record.included(who, f"b{number}").excluded(who)
    assert len(record.names) <= 2
    record = record.included(Incarnation("b" * 32, 1), "b").included(Incarnation("d" * 32, 1), "d")
    record = record.promoted(2, Incarnation("b" * 32, 1), "b", record.cluster_id)
    assert record.names == {"b" * 32: "b", "d" * 32: "d"}


OCTETS = st.binary(max_size=20)
RECORDS = st.lists(st.tuples(OCTETS, st.none() | st.binary(min_size=1, max_size=20), OCTETS), max_size=6)


@given(RECORDS)
def test_a_batch_without_its_large_messages_is_made_whole(
    records: list[tuple[bytes, bytes | None, bytes]],
) -> None:
    payload = [before + (content or b"") + after for before, content, after in records]
    left_out = [
        LeftOut(n, n, len(before), len(content)) for n, (before, content, _) in enumerate(records) if content
    ]
    coming = ComingContents()
    for n, (_, content, _) in enumerate(records):
        if content:
            for piece in cut([content], 7):
                coming.piece(content_number(n) + piece)
    frames = batch_of_contents(Position(1, 2), 3, 4.0, payload, left_out)
    [(kind, body)] = StreamDecoder(Frame).feed(b"".join(frames))
    assert kind is Frame.BATCH_OF_CONTENTS
    assert len(body) == 34 + 16 * len(left_out) + sum(map(len, payload)) - sum(p.octets for p in left_out)
    assert coming.batch(body) == (Position(1, 2), 3, 4.0, b"".join(payload))
    assert coming.octets == 0


@given(st.binary(max_size=80), st.booleans())
def test_a_hostile_batch_of_messages_is_a_link_error_or_one(rest: bytes, begun: bool) -> None:
    coming = ComingContents()
    coming.piece(content_number(0) + b"abc")
    head = b"".join(batch_of_contents(Position(1, 2), 3, 4.0, [], []))[5:-2]
    try:
        coming.batch(head + rest if begun else rest)
    except LinkError:
        assert coming.octets in (0, 3)


def test_more_than_a_link_may_hold_ahead_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coming_contents, "FRAME_LIMIT", 10)
    coming = ComingContents()
    coming.piece(content_number(1) + bytes(10))
    with pytest.raises(LinkError, match="11 bytes of messages that are in no batch"):
        coming.piece(content_number(2) + b"a")
