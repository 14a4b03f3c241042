"""Many days of generated ledgers in one answer: what is counted, what is cut off, and the health of the
ledgers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from spark.insight.periods import DAY_US, HOUR_US, MINUTE_US, choose
from spark.insight.survey import NothingThere, survey
from spark.insight.words import length
from spark.reconcile.input.read import find_ledgers
from tests.spark.ledgers import START_US, Ledgers, Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOREVER = 1 << 62


def stretched(seed: int, factor: int) -> tuple[Pair, Ledgers]:
    """A history of half a second, stretched over days."""
    pair = Pair(seed, batch=12)
    ledgers = pair.run()
    for row in (record for records in ledgers.records.values() for record in records):
        row["ts_us"] = START_US + factor * (row["ts_us"] - START_US)
    return pair, ledgers


def ids(ledgers: Ledgers, kind: str, begin: int = 0, **matching: Any) -> int:
    rows = [r for _, r in ledgers.every(kind) if r["ts_us"] >= begin]
    wanted = [r for r in rows if all(r.get(key) == value for key, value in matching.items())]
    return sum(r["last"] - r["first"] + 1 for r in wanted)


@pytest.mark.system
def test_a_month_is_counted_by_slots_and_rows(session: SparkSession, tmp_path: Path) -> None:
    pair, ledgers = stretched(3, 30 * DAY_US // 550_000)
    found = find_ledgers([ledgers.write(tmp_path)])
    answer = survey(session, found, 0, FOREVER)
    assert answer["totals"] == {
        "sent": ids(ledgers, "sent"), "confirmed": ids(ledgers, "confirmed"),
        "received": ids(ledgers, "received"),
        "redelivered": ids(ledgers, "received", reason="redelivered"), "acked": ids(ledgers, "acked"),
    }  # fmt: skip
    assert (answer["slot_us"], answer["row_us"]) == (HOUR_US, DAY_US)
    for cut in ("slots", "rows"):
        rows = answer["rates"][cut]
        assert sum(row["confirmed"] for row in rows) == answer["totals"]["confirmed"]
        assert [row["from_us"] for row in rows] == sorted(row["from_us"] for row in rows)
        for measure in answer["latency"].values():
            assert sum(row["n"] for row in measure[cut]) == measure["n"]
    assert answer["latency"]["confirm"]["n"] == answer["totals"]["confirmed"]
    assert {row["key"] for row in answer["latency"]["end_to_end"]["by"]} == set(pair.queues)
    ways = {f"{r['peer']}, {r['reason']}" for _, r in ledgers.every("replicated")}
    assert {row["key"] for row in answer["latency"]["replication"]["by"]} == ways
    assert [c["consumer"] for c in answer["consumers"]] and all(
        sum(c["rows"]) == c["received"] == ids_of(ledgers, c["consumer"]) for c in answer["consumers"]
    )
    [failover] = answer["failovers"]
    assert (failover["previous"], failover["node"], failover["reason"]) == ("a", "b", "unforced")
    assert {ledger["end"] for ledger in answer["ledgers"]} == {"sealed", "crashed"}
    assert f"{answer['totals']['confirmed']:,} messages confirmed" in answer["sentence"]


def ids_of(ledgers: Ledgers, consumer: str) -> int:
    rows = [r for (writer, _), r in ledgers.every("received") if writer == consumer]
    return sum(r["last"] - r["first"] + 1 for r in rows)


@pytest.mark.soak
def test_since_limits_the_period_and_missing_records_are_noted(session: SparkSession, tmp_path: Path) -> None:
    _, ledgers = stretched(4, 1000)
    promoted = next(r["ts_us"] for _, r in ledgers.every("promote") if r["reason"] == "unforced")
    begin = promoted - 1
    for process in [p for p in ledgers.records if p[0] == "p1"]:
        del ledgers.records[process]
    folder = ledgers.write(tmp_path)
    ledger = folder / "c1-3-0.ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:4] + lines[6:-1]) + lines[-1][:-9] + b"\n")
    answer = survey(session, find_ledgers([folder]), begin, FOREVER)
    assert answer["totals"]["confirmed"] == ids(ledgers, "confirmed", begin)
    assert answer["rates"]["slots"][0]["from_us"] <= begin + answer["slot_us"]
    assert len(answer["failovers"]) == 1
    assert "the ledger of c1 (incarnation 3) lacks records 4..5" in answer["notes"]
    assert "1 line cannot be read" in answer["notes"]
    with pytest.raises(NothingThere):
        survey(session, find_ledgers([folder]), START_US + 400 * DAY_US, FOREVER)


@pytest.mark.parametrize(
    ("span", "slot", "row"),
    [
        (90, 1, 60), (3600, 10, 900), (86_400, 300, 3600), (30 * 86_400, 3600, 86_400),
        (400 * 86_400, 86_400, 28 * 86_400),
    ],
)  # fmt: skip
def test_the_number_of_slots_and_rows_is_limited(span: int, slot: int, row: int) -> None:
    period = choose(START_US, START_US + span * 1_000_000)
    assert (period.slot_us, period.row_us) == (slot * 1_000_000, row * 1_000_000)
    assert len(period.slots(period.slot_us)) <= 751 and len(period.slots(period.row_us)) <= 33


def test_lengths_use_the_unit_that_fits() -> None:
    spans = (0, 850, 12_345, 999_000, 2_400_000, 3 * MINUTE_US, 2 * HOUR_US, 5 * DAY_US)
    assert [length(us) for us in spans] == [
        "0 us",
        "850 us",
        "12.3 ms",
        "999 ms",
        "2.4 s",
        "3 min",
        "2 h",
        "5 d",
    ]
