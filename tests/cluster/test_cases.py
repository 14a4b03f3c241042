"""Every case of `cases.py` on a real cluster: `make test-cluster`; a few, once: `make test-cluster-smoke`.

What each must keep, whatever happens in it: no confirmed message is missing, no two nodes serve at a time,
the pair is whole again after each fault. `test_verdicts` has the ledgers of each reconciled. How long it took
is measured and reported beside what is aimed at; a busy machine fails nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cases import CASES
from tests.cluster.conftest import Report
from tests.cluster.engine import Engine


def params() -> list[object]:
    """Names of cases, and how often each is played."""
    whole = [
        pytest.param(name, case.rounds, id=name, marks=pytest.mark.cluster) for name, case in CASES.items()
    ]
    once = [
        pytest.param(name, 1, id=f"{name}-once", marks=pytest.mark.smoke)
        for name, case in CASES.items()
        if case.smoke
    ]
    return [*whole, *once]


@pytest.mark.parametrize(("name", "rounds"), params())
def test_case(
    name: str, rounds: int, engine: Engine, image: str, report: Report, tmp_path: Path, seed: int
) -> None:
    from tests.cluster.play import Play

    case = CASES[name]
    with Play(engine, image, tmp_path, case.flavour, seed=seed) as play:
        for _ in range(rounds):
            case.play(play)
        play.end()
    report.add(name, play, case.target)
