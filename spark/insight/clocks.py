"""Bounds the difference between clients' clocks and the brokers', hour by hour, from the order of events.

A message is enqueued after its send and before its confirm. It is received after its enqueue, and before its
ack removes it, apart from the consumer's flush. Each pair of events bounds the difference of two clocks. The
bounds of one hour leave an interval about as wide as the latency of the fastest message. A clock that agrees
with this interval, within TOLERANCE_US, is believed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.latency.journeys import DELIVERY
from spark.ranges import overlap

HOUR_US = 3_600_000_000
SAMPLE_US = 100_000
"""Interval in which at most one confirm or dequeue of each session or queue is used."""
TOLERANCE_US = 1_000_000
"""Differences up to this are not corrected.

Writers record events up to one flush late, so the bounds may be off by as much.
"""


def _hour(at: str) -> Column:
    return F.floor(F.col(at) / HOUR_US).cast("long").alias("hour")


def _witnesses(rows: DataFrame, keys: list[str], at: str) -> DataFrame:
    """The earliest row for each key and SAMPLE_US. Columns: keys, `at`, first, last."""
    second = F.floor(F.col("ts_us") / SAMPLE_US).alias("_second")
    picked = rows.groupBy(*keys, second).agg(F.min(F.struct("ts_us", "first", "last")).alias("_row"))
    return picked.select(*keys, F.col("_row.ts_us").alias(at), "_row.first", "_row.last")


def bounds(records: DataFrame, put: DataFrame, received: DataFrame, arrived: DataFrame) -> DataFrame:
    """BOUND_SCHEMA for each producer and consumer and each broker that it met. `arrived`: from
    `deliveries`."""
    none = F.lit(None).cast("long")
    who = (F.col("producer").alias("writer"), "broker", _hour("enqueued_us"))
    sent = arrived.select(
        *who, none.alias("low_us"), (F.col("enqueued_us") - F.col("sent_us")).alias("high_us")
    )
    confirmed = records.where("kind = 'confirmed'").withColumnRenamed("writer", "producer")
    answered = overlap(put, _witnesses(confirmed, ["prod", "producer"], "confirmed_us"), ["prod"]).select(
        *who, (F.col("enqueued_us") - F.col("confirmed_us")).alias("low_us"), none.alias("high_us")
    )
    taken = arrived.select(
        F.col("consumer").alias("writer"), "broker", _hour("enqueued_us"),
        (F.col("enqueued_us") - F.col("received_us")).alias("low_us"), none.alias("high_us"),
    )  # fmt: skip
    gone = records.where("kind = 'dequeue' and reason = 'acked'").withColumnRenamed("writer", "broker")
    removed = overlap(
        received, _witnesses(gone, ["queue", "epoch", "broker"], "dequeued_us"), ["queue", "epoch"]
    )
    acked = removed.select(
        F.col("consumer").alias("writer"), "broker", _hour("dequeued_us"), none.alias("low_us"),
        (F.col("dequeued_us") - F.col("received_us")).alias("high_us"),
    )  # fmt: skip
    each = sent.unionByName(answered).unionByName(taken).unionByName(acked)
    return each.groupBy("writer", "broker", "hour").agg(
        F.max("low_us").alias("low_us"), F.min("high_us").alias("high_us")
    )


def correction(low: Column, high: Column) -> Column:
    """What to add to the writer's time to get the broker's.

    0 if the bounds allow it, otherwise the middle of the bounds, or the only bound.
    """
    agrees = (F.coalesce(low, F.lit(0)) <= TOLERANCE_US) & (F.coalesce(high, F.lit(0)) >= -TOLERANCE_US)
    middle = F.floor((low + high) / 2).cast("long")
    return F.when(agrees, F.lit(0)).otherwise(F.coalesce(middle, low, high)).cast("long")


def delivery_pieces(arrived: DataFrame, limits: DataFrame) -> DataFrame:
    """PIECE_SCHEMA by queue: from the first send of a message to its first receipt.

    Both times are on the clock of the broker that enqueued the message.
    """
    offset = correction(F.col("low_us"), F.col("high_us"))

    def known(writer: str, name: str) -> DataFrame:
        return F.broadcast(limits.select(F.col("writer").alias(writer), "broker", "hour", offset.alias(name)))

    at_hour = arrived.withColumn("hour", _hour("enqueued_us"))
    for writer, name in (("producer", "_sent"), ("consumer", "_received")):
        at_hour = at_hour.join(known(writer, name), [writer, "broker", "hour"], "left")
    begin = F.col("sent_us") + F.coalesce("_sent", F.lit(0))
    end = F.col("received_us") + F.coalesce("_received", F.lit(0))
    return at_hour.select(
        F.lit(DELIVERY).alias("measure"), F.col("queue").alias("key"), end.alias("at_us"),
        (end - begin).alias("latency_us"), F.expr("last - first + 1").alias("n"),
    )  # fmt: skip
