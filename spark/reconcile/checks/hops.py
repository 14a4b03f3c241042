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

from spark.ranges import islands, overlap, size, sweep
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


def _later(placed: DataFrame) -> DataFrame:
    """Pairs of placements of one tag in one queue, in two epochs: those of the earlier one, with `later`, the
    later epoch, and `later_id`, the id there.

    A primary takes messages and fails before that is replicated. The link queue still has them, and the next
    primary takes them again. Only the last time counts, unless a message of the first time is left."""
    rows = placed.where(is_link() & (F.col("kind") == "enqueue"))
    after = rows.select(
        "prod", "queue", "first", "last", F.col("epoch").alias("later"),
        (F.col("id") - F.col("first")).alias("later_shift"),
    )  # fmt: skip
    met = overlap(rows, after, ["prod", "queue"]).where("later > epoch")
    return met.withColumns({
        "id": F.col("id") + F.col("first") - F.col("left_first"),
        "later_id": F.col("later_shift") + F.col("first"),
    }).select("prod", "queue", "epoch", "first", "last", "id", "later", "later_id")  # fmt: skip


def latest(placed: DataFrame) -> DataFrame:
    """The same placements without those of messages that were taken again in a later epoch."""
    keys = ["prod", "queue", "epoch"]
    gone = islands(_later(placed), keys)
    marks = placed.where(is_link()).select(*keys, "first", "last", F.lit(0).alias("gone")).unionByName(
        gone.withColumn("gone", F.lit(1))
    )  # fmt: skip
    every = marks.withColumn("put", 1 - F.col("gone"))
    kept = islands(sweep(every, keys, ["put", "gone"]).where("put > 0 and gone = 0"), keys)
    rest = overlap(placed.where(is_link()), kept, keys)
    cut = rest.withColumn("id", F.col("id") + F.col("first") - F.col("left_first"))
    return placed.where(~is_link()).unionByName(cut.select(*placed.columns))


def again(placed: DataFrame, fates: DataFrame) -> DataFrame:
    """FINDING_SCHEMA `hop-doubled` by queue and epoch: ids of messages that were taken again in a later
    epoch, though those of before are in `fates`: queue, epoch, first..last of ids with a fate."""
    before = _later(placed).select(
        "prod", "queue", "epoch", F.col("id").alias("first"), (F.col("id") + size() - 1).alias("last"),
        "later", (F.col("later_id") - F.col("id")).alias("shift"),
    )  # fmt: skip
    met = overlap(before, islands(fates, ["queue", "epoch"]), ["queue", "epoch"])
    found = met.select(
        F.lit("hop-doubled").alias("label"), "queue", F.col("later").alias("epoch"), "prod",
        (F.col("first") + F.col("shift")).alias("first"), (F.col("last") + F.col("shift")).alias("last"),
    )  # fmt: skip
    return islands(found, ["label", "queue", "epoch", "prod"])


def noted_twice(events: DataFrame) -> DataFrame:
    """FINDING_SCHEMA `hop-doubled` by prod: came twice to one primary, which put it into no queue."""
    rows = events.where((F.col("kind") == "unrouted") & is_link()).withColumn("times", F.lit(1))
    twice = sweep(rows, ["prod", "view"], ["times"]).where("times > 1")
    found = twice.select(F.lit("hop-doubled").alias("label"), "prod", "first", "last")
    return islands(found, ["label", "prod"])


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
