"""The index of live messages compared with a plain dictionary; bases that contain it; parts of runs."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.history.record_codec import CorruptRecord, decode_records, encode_record
from broker.model.history.records import EnqueueRun, QueueDelete
from broker.model.values import Scope
from broker.store.base_codec import decode_base, encode_base
from broker.store.live_index import LiveIndex, LiveRanges, SegmentUse
from broker.store.live_runs import live_copies, live_records, runs_of
from tests.broker.store.batches import QUEUE, declare, dequeue, enqueue, message, messages

OTHER = b"o" * 16
SEGMENTS, QUEUES, EPOCHS, TOP = 4, (QUEUE, OTHER), (1, 2), 30

spans = st.tuples(st.integers(1, TOP), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))
steps = st.lists(
    st.tuples(
        st.sampled_from(("add", "discard", "forget", "move")),
        st.integers(1, SEGMENTS),
        st.sampled_from(QUEUES),
        st.sampled_from(EPOCHS),
        spans,
    ),
    max_size=40,
)

Naive = dict[tuple[bytes, int, int], int]


def live_of(index: LiveIndex) -> Iterator[tuple[tuple[bytes, int, int], int]]:
    for queue, epoch, first, last, segment in index.ranges():
        assert first <= last
        for seq in range(first, last + 1):
            yield (queue, epoch, seq), segment


@given(steps)
def test_the_index_agrees_with_a_dictionary_of_messages(
    done: list[tuple[str, int, bytes, int, tuple[int, int]]],
) -> None:
    index, naive = LiveIndex(), Naive()
    index.segments = {n: SegmentUse(size=100) for n in range(1, SEGMENTS + 1)}
    for what, segment, queue, epoch, (first, last) in done:
        span = [(queue, epoch, seq) for seq in range(first, last + 1)]
        match what:
            case "add":
                index.add(segment, queue, epoch, first, last)
                naive |= dict.fromkeys(span, segment)
            case "discard":
                index.discard(queue, epoch, first, last)
                naive = {of: where for of, where in naive.items() if of not in span}
            case "forget":
                index.forget(queue)
                naive = {of: where for of, where in naive.items() if of[0] != queue}
            case "move":
                to = max(index.segments) + 1
                index.moved({segment}, to, 50)
                naive = {of: to if where == segment else where for of, where in naive.items()}
        found = list(live_of(index))
        assert dict(found) == naive and len(found) == len(naive)
        for number, use in index.segments.items():
            assert use.live == sum(where == number for where in naive.values()) <= use.stored
        assert index.live_segments() == set(naive.values())


def test_only_records_in_the_stores_scope_count() -> None:
    index = LiveIndex()
    index.segments[1] = SegmentUse()
    unseen = enqueue(7)
    unseen.scope = Scope.LINK
    index.records(1, [declare(), enqueue(1, 5, QUEUE, OTHER), unseen, dequeue(2, 3)])
    assert list(index.ranges()) == [(QUEUE, 1, 1, 1, 1), (QUEUE, 1, 4, 5, 1), (OTHER, 1, 1, 5, 1)]
    index.records(1, [QueueDelete(OTHER, "other", Scope.STORE)])
    assert [row[0] for row in index.ranges()] == [QUEUE, QUEUE]
    index.forget_all_but([OTHER])
    assert not list(index.ranges()) and index.segments[1].live == 0


def test_a_base_carries_the_index_and_the_records() -> None:
    index = LiveIndex()
    index.segments = {3: SegmentUse(size=1000), 5: SegmentUse(size=10), 9: SegmentUse(size=7)}
    index.add(3, QUEUE, 1, 1, 100)
    index.add(5, QUEUE, 1, 101, 110)
    index.add(9, QUEUE, 2, 1, 1)
    index.discard(QUEUE, 1, 20, 80)
    index.discard(QUEUE, 2, 1, 1)
    raw = encode_base(index, [encode_record(declare()), encode_record(declare(OTHER))])
    again, records = decode_base(raw)
    assert list(again.ranges()) == list(index.ranges())
    assert list(records) == [declare(), declare(OTHER)]
    assert again.segments == {3: index.segments[3], 5: index.segments[5]}  # of 9 nothing is live
    assert again.segments[3].stored == 100 and again.segments[3].live == 39


def test_a_base_that_is_none_is_corruption() -> None:
    index = LiveIndex()
    index.segments[1] = SegmentUse(size=10)
    index.add(1, QUEUE, 1, 1, 9)
    raw = encode_base(index, [encode_record(declare())])
    for cut in range(len(raw)):
        if cut != len(raw) - len(encode_record(declare())):
            with pytest.raises(CorruptRecord):
                decode_base(raw[:cut])
    with pytest.raises(CorruptRecord):
        decode_base(raw.replace((1).to_bytes(8, "little") + (9).to_bytes(8, "little"), bytes(16)) + b"x")


def live_by_naive(held: dict[bytes, set[int]]) -> LiveRanges:
    return {(queue, 1): [(seq, seq) for seq in sorted(seqs)] for queue, seqs in held.items()}


@pytest.mark.parametrize("raw", [False, True])
@given(held=st.tuples(*(st.sets(st.integers(8, 24)) for _ in range(3))))
def test_only_the_live_part_of_a_run_comes_back(raw: bool, held: tuple[set[int], ...]) -> None:
    """`raw`: in the form read from a file."""
    queues = (QUEUE, OTHER, b"t" * 16)
    run = enqueue(10, 10, *queues)
    if raw:
        (run,) = runs_of(encode_record(declare()) + encode_record(run) + encode_record(dequeue(1, 2)))
    live = live_by_naive(dict(zip(queues, held, strict=True)))
    for queue, seqs in zip(queues, held, strict=True):
        wanted = [message(n) for n in sorted(seqs) if 10 <= n < 20]
        assert messages(live_records(run, live), queue) == wanted
        copies = live_copies(run, live)
        encoded = b"".join(encode_record(copy) for copy in copies)
        assert messages(decode_records(encoded), queue) == wanted
        assert all(copy.scope is Scope.STORE for copy in copies)


def test_queues_that_hold_the_same_share_a_copy_as_they_shared_the_run() -> None:
    live: LiveRanges = {(QUEUE, 1): [(1, 2)], (OTHER, 1): [(1, 2)]}
    (copy,) = live_copies(enqueue(1, 5, QUEUE, OTHER), live)
    assert copy.queues == [QUEUE, OTHER] and copy.firsts == [1, 1] and copy.count == 2
    whole = enqueue(1, 2, QUEUE, OTHER)
    assert live_records(whole, live) == [whole]
    (only,) = live_records(enqueue(1, 2, QUEUE, OTHER), {(OTHER, 1): [(1, 2)]})
    assert isinstance(only, EnqueueRun) and only.queues == [OTHER]


def test_growth_and_consumption_in_order_cost_one_range() -> None:
    index, random = LiveIndex(), Random(1)
    index.segments[1] = SegmentUse()
    top = gone = 0
    for _ in range(1000):
        count = random.randrange(1, 50)
        index.add(1, QUEUE, 1, top + 1, top + count)
        top += count
        done = random.randrange(gone, top)
        if done > gone:
            index.discard(QUEUE, 1, gone + 1, done)
            gone = done
        assert len(list(index.ranges())) == 1
