"""The work of each process of `make soak-ledgers`: one Spark, and one trial after another."""

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
"""The session of this process."""


def begin(spark: bool) -> None:
    """Called first in each process."""
    from spark import session

    global _session
    end_with_parent()
    if spark:
        _session = session.open_session("local[1]", small=True)


def run(seed: int, keep: Path | None, messages: int | None, faults: Sequence[str] | None) -> trial.Trial:
    """Run the trial of one seed. Every other seed is also pruned.

    `keep`: leave the ledgers in this folder. An exception is reported as a difference, so that the other
    trials go on.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = (keep or Path(temporary)) / str(seed)
        try:
            return trial.run(_session, seed, folder, messages, faults, pruned=seed % 2 == 0)
        except Exception as error:
            wanted = trial.draw_faults(seed) if faults is None else list(faults)
            what = f"  not judged: {type(error).__name__}: {error}"
            return trial.Trial(seed, Plan.draw(seed), wanted, set(), set(), set(), 0, [what])
