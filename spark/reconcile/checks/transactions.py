"""Checks that a node has a transaction as a whole or not at all (invariant 7)."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.ranges import islands, overlap, settle, size
from spark.reconcile.checks.quarantine import replicated_queues
from spark.reconcile.ledgers.state import LedgerState

COMMIT = ["prod", "c_first", "c_last", "c_view", "c_n"]
PROCESS = ["writer", "incarnation"]


def torn(events: DataFrame, ledgers: LedgerState) -> DataFrame:
    """FINDING_SCHEMA by prod: tags of a committed transaction of which a node (the note) has only a part.

    Unrouted messages, messages of queues that are not replicated, and messages that a queue left out, because
    it had their numbers, count as present. The last records of a
    killed process may be incomplete, and are not judged.
    """
    commits = events.where("kind = 'commit'").select(
        "prod", "first", "last", F.col("first").alias("c_first"), F.col("last").alias("c_last"),
        F.col("view").alias("c_view"), F.col("n").alias("c_n"),
    )  # fmt: skip
    put = events.where("kind in ('enqueue', 'backup_enqueue') and prod is not null and pfirst is not null")
    tags = put.select(
        *PROCESS, "kind", "queue", "view", "n", F.coalesce("ts_last_us", "ts_us").alias("end_us"), "prod",
        F.col("pfirst").alias("first"), (F.col("pfirst") + size() - 1).alias("last"),
    )  # fmt: skip
    have = settle(overlap(tags, commits, ["prod"], small=True).where("view = c_view and n = c_n"))
    known = events.sparkSession.createDataFrame([(q,) for q in replicated_queues(ledgers)], "queue string")
    shared = known.unionByName(have.where("kind = 'backup_enqueue'").select("queue")).distinct()
    alone = have.where("kind = 'enqueue'").join(F.broadcast(shared), "queue", "left_anti")
    unrouted = events.where("kind = 'unrouted' or kind = 'duplicate' and prod is not null").select(
        "prod", "view", "first", "last"
    )
    nowhere = overlap(unrouted, commits, ["prod"], small=True).where("view = c_view")
    elsewhere = nowhere.select(*COMMIT, "first", "last").unionByName(alone.select(*COMMIT, "first", "last"))
    who = have.select(*COMMIT, *PROCESS).distinct()
    both = have.select(*COMMIT, *PROCESS, "first", "last", "end_us").unionByName(
        elsewhere.join(F.broadcast(who), COMMIT).withColumn("end_us", F.lit(0))
    )
    latest = F.max("end_us").over(Window.partitionBy(*COMMIT, *PROCESS))
    whole = islands(both.withColumn("end_us", latest), [*COMMIT, *PROCESS, "end_us"])
    there = whole.groupBy(*COMMIT, *PROCESS, "end_us").agg(F.sum(size()).alias("tags"))
    part = there.where("tags < c_last - c_first + 1")
    killed = [(*w.process, w.last_us) for w in ledgers.writers.values() if w.end == "crashed"]
    ends = events.sparkSession.createDataFrame(killed, "writer string, incarnation long, last_us long")
    found = part.join(F.broadcast(ends), PROCESS, "left").where("last_us is null or end_us < last_us")
    return found.select(
        F.lit("torn").alias("label"), "prod", F.col("writer").alias("note"), F.col("c_first").alias("first"),
        F.col("c_last").alias("last"),
    )  # fmt: skip
