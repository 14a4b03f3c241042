"""The bench of management runs, small: every path of it is answered, and sampling takes steps."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.gate.node import running
from bench.management import PATHS, answers, declare, sampling


def test_sampling_and_answers_are_measured(tmp_path: Path) -> None:
    with running(tmp_path) as driver:
        sampled = sampling(driver, 20, 3, 2)
        assert 0 < sampled.turn <= sampled.cpu * 2
        declare(driver, 30)
        found = asyncio.run(answers(driver, PATHS, 1))
    assert set(found) == set(PATHS)
    assert all(each.octets > 50 and each.turn > 0 and each.cpu > 0 for each in found.values())
