"""What each process of `make soak-ledgers` does: one Spark, and one trial after another."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.orphans import end_with_parent
from tests.spark.histories import trial
from tests.spark.histories.generate import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_session: SparkSession | None = None
"""Of this process."""


def begin(spark: bool) -> None:
    """First of all in each process."""
    from spark import session

    global _session
    end_with_parent()
    if spark:
        _session = session.open_session("local[1]", small=True)


def run(seed: int, keep: Path | None, messages: int | None, faults: Sequence[str] | None) -> trial.Trial:
    """`keep`: leave the ledgers there. Every other seed is pruned, too. What breaks down is told as a
    difference, for the others are worth having."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = (keep or Path(temporary)) / str(seed)
        try:
            return trial.run(_session, seed, folder, messages, faults, pruned=seed % 2 == 0)
        except Exception as error:
            wanted = trial.draw_faults(seed) if faults is None else list(faults)
            what = f"  not judged: {type(error).__name__}: {error}"
            return trial.Trial(seed, Plan.draw(seed), wanted, set(), set(), 0, [what])
