"""Did every confirm wait? Confirmed ids against what each in-sync backup had acknowledged (invariant 2)."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.ranges import islands, overlap

FOREVER = 2**62
CLOCK_TOLERANCE_US = 250_000
"""A confirm this much earlier than an exclusion, by the clocks of two writers, is not yet called early."""


def sync_intervals(events: DataFrame) -> DataFrame:
    """view, owner, backup, n_first..n_last (positions it had to acknowledge), excluded_us (null: it stayed).

    From the `insync` records of each epoch's owner, the writer of its `promote`.
    """
    owners = events.where("kind = 'promote'").select("view", F.col("writer").alias("owner")).distinct()
    changes = events.where("kind = 'insync'").join(F.broadcast(owners), "view").where("writer = owner")
    along = Window.partitionBy("view").orderBy("incarnation", "wseq")
    names = F.transform(F.split(F.coalesce("name", F.lit("")), ","), lambda name: F.trim(name))
    listed = changes.select("view", "owner", "incarnation", "wseq", "ts_us", "n", names.alias("names"))
    spans = listed.select(
        "view", "owner", "names", F.coalesce("n", F.lit(0)).alias("n_first"),
        (F.coalesce(F.lead("n").over(along), F.lit(FOREVER)) - 1).alias("n_last"),
        F.lead("names").over(along).alias("next_names"), F.lead("ts_us").over(along).alias("next_us"),
    ).withColumn("backup", F.explode("names"))  # fmt: skip
    left = F.col("next_names").isNotNull() & ~F.array_contains("next_names", F.col("backup"))
    return spans.where("backup != owner and backup != ''").select(
        "view", "owner", "backup", "n_first", "n_last", F.when(left, F.col("next_us")).alias("excluded_us")
    )


def acknowledged(events: DataFrame) -> DataFrame:
    """view, backup, n_first..n_last acknowledged to the primary, tail = the last position acknowledged."""
    acks = events.where("kind = 'replicated'").select("epoch", F.col("peer").alias("backup"), "first", "last")
    tail = F.max("last").over(Window.partitionBy("epoch", "backup"))
    return islands(acks, ["epoch", "backup"]).select(
        F.col("epoch").alias("view"), "backup", F.col("first").alias("n_first"),
        F.col("last").alias("n_last"), tail.alias("tail"),
    )  # fmt: skip


def early_confirms(events: DataFrame, confirmed: DataFrame) -> DataFrame:
    """queue, epoch, first..last (ids), backup: confirmed while `backup`, in sync, had not acknowledged them.

    Beyond a backup's last acknowledgement two things excuse a missing one: the confirm came after the
    backup's exclusion, or the backup's own ledger shows that it applied the run (the primary was killed
    before it could write that down).
    """
    runs = confirmed.where("kind = 'enqueue' and n is not null")
    due = runs.join(F.broadcast(sync_intervals(events)), "view").where("n between n_first and n_last")
    due = due.drop("n_first", "n_last")
    acked = acknowledged(events)
    meets = F.expr("d.view = a.view and d.backup = a.backup and d.n between a.n_first and a.n_last")
    unacked = due.alias("d").join(F.broadcast(acked.alias("a")), meets, "left_anti")
    tails = acked.groupBy("view", "backup").agg(F.max("tail").alias("tail"))
    open_ones = unacked.join(F.broadcast(tails), ["view", "backup"], "left")
    open_ones = open_ones.withColumn("beyond", F.col("n") > F.coalesce("tail", F.lit(-1)))
    sure = open_ones.where("not beyond")
    stayed = open_ones.where("beyond and excluded_us is null")
    copied = islands(events.where("kind = 'backup_enqueue'"), ["writer", "queue", "epoch"])
    inside = F.expr(
        "s.backup = c.writer and s.queue = c.queue and s.epoch = c.epoch"
        " and s.first >= c.first and s.last <= c.last"
    )
    stayed = stayed.alias("s").join(copied.alias("c"), inside, "left_anti")
    columns = ["queue", "epoch", "first", "last", "backup"]
    return (
        sure.select(columns)
        .unionByName(stayed.select(columns))
        .unionByName(_before_exclusion(events, open_ones))
    )


def _before_exclusion(events: DataFrame, open_ones: DataFrame) -> DataFrame:
    """Of the unacknowledged runs of a backup that was excluded: those confirmed before the exclusion."""
    runs = open_ones.where("beyond and excluded_us is not null").select(
        "prod", F.col("tag").alias("first"), (F.col("tag") + F.col("last") - F.col("first")).alias("last"),
        "queue", "epoch", F.col("first").alias("id"), "backup", "excluded_us",
    )  # fmt: skip
    confirms = events.where("kind = 'confirmed'").select("prod", "first", "last", "ts_last_us")
    early = overlap(runs, confirms, ["prod"]).where(
        F.col("ts_last_us") + CLOCK_TOLERANCE_US < F.col("excluded_us")
    )
    first = F.col("id") + F.col("first") - F.col("left_first")
    return early.select(
        "queue",
        "epoch",
        first.alias("first"),
        (first + F.col("last") - F.col("first")).alias("last"),
        "backup",
    )
