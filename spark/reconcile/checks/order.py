"""Checks of order (invariant 21): receipts and enqueues follow the order of publishing."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.ranges import size
from spark.reconcile.checks.hops import is_link


def _reach_before(partition: list[str], order: list[str], column: str) -> Column:
    """The highest value of `column` in the rows before this one."""
    along = Window.partitionBy(*partition).orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    return F.max(column).over(along)


def late_receipts(events: DataFrame) -> DataFrame:
    """queue, epoch, first..last that one consumer process received after a later id, not as a redelivery."""
    fresh = events.where((F.col("kind") == "received") & (F.coalesce("reason", F.lit("")) != "redelivered"))
    reach = _reach_before(["writer", "incarnation", "queue", "epoch"], ["wseq"], "last")
    behind = fresh.withColumn("_reach", reach).where(F.col("first") <= F.col("_reach"))
    return behind.select("queue", "epoch", "first", F.least("last", "_reach").alias("last"))


def enqueue_findings(events: DataFrame) -> DataFrame:
    """FINDING_SCHEMA by queue and epoch, from records of primaries only:

    * reordered-enqueue: an earlier publish of a session has a later id in the queue;
    * enqueued-twice: one publish has two ids in one queue; of a link, in one epoch: hop-doubled.
    """
    last_tag = F.col("pfirst") + size() - 1
    runs = events.where(
        (F.col("kind") == "enqueue") & F.col("prod").isNotNull() & F.col("pfirst").isNotNull()
    ).withColumn("plast", last_tag)  # fmt: skip
    by_id = _reach_before(["writer", "queue", "epoch", "prod"], ["first"], "plast")
    # Over epochs a link may take messages again: see `hops.again`.
    life = F.when(is_link(), F.col("epoch")).otherwise(F.lit(0))
    by_tag = _reach_before(["queue", "prod", "_life"], ["pfirst", "epoch", "first"], "plast")
    judged = runs.withColumn("_life", life).withColumn("_by_id", by_id).withColumn("_by_tag", by_tag)
    twice = F.col("pfirst") <= F.col("_by_tag")
    doubled = F.when(is_link(), "hop-doubled").otherwise("enqueued-twice")
    label = F.when(twice, doubled).when(F.col("pfirst") <= F.col("_by_id"), "reordered-enqueue")
    found = judged.select(label.alias("label"), "queue", "epoch", "prod", "first", "last")
    return found.where("label is not null")
