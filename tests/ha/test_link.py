"""The link's codec: whatever the cuts, the same frames; whatever the bytes, no crash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.replication_id_set import ReplicationIdSet
from broker.model.values import Position
from ha.core.errors import LinkError
from ha.core.in_sync_record import Incarnation, RecordVersion, first_record, record_from_json
from ha.core.link import (
    Ack,
    Frame,
    StreamDecoder,
    batch_frame,
    chunks,
    frame,
    parse_ack,
    parse_batch,
    parse_json,
)
from ha.core.queue_snapshot import (
    decode_have,
    decode_ids,
    encode_have,
    encode_ids,
    minus,
    total,
)

BODIES = st.lists(st.tuples(st.sampled_from(Frame), st.binary(max_size=40)), max_size=8)


@given(BODIES, st.integers(1, 50))
def test_frames_survive_any_cut(frames: list[tuple[Frame, bytes]], room: int) -> None:
    stream = b"".join(b"".join(frame(kind, [body])) for kind, body in frames)
    decoder = StreamDecoder(Frame)
    found = [f for piece in chunks([stream], room) for f in decoder.feed(piece)]
    assert found == frames
    assert decoder.received == len(stream)


@given(st.binary(max_size=60))
def test_garbage_is_a_link_error_or_nothing(data: bytes) -> None:
    for parse in (StreamDecoder(Frame).feed, parse_ack, parse_json, parse_batch, decode_ids, decode_have):
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
    back = decode_have(b"".join(payloads))
    assert {q: list(ids[7].ranges()) for q, ids in back.items()} == {q: [(1, 5), (9, 9)] for q in held}


def test_a_record_and_its_revisions() -> None:
    a, b, b2 = Incarnation("a", 1), Incarnation("b", 1), Incarnation("b", 2)
    record = first_record("c", 65537, a, "A").included(b, "B")
    assert record_from_json(record.as_json()) == record
    assert record.included(b2, "B").in_sync == {b2}
    assert record.excluded(b).in_sync == frozenset()
    assert record.excluded(b).version > record.version
    heir = record.promoted(131074, b, "B", "c")
    assert (heir.owner, heir.in_sync, heir.version) == (b, frozenset(), (131074, 1))
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
