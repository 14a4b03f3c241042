"""Checks that there is one primary at a time (invariant 8): no ids from two, no confirms after a
successor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.ranges import islands, overlap, size, sweep
from spark.reconcile.checks.clocks import Clocks
from spark.reconcile.ledgers.state import LedgerState


def enqueued_by_two(events: DataFrame, suspects: DataFrame) -> DataFrame:
    """FINDING_SCHEMA by queue and epoch: ids that two processes assigned. `suspects`: queue, epoch,
    first..last of ids with more than one `enqueue`.

    A primary assigns ids in the epoch that it serves. Ids of lower epochs belong to a queue mirror: after a
    kill, it fetches again what its disk did not have.
    """
    rows = events.where("kind = 'enqueue' and epoch >= view").select(
        "writer", "incarnation", "queue", "epoch", "first", "last"
    )
    near = overlap(rows, islands(suspects, ["queue", "epoch"]), ["queue", "epoch"], small=True)
    each = islands(near, ["writer", "incarnation", "queue", "epoch"]).withColumn("processes", F.lit(1))
    found = sweep(each, ["queue", "epoch"], ["processes"]).where("processes > 1")
    return islands(
        found.select(F.lit("enqueued-by-two").alias("label"), "queue", "epoch", "first", "last"),
        ["label", "queue", "epoch"],
    )


def only_twice(twice: DataFrame, by_two: DataFrame) -> DataFrame:
    """The findings of `enqueued-twice` without those of ids that two processes assigned."""
    keys = ["queue", "epoch"]
    hits = overlap(
        twice.select(*keys, "first", "last"), by_two.select(*keys, "first", "last"), keys, small=True
    )
    hit = hits.select(*keys, F.col("left_first").alias("first")).distinct()
    return twice.join(hit, [*keys, "first"], "left_anti")


@dataclass(slots=True, frozen=True)
class Late:
    """Enqueues by the owner of epoch `view` after `after_us` (its own clock) came after the first enqueue of
    a later epoch, at `next_us` (the clock of `successor`)."""

    writer: str
    incarnation: int
    view: int
    after_us: int
    successor: str
    next_us: int


def late_enqueues(ledgers: LedgerState, clocks: Clocks) -> list[Late]:
    """Enqueues that a primary recorded after its successor had certainly begun. Normally none."""
    out = []
    for old in ledgers.promotions:
        writer = ledgers.writers[old.node, old.incarnation]
        if old.epoch not in writer.enqueues:
            continue
        for new in sorted(ledgers.promotions, key=lambda p: p.epoch):
            successor = ledgers.writers[new.node, new.incarnation]
            begun = successor.enqueues.get(new.epoch)
            if new.epoch <= old.epoch or new.node == old.node or begun is None:
                continue
            if ledgers.line_of(new) != ledgers.line_of(old):
                continue
            ahead = clocks.ahead_at_most(old.node, new.node)
            if ahead is not None and writer.enqueues[old.epoch][1] > begun[0] + ahead:
                out.append(Late(*writer.process, old.epoch, begun[0] + ahead, new.node, begun[0]))
                break
    return out


LATE = "writer string, incarnation long, view long, after_us long, successor string, next_us long"


def overlapping(events: DataFrame, late: Sequence[Late], ledgers: LedgerState, clocks: Clocks) -> DataFrame:
    """FINDING_SCHEMA `two-primaries`, note overlap, by queue and epoch: ids enqueued and confirmed by the
    owner of an epoch, certainly after the owner of a later epoch had begun."""
    session = events.sparkSession
    table = F.broadcast(session.createDataFrame([astuple(one) for one in late], LATE))
    runs = events.where("kind = 'enqueue' and prod is not null and pfirst is not null").select(
        "writer", "incarnation", "view", "ts_us", "prod", "pfirst", "queue", "epoch", "first", "last"
    )
    runs = runs.join(table, ["writer", "incarnation", "view"]).where("ts_us > after_us").select(
        "prod", F.col("pfirst").alias("first"), (F.col("pfirst") + size() - 1).alias("last"),
        (F.col("first") - F.col("pfirst")).alias("shift"), "queue", "epoch", "successor", "next_us",
    )  # fmt: skip
    producers = sorted({w.name for w in ledgers.writers.values() if w.role == "producer"})
    offsets = [
        (name, successor, ahead)
        for successor in sorted({one.successor for one in late})
        for name in producers
        if (ahead := clocks.ahead_at_most(name, successor)) is not None
    ]
    bounds = F.broadcast(session.createDataFrame(offsets, "producer string, successor string, ahead_us long"))
    confirms = events.where("kind = 'confirmed'").select(
        F.col("writer").alias("producer"), "prod", "first", "last", "ts_us"
    )
    met = overlap(confirms, runs, ["prod"], small=True).join(bounds, ["producer", "successor"])
    found = met.where("ts_us > next_us + ahead_us").select(
        F.lit("two-primaries").alias("label"), "queue", "epoch", F.lit("overlap").alias("note"),
        (F.col("first") + F.col("shift")).alias("first"), (F.col("last") + F.col("shift")).alias("last"),
    )  # fmt: skip
    return islands(found, ["label", "queue", "epoch", "note"])
