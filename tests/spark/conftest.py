"""One Spark session for all tests of this folder; without PySpark they are skipped as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    from spark.session import open_session

    session = open_session(small=True)
    yield session
    session.stop()
