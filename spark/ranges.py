"""Algebra of inclusive integer ranges as DataFrame transforms: sweep, islands, overlap.

The core idea of the whole job: a range adds +1 at `first` and -1 at `last + 1`; running sums over these edges
cut the axis into segments, each with a count for every measure. The cost grows with the number of ranges,
never with the number of ids in them, and no range is ever compared with all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

OVERLAP_WIDTH = 4096
"""Ids in a bucket of `overlap`. Most ranges should lie in one bucket, and few should share it."""


def settle(frame: DataFrame, *, large: bool = False) -> DataFrame:
    """Cache a frame that is used more than once, and cut its lineage.

    With the lineage, every later step would plan all earlier ones again; on small ledgers this takes longer
    than the work itself. In one process a local checkpoint does both. On a cluster a local checkpoint does
    not survive the loss of an executor, so the frame is only cached and keeps its lineage. Spark Connect
    sends the whole plan with each step, and rejects deep plans; there the checkpoint has two copies, so that
    one executor may be lost. `large` rows of some MB go to disk, since they would distort Spark's size
    estimates.
    """
    if (frame.sparkSession.conf.get("spark.master") or "").startswith("local"):
        if large:
            return frame.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)
        return frame.localCheckpoint(eager=False)
    if is_remote():
        return frame.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK_2)
    return frame.persist()


def size(first: str = "first", last: str = "last") -> Column:
    """Number of ids in a range."""
    return F.col(last) - F.col(first) + 1


def sweep(deltas: DataFrame, keys: Sequence[str], measures: Sequence[str]) -> DataFrame:
    """Overlapping ranges -> disjoint segments with, for each measure, the sum over the ranges that cover it.

    `deltas` has keys, first, last and measures (null counts as 0). Segments where all are 0 are left out.
    """

    def edge(at: Column, sign: int) -> Column:
        values = (F.coalesce(F.col(name), F.lit(0)).cast("long") * sign for name in measures)
        return F.struct(
            at.alias("_at"), *(value.alias(name) for value, name in zip(values, measures, strict=True))
        )

    both = F.inline(F.array(edge(F.col("first"), 1), edge(F.col("last") + 1, -1)))
    edges = deltas.where("first <= last").select(*keys, both)
    points = edges.groupBy(*keys, "_at").agg(*(F.sum(name).alias(name) for name in measures))
    along = Window.partitionBy(*keys).orderBy("_at")
    segments = points.select(
        *keys, F.col("_at").alias("first"), (F.lead("_at").over(along) - 1).alias("last"),
        *(F.sum(name).over(along).alias(name) for name in measures),
    )  # fmt: skip
    covered = reduce(lambda a, b: a | b, (F.col(name) != 0 for name in measures))
    return segments.where(F.col("last").isNotNull() & covered)


def islands(ranges: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Union of ranges: touching or overlapping ranges become one. Keeps only keys, first and last."""
    along = Window.partitionBy(*keys).orderBy("first")
    before = along.rowsBetween(Window.unboundedPreceding, -1)
    reach = F.max("last").over(before)
    begins = F.when(reach.isNull() | (F.col("first") > reach + 1), 1).otherwise(0)
    numbered = ranges.select(*keys, "first", "last", begins.alias("_begins")).select(
        *keys,
        "first",
        "last",
        F.sum("_begins").over(along.rowsBetween(Window.unboundedPreceding, 0)).alias("_island"),
    )
    joined = numbered.groupBy(*keys, "_island").agg(
        F.min("first").alias("first"), F.max("last").alias("last")
    )
    return joined.drop("_island")


def overlap(left: DataFrame, right: DataFrame, keys: Sequence[str], *, small: bool = False) -> DataFrame:
    """Pairs of overlapping ranges, with the columns of both sides, which share only keys, first and last.

    `first` and `last` of the result are the intersection; `left_first` is the start of the left range.
    `small`: the right side fits in memory. Buckets avoid comparing every pair.
    """

    def bucket(value: Column) -> Column:
        return F.shiftright(value, OVERLAP_WIDTH.bit_length() - 1)

    def spread(ranges: DataFrame, first: str, last: str) -> DataFrame:
        renamed = ranges.withColumnsRenamed({"first": first, "last": last}).where(F.col(first) <= F.col(last))
        return renamed.withColumn("_bucket", F.explode(F.sequence(bucket(F.col(first)), bucket(F.col(last)))))

    a = spread(left, "left_first", "_left_last")
    b = spread(right, "_right_first", "_right_last")
    first, last = F.greatest("left_first", "_right_first"), F.least("_left_last", "_right_last")
    pairs = a.join(F.broadcast(b) if small else b, [*keys, "_bucket"])
    met = pairs.where((first <= last) & (F.col("_bucket") == bucket(first)))
    return met.withColumn("first", first).withColumn("last", last).drop(
        "_bucket", "_left_last", "_right_first", "_right_last"
    )  # fmt: skip
