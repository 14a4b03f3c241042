"""Whether a node's own address can be in its `ha.brokers`."""

from __future__ import annotations

import pytest

from ha.adapter.own_address import left_out


@pytest.mark.parametrize(
    ("brokers", "listens", "out"),
    [
        ([("10.0.0.1", 5672), ("10.0.0.2", 5672)], [("10.0.0.2", 5672)], False),
        ([("10.0.0.1", 5672), ("10.0.0.2", 5672)], [("10.0.0.3", 5672)], True),
        ([("10.0.0.1", 5672), ("10.0.0.2", 5672)], [("10.0.0.2", 5673)], True),
        ([("10.0.0.1", 5672)], [("0.0.0.0", 5672)], False),
        ([("10.0.0.1", 5672)], [("::", 5672)], False),
        ([("10.0.0.1", 5672)], [("0.0.0.0", 5673)], True),
        ([("10.0.0.1", 5672)], [("127.0.0.1", 0)], True),
        ([("127.0.0.1", 5672)], [("127.0.0.2", 0)], False),
        ([("node-a", 5672)], [("10.0.0.1", 5672)], False),
        ([("10.0.0.1", 5672)], [("node-a", 5672)], False),
        ([("10.0.0.1", 5672)], [], False),
        ([], [("10.0.0.1", 5672)], False),
    ],
)
def test_left_out(brokers: list[tuple[str, int]], listens: list[tuple[str, int]], out: bool) -> None:
    assert bool(left_out(brokers, listens)) is out
