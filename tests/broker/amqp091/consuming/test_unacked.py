"""Outstanding tags against a plain model, and the merging of acks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.amqp091.channel_state.unacked import AckRange, Run, Unacked, UnknownTag, parse_acks
from broker.amqp091.codec.frames import ack_frame
from tests.builds import PURE_ONLY

operations = st.lists(
    st.tuples(st.just("add"), st.integers(1, 5), st.just(0))
    | st.tuples(st.just("take"), st.integers(1, 40), st.integers(0, 6))
    | st.tuples(st.just("through"), st.integers(1, 40), st.just(0)),
    max_size=30,
)


def _tags(runs: list[Run]) -> list[int]:
    return [run.first + at for run in runs for at in range(len(run.entries))]


@PURE_ONLY
@given(operations)
def test_runs_behave_as_a_set_of_tags(steps: list[tuple[str, int, int]]) -> None:
    unacked = Unacked()
    queue: Any = object()
    model: dict[int, Any] = {}
    following = 1
    for kind, number, more in steps:
        if kind == "add":
            entries: list[Any] = [("entry", following + at, b"") for at in range(number)]
            model.update(zip(range(following, following + number), entries, strict=True))
            unacked.add(Run(following, list(entries), queue, None))
            following += number
            continue
        wanted = range(number, number + more + 1) if kind == "take" else range(1, number + 1)
        try:
            runs = unacked.take(number, number + more) if kind == "take" else unacked.take_through(number)
        except UnknownTag as unknown:
            assert unknown.tag not in model
            runs = unknown.settled
            wanted = range(number, unknown.tag) if kind == "take" else range(0)
        expected = [tag for tag in wanted if tag in model]
        assert _tags(runs) == expected
        assert [entry for run in runs for entry in run.entries] == [model.pop(tag) for tag in expected]
        assert len(unacked) == len(model)
    assert _tags(unacked.take_all()) == sorted(model)


def _frames(*acks: tuple[int, bool]) -> bytes:
    return b"".join(ack_frame(1, tag, multiple=multiple) for tag, multiple in acks)


@pytest.mark.parametrize(
    ("acks", "ranges"),
    [
        ([(1, False)], [AckRange(1, 1)]),
        ([(1, False), (2, False), (3, False)], [AckRange(1, 3)]),
        ([(1, False), (3, False)], [AckRange(1, 1), AckRange(3, 3)]),
        ([(1, False), (1, False)], [AckRange(1, 1), AckRange(1, 1)]),
        ([(0, False)], [AckRange(0, 0)]),
        ([(5, True), (6, False), (9, True)], [AckRange(-1, 5), AckRange(6, 6), AckRange(-1, 9)]),
    ],
)
def test_single_acks_become_ranges(acks: list[tuple[int, bool]], ranges: list[AckRange]) -> None:
    data = _frames(*acks)
    assert parse_acks(data + b"rest", 0) == (ranges, len(data))


def test_acks_end_at_another_channel_and_at_a_cut_frame() -> None:
    one, other = ack_frame(1, 1, multiple=False), ack_frame(2, 2, multiple=False)
    assert parse_acks(one + other, 0)[1] == len(one)
    assert parse_acks(one + one[:-1], 0)[1] == len(one)
