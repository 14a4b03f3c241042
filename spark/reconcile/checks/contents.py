"""The fate of every id: one sweep over each queue and epoch counts the records that cover each segment of
ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.ranges import islands, size, sweep
from spark.reconcile.ledgers.state import Inventory, Process

ID_MEASURES = (
    "enqueued", "copied", "confirmed", "dequeued", "acked", "fresh", "flagged", "present", "quarantined",
    "held", "late", "by_primary", "by_backup",
)  # fmt: skip


def _by(processes: Sequence[Process]) -> Column:
    out = F.lit(False)
    for writer, incarnation in processes:
        out = out | ((F.col("writer") == writer) & (F.col("incarnation") == incarnation))
    return out


def _digit(digits: Mapping[Process, int]) -> Column:
    cases = [(_by([process]), F.lit(digit).cast("long")) for process, digit in digits.items()]
    if not cases:
        return F.lit(0).cast("long")
    out = F.when(*cases[0])
    for test, digit in cases[1:]:
        out = out.when(test, digit)
    return out.otherwise(0)


def id_segments(
    events: DataFrame, confirmed: DataFrame, late: DataFrame, inventory: Inventory,
    digits: Mapping[Process, int],
) -> DataFrame:  # fmt: skip
    """queue, epoch, first..last and ID_MEASURES: the number of records of each sort that cover the segment.

    enqueued (by primaries), copied (by backups), confirmed (to the publisher), dequeued (with a reason, by
    any node), acked (by a consumer's own ledger), fresh and flagged (received without and with
    `redelivered`), present (in the final inventory), quarantined, held (once in a last owner's queue), late
    (see `order`), by_primary and by_backup. The last two count dequeues by processes that ever served, in the
    role that they had at that time, by the `digits` of each process (see `dequeues`).
    """
    kind, reason = F.col("kind"), F.coalesce("reason", F.lit(""))
    put = kind.isin("enqueue", "backup_enqueue")
    marks = {
        "enqueued": kind == "enqueue",
        "copied": kind == "backup_enqueue",
        "dequeued": kind.isin("dequeue", "backup_dequeue") & (reason != ""),
        "acked": kind == "acked",
        "fresh": (kind == "received") & (reason != "redelivered"),
        "flagged": (kind == "received") & (reason == "redelivered"),
        "present": (kind == "present") & _by(inventory.processes),
        "quarantined": kind == "quarantine",
        "held": put & _by(inventory.owners),
    }
    digit = _digit(digits)
    counts = {name: F.when(mark, 1).otherwise(0) for name, mark in marks.items()}
    counts["by_primary"] = F.when(kind == "dequeue", digit).otherwise(0)
    counts["by_backup"] = F.when(kind == "backup_dequeue", digit).otherwise(0)
    kinds = ("dequeue", "backup_dequeue", "acked", "received", "present", "quarantine")
    rows = events.where(put | kind.isin(*kinds)).where("queue is not null and epoch is not null")
    deltas = _measured(rows, counts)
    for extra, name in ((confirmed, "confirmed"), (late, "late")):
        deltas = deltas.unionByName(_measured(extra, {name: F.lit(1)}))
    return sweep(deltas, ["queue", "epoch"], ID_MEASURES)


def _measured(rows: DataFrame, values: dict[str, Column]) -> DataFrame:
    return rows.select(
        "queue", "epoch", "first", "last", *(values.get(name, F.lit(0)).alias(name) for name in ID_MEASURES)
    )


SEEN = "enqueued + copied > 0"
RECEIVED = "fresh + flagged > 0"
FATE = "dequeued + acked + present > 0"
_ONES = 0x0111_1111_1111_1111


def _digits_used(name: str) -> str:
    parts = " | ".join(f"shiftright({name}, {place})" for place in range(4))
    return f"(({parts}) & {_ONES}L)"


SUSPICIONS = {
    "gone_twice": f"(by_primary & {14 * _ONES}L) != 0 or dequeued > 12"
    f" or ({_digits_used('by_primary')} & {_digits_used('by_backup')}) != 0",
    "put_twice": "enqueued > 1",
    "alone": f"enqueued > 0 and copied = 0 and quarantined = 0 and not ({FATE})",
    "given_again": "flagged > 0 and dequeued > 0",
}
"""Suspicious segments: possibly dequeued twice by one process (a digit above 1, or a digit in both roles),
possibly enqueued by two, on one node only without a fate, or possibly received after the dequeue."""

LABELS = {
    "lost": f"confirmed > 0 and not ({FATE})",
    "unaccounted": f"confirmed = 0 and held > 0 and quarantined = 0 and not ({FATE})",
    "never-published": f"{RECEIVED} and not ({SEEN})",
    "duplicate-redelivered": "fresh <= 1 and fresh + flagged > 1",
    "duplicate-illegal": "fresh > 1",
    "reordered": "late > 0 and fresh = 1",
}
"""Labels of segments by their counts. An unflagged second delivery is a duplicate, and not also late."""


def id_findings(segments: DataFrame) -> DataFrame:
    """FINDING_SCHEMA by queue and epoch: the labels of LABELS.

    `note` says where else the id occurs (quarantined, received), or that it lies `beyond` all ids that any
    broker enqueued in this queue and epoch.
    """
    labels = F.array_compact(F.array(*(F.when(F.expr(test), name) for name, test in LABELS.items())))
    end = F.max(F.when(F.expr(SEEN), F.col("last"))).over(Window.partitionBy("queue", "epoch"))
    beyond = F.expr(f"{RECEIVED} and not ({SEEN})") & (end.isNull() | (F.col("first") > end))
    seen = F.when(F.col("quarantined") > 0, "quarantined").when(beyond, "beyond")
    note = seen.when(F.expr(RECEIVED), "received").alias("note")
    found = segments.select("queue", "epoch", "first", "last", F.explode(labels).alias("label"), note)
    noted = F.when(F.col("label").isin("lost", "unaccounted", "never-published"), F.col("note"))
    return islands(found.withColumn("note", noted), ["label", "queue", "epoch", "note"])


def id_totals(segments: DataFrame) -> DataFrame:
    """The number of ids for each queue and epoch.

    enqueued (by any node), confirmed, received, deliveries (with repetitions), dequeued (by brokers), acked
    (by consumers), present, quarantined, unconfirmed (without a fate: lost in a failover before their
    confirm, as their publisher knows), and each of SUSPICIONS."""
    tests = {
        "enqueued": SEEN,
        "confirmed": "confirmed > 0",
        "received": RECEIVED,
        "dequeued": "dequeued > 0",
        "acked": "acked > 0",
        "present": "present > 0",
        "quarantined": "quarantined > 0",
        "unconfirmed": f"{SEEN} and confirmed = 0 and not ({FATE})",
    }
    tests |= SUSPICIONS
    counts = [F.sum(F.when(F.expr(test), size()).otherwise(0)).alias(name) for name, test in tests.items()]
    deliveries = F.sum(size() * (F.col("fresh") + F.col("flagged"))).alias("deliveries")
    return segments.groupBy("queue", "epoch").agg(*counts, deliveries)


def quiesce_findings(events: DataFrame) -> DataFrame:
    """FINDING_SCHEMA: copy-differs = at a consistency checkpoint, some node that recorded it lacked the
    id."""
    points = events.where("kind = 'quiesce'")
    nodes = points.groupBy("name").agg(F.countDistinct("writer").alias("nodes"))
    held = points.where("first <= last").withColumn("held", F.lit(1))
    counted = sweep(held, ["name", "queue", "epoch"], ["held"]).join(F.broadcast(nodes), "name")
    found = counted.where("held != nodes").select(
        F.lit("copy-differs").alias("label"), "queue", "epoch", "first", "last", "name"
    )
    return islands(found.withColumnRenamed("name", "note"), ["label", "queue", "epoch", "note"])
