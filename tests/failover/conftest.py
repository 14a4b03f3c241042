"""Spark's verdict on the ledgers of processes that were killed, by the session that all tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def judge(session: SparkSession) -> Callable[..., dict[str, Any]]:
    """`judge(folder, ...)`: what `understudy reconcile --format json` would print, without a Spark for that
    alone."""
    from spark.reconcile.input.read import find_ledgers
    from spark.reconcile.job import reconcile

    def judge(*folders: Path) -> dict[str, Any]:
        return reconcile(session, find_ledgers(folders))

    return judge
