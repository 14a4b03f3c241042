"""Which messages of other nodes have come: new, known or in part, and how much of it is kept."""

from __future__ import annotations

import pytest

from ha.core.federation import seen
from ha.core.federation.seen import MOST, MOST_ALONE, SEGMENT, Seen, SegmentKey
from tests.builds import PURE_ONLY


def test_what_is_known_is_left_out_also_over_the_ends_of_segments() -> None:
    here = Seen()
    at = SEGMENT - 3
    assert here.take("a", "by b", 1, at, 4) == [(0, 4)]
    assert here.take("a", "by c", 1, at - 2, 8) == [(0, 2), (6, 8)]
    assert here.take("a", "by c", 1, at, 2) == [] and here.doubled == 6
    assert here.take("a", "by c", 2, at, 2) == here.take("d", "by c", 1, at, 2) == [(0, 2)]


def test_a_node_of_one_way_is_no_history_and_a_second_way_makes_all_of_it_history() -> None:
    here = Seen()
    here.take("a", "by b", 1, 1, 3)
    assert here.changes() == []
    here.take("a", "by c", 1, 3, 1)
    assert here.changes() == [(SegmentKey("a", 1, 0), 0b1110)] and here.changes() == []
    again = Seen([(SegmentKey("a", 1, 0), 0b1110)])
    assert again.take("a", "by b", 1, 1, 4) == [(3, 4)]
    assert again.changes() == [(SegmentKey("a", 1, 0), 0b11110)]


@pytest.mark.parametrize(("ways", "kept"), [(1, MOST_ALONE), (2, MOST)])
def test_the_oldest_segments_are_forgotten(ways: int, kept: int) -> None:
    here = Seen()
    forgotten: list[SegmentKey] = []
    for number in range(kept + 2):
        for way in range(ways):
            here.take("a", f"by {way}", 1, number * SEGMENT, 1)
        forgotten += [key for key, bits in here.changes() if not bits]
    assert here.take("a", "by 0", 1, 2 * SEGMENT, 1) == []
    assert here.take("a", "by 0", 1, SEGMENT, 1) == [(0, 1)]
    assert forgotten == ([SegmentKey("a", 1, 0), SegmentKey("a", 1, 1)] if ways == 2 else [])


@PURE_ONLY
def test_names_of_nodes_without_end_take_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of which messages come by two ways is not among those that are forgotten."""
    monkeypatch.setattr(seen, "MOST_NODES", 3)
    here = Seen()
    for way in ("by b", "by c"):
        here.take("a", way, 1, 1, 1)
    for number in range(10):
        here.take(f"n{number}", "by b", 1, 1, 1)
        here.changes()
    assert here.take("a", "by b", 1, 1, 1) == [] == here.take("n9", "by b", 1, 1, 1)
    assert here.take("n0", "by b", 1, 1, 1) == [(0, 1)]
