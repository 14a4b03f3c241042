"""Where ledgers begin that were pruned: of each queue and epoch, and of each session, up to which id or tag
records are gone. Above, every record that was ever written is there, whichever ledgers were pruned and how
far, so that what is found there is as certain as in whole ledgers; below nothing is judged.

The marks come from `*.pruned.ledger.*`: `condense` makes events of kind `horizon` of what ids and tags stand
in them, which is the highest of each (`understudy.ledger.retention`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

WHOLE = frozenset({"torn"})
"""Labels of findings about a range of tags as one thing, which does not count if it begins below."""


@dataclass(slots=True, frozen=True)
class Horizon:
    """`ids`: queue, epoch, floor. `tags`: prod, floor. Small: a row for each queue and epoch, and session."""

    ids: DataFrame
    tags: DataFrame

    def of_ids(self, frame: DataFrame) -> DataFrame:
        """What of queue, epoch, first..last and more lies above."""
        return _above(frame, self.ids, ["queue", "epoch"])

    def of_findings(self, frame: DataFrame) -> DataFrame:
        """The same of FINDING_SCHEMA or some of its columns: ids, or publish tags where there is no queue."""
        if "epoch" in frame.columns:
            return self.of_ids(frame)
        if "queue" in frame.columns:
            return frame  # logical numbers, of sends that are there
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
