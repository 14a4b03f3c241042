"""Ready messages of a delay queue, compared with sorted lists; and a snapshot of them while they go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.model.history.records import Entry, Envelope, id_of
from broker.model.queue.delays.due_ready import DueReady

MESSAGES = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 50)), max_size=30)
"""Epoch and delay of each."""


def entries_of(messages: list[tuple[int, int]]) -> list[Entry]:
    return [
        (seq, Envelope(epoch, "", "k", persistent=True, wall_ms=100 * epoch, channel=1, largest_frame=9,
                       expiration=delay), b"x")
        for seq, (epoch, delay) in enumerate(sorted(messages, key=lambda message: message[0]), 1)
    ]  # fmt: skip


def due(entry: Entry) -> tuple[int, int, int]:
    return entry[1].wall_ms + (entry[1].expiration or 0), *id_of(entry)


@given(MESSAGES, st.integers(0, 30), st.integers(0, 30), st.integers(1, 9))
def test_both_orders_hold_while_messages_leave(
    messages: list[tuple[int, int]], gone: int, from_: int, most: int
) -> None:
    entries = entries_of(messages)
    ready = DueReady(entries)
    taken = [ready.popleft() for _ in range(min(gone, len(entries)))]
    in_order = sorted(entries, key=due)
    assert taken == in_order[: len(taken)] and list(ready) == in_order[len(taken) :]
    left = sorted(in_order[len(taken) :], key=id_of)
    assert ready.by_id() == left and len(ready) == len(left) and bool(ready) is bool(left)
    assert [list(level) for level in ready.levels if level] == ([left] if left else [])
    after = id_of(entries[from_]) if from_ < len(entries) else (0, 0)
    assert ready.after(after, most) == [entry for entry in left if id_of(entry) > after][:most]
    for epoch in (1, 2, 3):
        assert ready.holds_epoch(epoch) is any(entry[1].epoch == epoch for entry in left)
    if left:
        assert (ready[0], ready[-1]) == (in_order[len(taken)], in_order[-1])
    ready.put_back(taken)
    assert list(ready) == in_order
    ready.clear()
    assert not ready and ready.by_id() == []
