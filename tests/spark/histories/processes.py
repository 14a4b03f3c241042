"""What each process of `make soak-books` does: one Spark, and one trial after another."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.histories import trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_session: SparkSession | None = None
"""Of this process."""


def open_session() -> None:
    from spark import session

    global _session
    _session = session.open_session("local[1]", small=True)


def run(seed: int, keep: Path | None, messages: int | None, faults: Sequence[str] | None) -> trial.Trial:
    """`keep`: leave the ledgers there. Every other seed is pruned, too."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = (keep or Path(temporary)) / str(seed)
        return trial.run(_session, seed, folder, messages, faults, pruned=seed % 2 == 0)
