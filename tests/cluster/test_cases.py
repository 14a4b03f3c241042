"""Every case of `cases.py` on a real cluster: `make test-cluster`, a few by `make test-cluster-smoke`.

What each must keep, whatever happens in it: no confirmed message is missing, no two nodes serve at a time,
the pair is whole again after each fault. `test_verdicts` has the books of each reconciled. How long it took
is measured and reported beside what is aimed at; a busy machine fails nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cases import CASES
from tests.cluster.conftest import Report
from tests.cluster.engine import Engine

pytestmark = pytest.mark.cluster


def params() -> list[object]:
    return [
        pytest.param(name, marks=[pytest.mark.smoke] if case.smoke else []) for name, case in CASES.items()
    ]


@pytest.mark.parametrize("name", params())
def test_case(name: str, engine: Engine, image: str, report: Report, tmp_path: Path, seed: int) -> None:
    from tests.cluster.play import Play

    case = CASES[name]
    with Play(engine, image, tmp_path, case.flavour, seed=seed) as play:
        case.play(play)
        play.end()
    report.add(name, play, case.target)
