"""One job on a clean failover, whose answer several tests look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.ledgers import Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Judged:
    """A history, the folder of its ledgers, and the answer. Who changes the answer takes a copy."""

    pair: Pair
    folder: Path
    answer: dict[str, Any]


@pytest.fixture(scope="session")
def clean_failover(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    from spark.reconcile.input.read import find_ledgers
    from spark.reconcile.job import reconcile

    pair = Pair(1)
    folder = pair.run().write(tmp_path_factory.mktemp("clean") / "ledgers")
    return Judged(pair, folder, reconcile(session, find_ledgers([folder])))
