"""Returned messages find their places among the ready ones: in one stretch, in some, or scattered."""

from __future__ import annotations

from collections import deque

from hypothesis import example, given
from hypothesis import strategies as st

from broker.model.history.records import Entry, Envelope, id_of
from broker.model.queue.put_back import put_back

RUNS = tuple(
    Envelope(epoch, "", "q", persistent=True, wall_ms=0, channel=1, largest_frame=100) for epoch in range(3)
)


def entry(at: int) -> Entry:
    """An entry; each epoch has fifty."""
    return at % 50, RUNS[at // 50], b""


@given(st.lists(st.booleans(), max_size=150))
@example([True] * 150)
@example([False] * 150)
@example([True, False] * 75)  # more stretches than are looked for one by one
@example([False, True] * 75)
@example([True] * 50 + [False] * 50 + [True] * 50)
def test_each_finds_its_place(comes_back: list[bool]) -> None:
    entries = [entry(at) for at in range(len(comes_back))]
    ready = deque(one for one, back in zip(entries, comes_back, strict=True) if not back)
    put_back(ready, [one for one, back in zip(entries, comes_back, strict=True) if back])
    assert list(ready) == entries == sorted(ready, key=id_of)
