"""SIGSTOP of the primary, a promotion, SIGCONT: real processes and a real socket (8, 28).

What the simulation cannot show: that the shell asks the clock before it writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failover.nodes.bare import CLOSE, Bare
from tests.failover.nodes.pair import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as made:
        yield made


def test_28_a_frozen_primary_wakes_and_says_nothing_but_good_bye(pair: Pair) -> None:
    pair.whole()
    client = Bare(pair.addresses["left"])
    client.settle_down("q")
    pair.freeze("left")
    try:
        client.ask_for_more("q")
        refused = pair.command("promote", "right")
        assert refused[0] == 1, "mere silence"
        code, _, err = pair.command("promote", "right", "--force-lossy")
        assert code == 0, err
        assert pair.status("right") == "active"
    finally:
        pair.thaw("left")
    assert client.read_until(CLOSE) == [CLOSE], "no get-ok, no delivery, no confirm"
    client.close()
    pair.wait_for("left", "ready")
