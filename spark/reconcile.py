"""The reconciling job: ledgers in, verdict out. `python -m spark.reconcile LEDGER_DIR...` prints it as JSON.

Joins the transforms of this package; the only one that starts Spark actions. Called by the command line
(`understudy reconcile`), by spark-submit (through `spark/submit.py`) and by the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.books import Books
    from spark.read import Found

SHOWN_RANGES = 200
"""Ranges that are collected for one kind of finding in one place; totals cover all of them."""
SMALL_BYTES = 256 * 1024 * 1024
"""Ledgers up to this size together are read sooner without Java's optimizing compiler."""
SLOTS = 200
"""About how many points a timeline has."""

Progress = Callable[[str], None]


class NoLedgers(Exception):
    """There is nothing to reconcile below the given folders. The text is one line."""


def reconcile_folders(
    folders: Sequence[Path], *, master: str | None = None, progress: Progress = lambda _: None
) -> dict[str, Any]:
    """Find, read and reconcile; starts a Spark session and stops it.

    `progress` is told, in a few words, what is being done. Raises NoLedgers, and `SparkUnavailable` of
    `spark.session` where PySpark or Java is missing.
    """
    from spark.session import open_session, require_pyspark

    require_pyspark()
    from spark.read import find_ledgers

    found = find_ledgers(folders)
    if not found.ledgers and not found.hidden:
        raise NoLedgers(f"no *.ledger.jsonl below {', '.join(map(str, folders))}")
    progress("starting Spark")
    size = sum(path.stat().st_size for path in found.ledgers)
    session = open_session(master, small=size < SMALL_BYTES)
    try:
        return reconcile(session, found, progress=progress)
    finally:
        session.stop()


def reconcile(session: SparkSession, found: Found, *, progress: Progress = lambda _: None) -> dict[str, Any]:
    """As `reconcile_folders`, of what was found, in a session that is already there."""
    from spark import schema, verdict
    from spark.books import keep_books
    from spark.condense import condense
    from spark.ranges import settle
    from spark.read import read_records

    progress(f"reading {len(found.ledgers)} ledgers")
    events = settle(condense(read_records(session, found.ledgers)))
    books = keep_books(events.where(events["kind"].isin(*schema.STATE_KINDS)).collect())
    if not books.writers and not books.missing:
        raise NoLedgers("the ledgers are empty")
    _mention(books, found)
    numbers = _numbers(events, books, progress)
    copies = [str(path) for path in found.copies]
    files = {"ledgers": len(found.ledgers), "ignored": found.ignored, "copies": copies}
    return verdict.result(books, numbers, files)


def _mention(books: Books, found: Found) -> None:
    """What makes the ledgers as a whole unfit for a proof."""
    for path in found.hidden:
        books.missing.append(f"{path.name} was not read: Spark does not see names that begin with . or _")
    for path in found.empty:
        books.missing.append(f"{path.name} is empty: a ledger begins with a record")
    alien = any("schema version" in text for text in books.missing)
    if found.hidden or found.empty or alien or len(books.clusters) > 1:
        books.broken = True


def _numbers(events: DataFrame, books: Books, progress: Progress) -> Any:
    """Run the transforms and collect what they found."""
    from spark import contents, order, publishing, rates, replication
    from spark.ranges import settle
    from spark.verdict import Numbers

    kinds = {kind for writer in books.writers.values() for kind in writer.records}
    progress("matching publishes with confirms")
    tags = settle(publishing.tag_segments(events))
    placed, sent = settle(publishing.placements(events)), settle(publishing.sends(events))
    settled = settle(publishing.outcomes(tags))
    logical = settle(publishing.logical_segments(sent, settled))
    confirmed = settle(publishing.confirmed_ids(placed, settled))
    tag_counts = _only_row(publishing.tag_totals(tags))
    logical_counts = _only_row(publishing.logical_totals(logical))
    progress("following every id through its queue")
    early = settle(replication.early_confirms(events, confirmed))
    late = order.late_receipts(events)
    segments = settle(contents.id_segments(events, confirmed, late, early, books.inventory()))
    ids = [row.asDict() for row in contents.id_totals(segments).collect()]
    progress("looking for what was lost, doubled or out of order")
    found = [
        publishing.tag_findings(tags), publishing.doubts(logical), contents.id_findings(segments),
        order.enqueue_findings(events),
    ]  # fmt: skip
    if tag_counts["sends"] > logical_counts["published"]:
        resent = publishing.resent_ids(sent, logical, placed)
        found.append(publishing.resend_findings(resent, events.where("kind = 'received'")))
    if "quiesce" in kinds:
        found.append(contents.quiesce_findings(events))
    rows = [row.asDict() for row in findings([settle(frame) for frame in found]).collect()]
    progress("measuring rates and outage")
    pauses = [(row["from_us"], row["to_us"]) for row in rates.pauses(events).collect()]
    return Numbers(tag_counts, logical_counts, ids, rows, _timeline(events, books), pauses)


def _only_row(frame: DataFrame) -> dict[str, int]:
    return {key: value or 0 for key, value in frame.collect()[0].asDict().items()}


def findings(frames: Sequence[DataFrame], shown: int = SHOWN_RANGES) -> DataFrame:
    """All findings in FINDING_SCHEMA, at most `shown` ranges of a kind and place, each with the totals of its
    group: ids (how many numbers) and pieces (how many ranges)."""
    from functools import reduce

    from pyspark.sql import DataFrame, Window
    from pyspark.sql import functions as F

    from spark.schema import FINDING_SCHEMA

    def full(frame: DataFrame) -> DataFrame:
        have = set(frame.columns)
        return frame.select(
            *(
                F.col(f.name) if f.name in have else F.lit(None).cast(f.dataType).alias(f.name)
                for f in FINDING_SCHEMA
            )
        )

    every = reduce(DataFrame.unionByName, map(full, frames))
    group = Window.partitionBy("label", "queue", "epoch", "prod", "note")
    counted = every.select(
        "*", F.sum(F.col("last") - F.col("first") + 1).over(group).alias("ids"),
        F.count("*").over(group).alias("pieces"),
        F.row_number().over(group.orderBy("first")).alias("_place"),
    )  # fmt: skip
    return counted.where(F.col("_place") <= shown).drop("_place")


def _timeline(events: DataFrame, books: Books) -> Mapping[str, Any]:
    """start_us, slot_us, and for each of sent, confirmed, received the ids in each slot."""
    from spark.rates import timeline
    from spark.schema import RATE_BUCKET_US

    begin = min((w.first_us for w in books.writers.values() if w.first_us), default=0)
    end = max((w.last_us for w in books.writers.values()), default=0)
    width = max(1, -(-(end - begin) // (SLOTS * RATE_BUCKET_US))) * RATE_BUCKET_US
    first, last = begin // width, end // width
    series: dict[str, Any] = {name: [0] * (last - first + 1) for name in ("sent", "confirmed", "received")}
    for row in timeline(events, width).collect():
        series[row["name"]][min(max(row["slot"] - first, 0), last - first)] += row["n"]
    return {"start_us": first * width, "slot_us": width, **series}


def main(arguments: Sequence[str] | None = None) -> int:
    """Reconcile and print the result as JSON. Exit status 0 proven, 1 violated, 2 not provable, 3 usage."""
    from spark.session import SparkUnavailable

    parser = argparse.ArgumentParser(
        prog="spark.reconcile", description="Reconcile the ledgers below folders."
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="LEDGER_DIR")
    parser.add_argument("--master", help="Spark master; by default two local threads, or spark-submit's own")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as error:
        return 3 if error.code else 0
    absent = [str(folder) for folder in options.folders if not folder.exists()]
    if absent:
        print(f"reconcile: no such folder: {', '.join(absent)}", file=sys.stderr)
        return 3
    try:
        answer = reconcile_folders(options.folders, master=options.master)
    except NoLedgers as error:
        print(f"reconcile: {error}", file=sys.stderr)
        return 2
    except SparkUnavailable as error:
        print(f"reconcile: {error}", file=sys.stderr)
        return 3
    print(json.dumps(answer, indent=1))
    return {"proven": 0, "violated": 1, "not provable": 2}[answer["verdict"]]


if __name__ == "__main__":
    sys.exit(main())
