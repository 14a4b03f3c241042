"""What went over federation links: for the node downstream, a link queue upstream is a producer.

Its ids there are the tags of a session (`schema.LINK`). An id that the link queue was given counts as
sent, and one that it let go of as `transferred` counts as confirmed. So the checks of producers prove a hop:
what was confirmed is there, or has left its queue for a reason, once and in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.ranges import islands, size
from spark.reconcile.input.runs import Interest, Spans, expand
from spark.reconcile.ledgers.federation import origin
from spark.schema import LINK

NEVER = -1
"""A tag that no message has. It says that the ledgers of a link's node upstream are here."""


def is_link() -> Column:
    """Whether `prod` is the session of a link."""
    return F.col("prod").rlike(f"^{LINK.pattern}$")


def _by_session(rows: DataFrame, kind: str) -> DataFrame:
    session = F.concat(F.lit("link:"), "queue", F.lit(":"), F.col("epoch").cast("string"))
    named = rows.select(F.lit(kind).alias("kind"), session.alias("prod"), "first", "last")
    return islands(named, ["kind", "prod"])


def given(plain: DataFrame, packed: DataFrame, queues: Sequence[str]) -> DataFrame:
    """Events of kind `given`: prod, first..last = ids that these link queues once had, pruned ones too."""
    nothing = Interest(Spans({}))
    put = expand(packed, nothing).where(F.col("kind").isin("enqueue", "backup_enqueue"))
    pruned = plain.where("kind = 'horizon' and queue is not null").withColumn("first", F.lit(0).cast("long"))
    columns = ("queue", "epoch", "first", "last")
    every = put.select(*columns).unionByName(pruned.select(*columns))
    return _by_session(every.where(F.col("queue").isin(*queues)), "given")


def transferred(plain: DataFrame, queues: Sequence[str]) -> DataFrame:
    """Events of kind `answered`: prod, first..last = ids that these link queues let go of as transferred."""
    gone = plain.where("kind in ('dequeue', 'backup_dequeue') and reason = 'transferred'")
    return _by_session(gone.where(F.col("queue").isin(*queues)), "answered")


def marks(like: DataFrame, prods: Iterable[str]) -> DataFrame:
    """Events of kind `given` that say of which sessions the ledgers upstream are here."""
    rows = [("given", prod, NEVER, NEVER) for prod in sorted(prods)]
    return like.sparkSession.createDataFrame(rows, "kind string, prod string, first long, last long")


def arrived(tags: DataFrame) -> dict[str, dict[str, int]]:
    """Link queue -> numbers of messages: `arrived`, and of those `unplaced`, which no queue took."""
    tests = {"arrived": "placed > 0 or unrouted > 0", "unplaced": "placed = 0 and unrouted > 0"}
    rows = tags.where(is_link()).groupBy("prod").agg(
        *(F.sum(F.when(F.expr(test), size()).otherwise(0)).alias(name) for name, test in tests.items())
    )  # fmt: skip
    return summed((row.asDict() for row in rows.collect()), tuple(tests))


def amounts(gone: DataFrame) -> dict[str, dict[str, int]]:
    """Link queue -> number of its messages that were transferred."""
    rows = gone.groupBy("prod").agg(F.sum(size()).alias("transferred"))
    return summed((row.asDict() for row in rows.collect()), ("transferred",))


def summed(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> dict[str, dict[str, int]]:
    out: dict[str, dict[str, int]] = {}
    for row in rows:
        came = origin(row["prod"])
        if came is not None:
            sums = out.setdefault(came[0], dict.fromkeys(names, 0))
            for name in names:
                sums[name] += row[name] or 0
    return out
