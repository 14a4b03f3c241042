"""The horizon of pruned ledgers: up to which id (of a queue and epoch) or tag (of a session) records are
gone.

Above the horizon all records are there, whichever ledgers were pruned and how far; findings are as certain as
in whole ledgers. Nothing below the horizon is judged.

`*.pruned.ledger.*` files keep the highest id and tag of each (`understudy.ledger.retention`). `condense`
turns these into events of kind `horizon`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

WHOLE = frozenset({"torn"})
"""Labels of findings about a whole range of tags. They are dropped if the range begins below the horizon."""


@dataclass(slots=True, frozen=True)
class Horizon:
    """`ids`: queue, epoch, floor. `tags`: prod, floor. Small: one row per queue and epoch, or per session."""

    ids: DataFrame
    tags: DataFrame

    def of_ids(self, frame: DataFrame) -> DataFrame:
        """The parts of ranges (queue, epoch, first..last) above the horizon."""
        return _above(frame, self.ids, ["queue", "epoch"])

    def of_findings(self, frame: DataFrame) -> DataFrame:
        """The same for findings: ranges of ids, or of publish tags if there is no queue column."""
        if "epoch" in frame.columns:
            return self.of_ids(frame)
        if "queue" in frame.columns:
            return frame  # logical numbers of sends that are in the ledgers
        begun = frame.join(F.broadcast(self.tags), "prod", "left").where(
            F.col("floor").isNull() | (F.col("first") > F.col("floor")) | ~F.col("label").isin(*WHOLE)
        )
        return _above(begun.drop("floor"), self.tags, ["prod"])


def horizon(events: DataFrame) -> Horizon:
    marks = events.where("kind = 'horizon'")
    ids = marks.where("queue is not null").groupBy("queue", "epoch").agg(F.max("last").alias("floor"))
    tags = marks.where("prod is not null").groupBy("prod").agg(F.max("last").alias("floor"))
    return Horizon(ids, tags)


def _above(frame: DataFrame, floors: DataFrame, keys: list[str]) -> DataFrame:
    known = frame.join(F.broadcast(floors), keys, "left")
    first = F.greatest("first", F.coalesce(F.col("floor") + 1, F.col("first")))
    return known.withColumn("first", first).where("first <= last").select(*frame.columns)
