"""Compacted, pruned and converted ledgers: the proof stays the same, or says what it leaves out."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from spark.reconcile.input.read import find_ledgers
from spark.reconcile.job import reconcile
from tests.spark.ledgers import Pair
from understudy.ledger.compaction import compact
from understudy.ledger.conversion import FIELDS, Mapped, convert
from understudy.ledger.retention import plan, prune
from understudy.ledger.segments import find, finished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRONG = ("violation", "unknown")


def judge(session: SparkSession, folder: Path) -> dict[str, Any]:
    return reconcile(session, find_ledgers([folder]))


def kinds(answer: dict[str, Any], *severities: str) -> list[tuple[str, int]]:
    return sorted((f["kind"], f["count"]) for f in answer["findings"] if f["severity"] in severities)


@pytest.fixture(scope="module")
def before(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The verdict on the original ledgers."""
    return judge(session, Pair(3).run().write(tmp_path_factory.mktemp("ledgers")))


@pytest.mark.system
def test_compacted_ledgers_prove_the_same(
    session: SparkSession, before: dict[str, Any], tmp_path: Path
) -> None:
    Pair(3).run().write(tmp_path)
    count = 0
    for series in find([tmp_path])[0]:
        for segment in finished(series):
            compact(segment)
            count += 1
    assert count >= 4 and list(tmp_path.rglob("*.ledger.parquet"))
    after = judge(session, tmp_path)
    assert (before["verdict"], before["missing"]) == ("proven", []) == (after["verdict"], after["missing"])
    assert before["totals"] == after["totals"] and before["queues"] == after["queues"]
    assert kinds(before, "allowed") == kinds(after, "allowed")


@pytest.mark.soak
def test_pruned_ledgers_prove_what_remains(
    session: SparkSession, before: dict[str, Any], tmp_path: Path
) -> None:
    Pair(3).run().write(tmp_path)
    for series in find([tmp_path])[0]:
        if (
            series.process[0] == "a"
        ):  # the first primary: all its records are older than the last record of any other
            found = plan(series, before_us=10**18)
            assert found.going
            prune(found)
    answer = judge(session, tmp_path)
    assert (answer["verdict"], answer["missing"]) == ("proven", [])
    assert "The ledgers were pruned: events up to 2023-11-14 22:13:2" in answer["sentence"]
    assert answer["pruned_until_us"] and before["pruned_until_us"] is None
    epochs = {e["epoch"] for q in answer["queues"] for e in q["epochs"]}
    assert epochs < {e["epoch"] for q in before["queues"] for e in q["epochs"]}, (
        "the epoch that a served alone is gone"
    )


def per_id(paths: list[Path], target: Path) -> tuple[str, str]:
    """Write a client's ledger as a log of single messages. Returns the writer and its role."""
    lines = [json.loads(line) for path in sorted(paths) for line in path.read_text().splitlines()]
    rows: list[list[Any]] = []
    role = lines[0]["name"]
    for record in lines:
        kind = record["kind"]
        if kind not in ("sent", "confirmed", "nacked", "returned", "received", "acked"):
            continue
        for place, number in enumerate(range(record["first"], record["last"] + 1)):
            if role == "producer":
                own = record.get("pfirst", 0) + place
                rows.append([record["ts_us"], kind, record["prod"], number, own, record.get("name", "")])
            else:
                again = record.get("reason") == "redelivered"
                name = f"{record['queue']}:{record['epoch']}:{number}"
                rows.append([record["ts_us"], kind, name, again])
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS["producer"] if role == "producer" else ["time", "event", "id", "redelivered"])
        writer.writerows(rows)
    return lines[0]["writer"], role


@pytest.mark.soak
def test_converted_logs_prove_the_same_as_ledgers_of_the_client_kit(
    session: SparkSession, tmp_path: Path
) -> None:
    Pair(3).run().write(tmp_path / "ledgers")
    before = judge(session, tmp_path / "ledgers")
    converted = 0
    for series in find([tmp_path / "ledgers"])[0]:
        paths = [segment.path for segment in series.segments]
        if json.loads(paths[0].read_text().partition("\n")[0])["name"] == "broker":
            continue
        log = tmp_path / f"log{converted}.csv"
        writer, role = per_id(paths, log)
        for path in paths:
            path.unlink()
        header = log.read_text().partition("\n")[0].strip().split(",")
        mapped = Mapped(role, "csv", {name: name for name in header}, "us")
        convert([log], tmp_path / "ledgers", writer, mapped)
        converted += 1
    after = judge(session, tmp_path / "ledgers")
    assert converted >= 3
    assert (after["verdict"], after["missing"]) == (before["verdict"], before["missing"]) == ("proven", [])
    for name in ("published", "confirmed", "sends", "resent", "received", "deliveries", "acked"):
        assert after["totals"][name] == before["totals"][name], name
