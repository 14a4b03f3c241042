"""Weighted quantiles from histograms whose size does not grow with the number of messages.

A bin is 1/128 of its power of two, and its middle stands for all durations in it: at most 0.4 % off, exact
below 256 us. Counts of bins can be added over any period; quantiles cannot.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

KEPT_BITS = 8
SHARES = {"p50_us": 500, "p99_us": 990, "max_us": 1000}
"""Columns of `quantiles`, each with its share in thousandths."""


def middle(value: Column) -> Column:
    """The middle of the bin of a duration in microseconds. Negative durations count as 0."""
    value = F.greatest(value, F.lit(0)).cast("long")
    dropped = F.greatest(F.length(F.bin(value)) - KEPT_BITS, F.lit(0))
    width = F.pow(F.lit(2.0), dropped).cast("long")
    return value - value % width + F.floor(width / 2).cast("long")


def histogram(pieces: DataFrame, slot_us: int) -> DataFrame:
    """PIECE_SCHEMA -> HISTOGRAM_SCHEMA, by time slot."""
    slot = F.floor(F.col("at_us") / slot_us).cast("long").alias("slot")
    binned = pieces.select("measure", "key", slot, middle(F.col("latency_us")).alias("latency_us"), "n")
    return binned.groupBy("measure", "key", "slot", "latency_us").agg(F.sum("n").alias("n"))


def quantiles(counts: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Columns: keys, n, and those of SHARES: the smallest duration that this share of messages does not
    exceed."""
    added = counts.groupBy(*keys, "latency_us").agg(F.sum("n").alias("n"))
    group = Window.partitionBy(*keys)
    upto = group.orderBy("latency_us").rowsBetween(Window.unboundedPreceding, 0)
    ranked = added.withColumn("_upto", F.sum("n").over(upto)).withColumn("_all", F.sum("n").over(group))
    enough = {
        name: F.min(F.when(F.col("_upto") * 1000 >= F.col("_all") * share, F.col("latency_us")))
        for name, share in SHARES.items()
    }
    return ranked.groupBy(*keys).agg(F.sum("n").alias("n"), *(c.alias(name) for name, c in enough.items()))
