"""Three rounds of kill, resend and restart on real processes; `make soak-exactly-once` plays a hundred."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failover.soak.exactly_once import KITS, play


@pytest.mark.system
def test_kills_of_publisher_and_primary_lose_nothing_and_double_nothing(tmp_path: Path, seed: int) -> None:
    outcome = play(tmp_path, ("two", "both", "publisher"), KITS[seed % len(KITS)], seed, print)
    print(outcome)
    assert (outcome.missing, outcome.doubled, outcome.again) == (0, 0, 0)
    assert outcome.numbers > 0 and outcome.resumed + outcome.resent > 0
