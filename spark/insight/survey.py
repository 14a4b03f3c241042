"""Surveys many days of ledgers: latencies, rates, failovers, and whether the ledgers are whole.

Joins the transforms of this package, and starts the Spark actions. Called by `understudy report`.
`docs/how-to/report.md` describes the result. It says nothing about losses; `spark.reconcile` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark.insight.periods import Period, choose

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.reconcile.input.read import Found
    from spark.reconcile.ledgers.state import LedgerState

KINDS = (
    "sent",
    "confirmed",
    "enqueue",
    "backup_enqueue",
    "replicated",
    "insync",
    "received",
    "acked",
    "dequeue",
)
SHOWN = 200
"""Most producers, queues, backups and consumers to list, the busiest first."""

Progress = Callable[[str], None]


class NothingThere(Exception):
    """There is no ledger below the folders, or no record in the period. The text is one line."""


def survey_folders(
    folders: Sequence[Path], since_us: int, until_us: int, *, master: str | None = None,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """Find, read and survey the ledgers for [since_us, until_us). Starts a Spark session, and stops it.

    Raises NothingThere, and `spark.session.SparkUnavailable` if PySpark or Java is missing.
    """
    from spark.session import are_small, open_session, require_pyspark

    require_pyspark()
    from spark.reconcile.input.read import find_ledgers

    found = find_ledgers(folders)
    if not found.ledgers:
        raise NothingThere(f"no ledger below {', '.join(map(str, folders))}")
    progress("starting Spark")
    session = open_session(master, small=are_small(found.ledgers))
    try:
        return survey(session, found, since_us, until_us, progress=progress)
    finally:
        session.stop()


def survey(
    session: SparkSession, found: Found, since_us: int, until_us: int, *, progress: Progress = lambda _: None
) -> dict[str, Any]:
    """Like `survey_folders`, for ledgers already found and a session already open."""
    from spark import schema
    from spark.insight import answer
    from spark.latency.confirms import known
    from spark.ranges import settle
    from spark.reconcile.input.read import read_events, read_records
    from spark.reconcile.input.tallies import unshelve
    from spark.reconcile.ledgers.assemble import assemble

    progress(f"reading {len(found.ledgers)} ledgers")
    events = read_events(session, found.ledgers)
    few = settle(events.where(events["kind"].isin("measured", *schema.STATE_KINDS)))
    ledgers = assemble(row.asDict() for row in few.where("packed is null").drop("packed").collect())
    period = _period(ledgers, since_us, until_us)
    records = settle(known(read_records(session, found.ledgers), KINDS))
    progress("tracing messages through the ledgers")
    measured = _measure(records, period)
    progress("counting messages over time")
    counted = _count(records, period)
    fails = _failovers(unshelve(few, "measured"), ledgers, period)
    return answer.build(ledgers, period, measured, counted, fails, found)


def _period(ledgers: LedgerState, since_us: int, until_us: int) -> Period:
    """The part of the wanted period that the ledgers cover."""
    lives = [w for w in ledgers.writers.values() if w.last_us >= since_us and w.first_us < until_us]
    if not lives:
        raise NothingThere("the ledgers have no record in this period")
    begin = max(since_us, min(w.first_us for w in lives))
    return choose(begin, min(until_us, max(w.last_us for w in lives) + 1))


def _within(period: Period, at: str) -> str:
    return f"{at} >= {period.since_us} and {at} < {period.until_us}"


def _measure(records: DataFrame, period: Period) -> dict[str, list[dict[str, Any]]]:
    """Quantiles of each measure: in total, by key, by slot and by row; and the `bounds` of clocks."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    from spark.insight import clocks
    from spark.latency import journeys
    from spark.latency.histogram import histogram, quantiles
    from spark.ranges import settle

    sent, put = settle(journeys.origins(records)), settle(journeys.placed(records))
    received = settle(journeys.receipts(records))
    arrived = settle(journeys.deliveries(sent, put, received))
    limits = settle(clocks.bounds(records, put, received, arrived))
    pieces = (
        journeys.confirm_pieces(records, sent), clocks.delivery_pieces(arrived, limits),
        journeys.replication_pieces(records),
    )  # fmt: skip
    inside = reduce(DataFrame.unionByName, pieces).where(_within(period, "at_us"))
    counts = settle(histogram(inside, period.slot_us))
    coarse = F.floor(F.col("slot") * period.slot_us / period.row_us).cast("long")
    cuts = {
        "whole": quantiles(counts, ["measure"]),
        "keys": quantiles(counts, ["measure", "key"]).orderBy(F.col("n").desc()).limit(3 * SHOWN),
        "slots": quantiles(counts, ["measure", "slot"]),
        "rows": quantiles(counts.withColumn("slot", coarse), ["measure", "slot"]),
        "bounds": limits,
    }
    return {name: [row.asDict() for row in frame.collect()] for name, frame in cuts.items()}


def _count(records: DataFrame, period: Period) -> dict[str, list[dict[str, Any]]]:
    """Numbers of ids: by kind and slot; by kind and row; by kind and queue; by kind and consumer."""
    from pyspark.sql import functions as F

    from spark.insight.activity import activity
    from spark.ranges import settle

    done = settle(activity(records.where(_within(period, "ts_us")), period.slot_us))
    coarse = F.floor(F.col("slot") * period.slot_us / period.row_us).cast("long").alias("slot")
    total = F.sum("n").alias("n")
    theirs = done.where("name in ('received', 'redelivered', 'acked')")
    cuts = {
        "slots": done.groupBy("name", "slot").agg(total),
        "rows": done.groupBy("name", coarse).agg(total),
        "queues": theirs.groupBy("name", "key").agg(total),
        "consumers": theirs.groupBy("name", "writer").agg(total, F.countDistinct("slot").alias("slots")),
        "consumer_rows": theirs.where("name = 'received'").groupBy("writer", coarse).agg(total),
    }
    return {name: [row.asDict() for row in frame.collect()] for name, frame in cuts.items()}


def _failovers(events: DataFrame, ledgers: LedgerState, period: Period) -> list[dict[str, Any]]:
    """Promotions in the period, each with the outage that producers saw."""
    from spark.insight.activity import pauses_near
    from spark.reconcile.verdict.result import REACH_US, failovers

    moments = [(p.ts_us,) for p in ledgers.promotions if period.since_us <= p.ts_us < period.until_us]
    if not moments:
        return []
    frame = events.sparkSession.createDataFrame(moments, "ts_us long")
    pauses = [(row["from_us"], row["to_us"]) for row in pauses_near(events, frame, REACH_US).collect()]
    fails = [f for f in failovers(ledgers, pauses) if period.since_us <= f["ts_us"] < period.until_us]
    return [{**f, "outage_ms": _pause(f)} for f in fails]


def _pause(failover: Mapping[str, Any]) -> float | None:
    """The outage in ms: from the last confirm before a promotion to the first one after it.

    Without such a pause, the longest pause near the promotion. That alone would not do: over days, it may be
    a quiet minute in which nobody published.
    """
    if failover["from_us"] is None:
        return None
    return float(round((failover["to_us"] - failover["from_us"]) / 1000, 1))
