"""Spark's verdict on the ledgers of each case that was played, all in one session at the end of the run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from spark.reconcile.input.read import find_ledgers
from spark.reconcile.job import reconcile
from spark.session import open_session
from tests.cluster.conftest import Report
from tests.cluster.test_cases import params

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    made = open_session(small=True)
    yield made
    made.stop()


@pytest.mark.parametrize(("name", "rounds"), params())
def test_verdict(name: str, rounds: int, report: Report, request: pytest.FixtureRequest) -> None:
    if name not in report.played:
        pytest.skip("the case did not come to its end")
    played = report.played[name]
    session = request.getfixturevalue("session")
    answer = reconcile(session, find_ledgers([played.ledgers]))
    session.catalog.clearCache()
    played.verdict, played.sentence = answer["verdict"], answer["sentence"]
    assert played.verdict == "proven", [answer["sentence"], answer["missing"], answer["findings"]]
    assert answer["totals"]["confirmed"] == played.confirmed
    active = sorted(
        (each["from_us"], each["to_us"], each["node"])
        for each in answer["nodes"]
        if each["state"] == "active"
    )
    for one, two in pairwise(active):
        assert two[0] >= one[1] or one[2] == two[2], f"by the ledgers two served at once: {one}, {two}"
