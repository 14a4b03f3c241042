"""Follows messages through the ledgers, as weighted pieces: sent, enqueued, confirmed, received.

Ranges of publish tags, positions or ids are intersected (`ranges.overlap`). Each intersection is a piece with
two times. A message with only one of the two in the ledgers gives no piece.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.ranges import overlap, size, sweep
from spark.schema import GREATEST

CONFIRM, DELIVERY, REPLICATION = "confirm", "end to end", "replication"
"""Names of the measures."""


def earliest(ranges: DataFrame, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
    """Disjoint ranges, each with the values of the least row that covers it.

    Rows compare by `values`, in the given order. Columns: keys, first, last, values.
    """
    kept = ranges.select(*keys, "first", "last", F.struct(*values).alias("_least"))
    segments = sweep(kept.withColumn("_rows", F.lit(1)), keys, ["_rows"]).drop("_rows")
    least = overlap(kept, segments, keys).groupBy(*keys, "first", "last").agg(F.min("_least").alias("_least"))
    return least.select(*keys, "first", "last", "_least.*")


def _sends(records: DataFrame) -> DataFrame:
    """Sends by logical number.

    Columns: stream, prod, first, last, shift (tag minus number), sent_us, producer, known (the greatest
    number that the stream had sent before).
    """
    process = F.concat_ws("#", "writer", F.col("incarnation").cast("string"))
    number = F.coalesce("pfirst", "first")
    rows = records.where("kind = 'sent' and prod is not null").select(
        F.when(F.col("pfirst").isNotNull(), process).otherwise(F.col("prod")).alias("stream"), "prod", "wseq",
        number.alias("first"), (number + size() - 1).alias("last"), (F.col("first") - number).alias("shift"),
        F.col("ts_us").alias("sent_us"), F.col("writer").alias("producer"),
    )  # fmt: skip
    before = Window.partitionBy("stream").orderBy("wseq").rowsBetween(Window.unboundedPreceding, -1)
    return rows.withColumn("known", F.max("last").over(before)).drop("wseq")


def origins(records: DataFrame) -> DataFrame:
    """ORIGIN_SCHEMA. A resend has the old number of its message, and counts from the message's first send."""
    sends = _sends(records)
    begin = F.greatest("first", F.coalesce(F.col("known") + 1, F.col("first")))
    fresh = sends.withColumn("first", begin).where("first <= last")
    again = sends.where("known >= first").select(
        "stream", F.col("prod").alias("_prod"), F.col("shift").alias("_shift"), "first",
        F.least("last", "known").alias("last"),
    )  # fmt: skip
    tried = overlap(sends.drop("prod", "shift", "known"), again, ["stream"])
    first_tries = earliest(tried, ["stream", "_prod", "_shift"], ["sent_us", "producer"])
    old = first_tries.withColumnsRenamed({"_prod": "prod", "_shift": "shift"})
    columns = ("prod", "producer", "first", "last", "sent_us", "shift")
    both = fresh.select(*columns).unionByName(old.select(*columns))
    first, last = F.col("first") + F.col("shift"), F.col("last") + F.col("shift")
    return both.select("prod", "producer", first.alias("first"), last.alias("last"), "sent_us")


def _pieces(
    met: DataFrame, measure: str, key: str, begin: str, end: str, n: str = "last - first + 1"
) -> DataFrame:
    return met.select(
        F.lit(measure).alias("measure"), F.col(key).alias("key"), F.col(end).alias("at_us"),
        (F.col(end) - F.col(begin)).alias("latency_us"), F.expr(n).alias("n"),
    )  # fmt: skip


def confirm_pieces(records: DataFrame, sent: DataFrame) -> DataFrame:
    """PIECE_SCHEMA by producer: from the first send of a message to its confirm. Both times are the
    producer's."""
    confirmed = records.where("kind = 'confirmed'").select(
        "prod", "first", "last", F.col("ts_us").alias("confirmed_us")
    )
    return _pieces(overlap(sent, confirmed, ["prod"]), CONFIRM, "producer", "sent_us", "confirmed_us")


def placed(records: DataFrame) -> DataFrame:
    """PLACED_SCHEMA by the primary's record, or by the backup's if the primary's is not in the ledgers."""
    rows = records.where("kind in ('enqueue', 'backup_enqueue') and prod is not null and pfirst is not null")
    runs = rows.select(
        "prod", "queue", "epoch", (F.col("first") - F.col("pfirst")).alias("shift"),
        F.col("pfirst").alias("first"), (F.col("pfirst") + size() - 1).alias("last"),
        F.when(F.col("kind") == "enqueue", 0).otherwise(1).alias("copy"),
        F.col("ts_us").alias("enqueued_us"), F.col("writer").alias("broker"),
    )  # fmt: skip
    once = earliest(runs, ["prod", "queue", "epoch", "shift"], ["copy", "enqueued_us", "broker"])
    return once.select(
        "prod", "queue", "broker", "epoch", "first", "last", (F.col("first") + F.col("shift")).alias("id"),
        "enqueued_us",
    )  # fmt: skip


def receipts(records: DataFrame) -> DataFrame:
    """RECEIPT_SCHEMA. For an id received more than once, the earliest time counts, whatever the clock."""
    rows = records.where("kind = 'received'").select(
        "queue",
        "epoch",
        "first",
        "last",
        F.col("ts_us").alias("received_us"),
        F.col("writer").alias("consumer"),
    )
    return earliest(rows, ["queue", "epoch"], ["received_us", "consumer"])


def deliveries(sent: DataFrame, put: DataFrame, received: DataFrame) -> DataFrame:
    """Ids from their producer to their first consumer.

    Columns: queue, epoch, first, last, and the names and times of ORIGIN_SCHEMA, PLACED_SCHEMA and
    RECEIPT_SCHEMA. Each time is by its own writer's clock.
    """
    ids = F.col("id") + F.col("first") - F.col("left_first")
    entered = overlap(put, sent, ["prod"]).select(
        "queue", "epoch", ids.alias("first"), (ids + size() - 1).alias("last"), "sent_us", "producer",
        "enqueued_us", "broker",
    )  # fmt: skip
    return overlap(entered, received, ["queue", "epoch"]).drop("left_first")


def _in_sync(records: DataFrame) -> DataFrame:
    """For each primary and peer, the positions at which the peer was in sync. Few rows.

    Columns: writer, view, peer, begin, end.
    """
    after = Window.partitionBy("writer", "incarnation", "view").orderBy("wseq")
    changes = records.where("kind = 'insync' and n is not null and name is not null")
    spans = changes.withColumn("end", F.coalesce(F.lead("n").over(after) - 1, F.lit(GREATEST)))
    names = F.explode(F.split("name", r"\s*,\s*")).alias("peer")
    return spans.select("writer", "view", names, F.col("n").alias("begin"), "end").where("peer != writer")


def replication_pieces(records: DataFrame) -> DataFrame:
    """PIECE_SCHEMA by backup and kind of ack (applied, durable): from a primary's enqueue to the ack of its
    position.

    Both times are the primary's. Only positions at which the backup was in sync count; those that it fetched
    to catch up do not.
    """
    put = records.where("kind = 'enqueue' and n is not null").select(
        "writer", "view", F.col("n").alias("at"), size().alias("n"), F.col("ts_us").alias("enqueued_us")
    )
    put = put.withColumn("first", F.col("at")).withColumn("last", F.col("at")).drop("at")
    way = F.concat_ws("", "peer", F.lit(", "), F.coalesce("reason", F.lit("applied")))
    acks = records.where("kind = 'replicated'").select(
        "writer", F.col("epoch").alias("view"), "peer", way.alias("way"), "first", "last",
        F.col("ts_us").alias("acked_us"),
    )  # fmt: skip
    counted = acks.join(F.broadcast(_in_sync(records)), ["writer", "view", "peer"])
    first, last = F.greatest("first", "begin"), F.least("last", "end")
    counted = counted.withColumn("first", first).withColumn("last", last).where("first <= last")
    once = earliest(counted, ["writer", "view", "way"], ["acked_us"])
    return _pieces(overlap(put, once, ["writer", "view"]), REPLICATION, "way", "enqueued_us", "acked_us", "n")
