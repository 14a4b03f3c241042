"""Counts ids sent, confirmed, received, redelivered and acked, by time slot."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

KINDS = ("sent", "confirmed", "received", "acked")


def activity(records: DataFrame, slot_us: int) -> DataFrame:
    """ACTIVITY_SCHEMA. `redelivered` ids are also among the `received` ones."""
    slot = F.floor(F.col("ts_us") / slot_us).cast("long").alias("slot")
    flagged = F.when((F.col("kind") == "received") & (F.col("reason") == "redelivered"), "redelivered")
    names = F.explode(F.array_compact(F.array(F.col("kind"), flagged))).alias("name")
    rows = records.where(F.col("kind").isin(*KINDS))
    one = rows.select("writer", "queue", slot, names, F.expr("last - first + 1").alias("n"))
    return one.groupBy("name", "writer", F.col("queue").alias("key"), "slot").agg(F.sum("n").alias("n"))


def pauses_near(events: DataFrame, moments: DataFrame, reach_us: int) -> DataFrame:
    """Pauses in confirms (from_us, to_us) within `reach_us` of one of the `moments` (ts_us), from condensed
    events.

    Unlike `rates.pauses`, it is not crowded out by nights in which nobody publishes.
    """
    from spark.rates import gaps

    near = (F.col("from_us") <= F.col("ts_us") + reach_us) & (F.col("to_us") >= F.col("ts_us") - reach_us)
    return gaps(events).join(F.broadcast(moments), near).select("from_us", "to_us").distinct()
