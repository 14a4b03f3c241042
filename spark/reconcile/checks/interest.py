"""Between the two passes: computes on the driver which tags were confirmed and which runs need a closer look.

The first pass joins the ranges of producers into few rows, which fit into the driver's memory. The result
goes to the workers as a `spark.reconcile.input.runs.Interest`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.reconcile.checks.replication import Lack
from spark.reconcile.input.columns import Ints
from spark.reconcile.input.runs import Interest, Spans

SETTLED = "prod string, first long, last long, confirmed boolean"


def answers(events: DataFrame) -> tuple[Spans, Spans]:
    """The tags of each session that were confirmed, and those that were only refused or returned."""
    said = events.where("kind in ('answered', 'nacked', 'returned')").select("kind", "prod", "first", "last")
    rows = [(row["kind"], row["prod"], row["first"], row["last"]) for row in said.collect()]
    confirmed = Spans.of(row[1:] for row in rows if row[0] == "answered")
    refused = Spans.of(row[1:] for row in rows if row[0] != "answered")
    none = np.empty(0, dtype=np.int64)
    only = {
        prod: without(spans, confirmed.by_key.get(prod, (none, none)))
        for prod, spans in refused.by_key.items()
    }
    return confirmed, Spans(only)


def without(spans: tuple[Ints, Ints], taken: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """The parts of `spans` outside `taken`. Both are disjoint ranges in order."""
    at = np.concatenate([spans[0], spans[1] + 1, taken[0], taken[1] + 1])
    step = np.repeat(np.array([1, -1, 2, -2]), [len(spans[0]), len(spans[1]), len(taken[0]), len(taken[1])])
    order = np.argsort(at, kind="stable")
    at, depth = at[order], np.cumsum(step[order])
    open_ones = np.flatnonzero((depth[:-1] == 1) & (at[1:] > at[:-1]))
    return at[open_ones], at[open_ones + 1] - 1


def settled_frame(session: SparkSession, confirmed: Spans, refused: Spans) -> DataFrame:
    """The same spans as rows: prod, first..last, confirmed."""
    rows = [
        (prod, int(first), int(last), sure)
        for spans, sure in ((confirmed, True), (refused, False))
        for prod, pairs in spans.by_key.items()
        for first, last in zip(*pairs, strict=True)
    ]
    return session.createDataFrame(rows, SETTLED)


def closer(
    packed: DataFrame, confirmed: Spans, resent: DataFrame, lacks: Sequence[Lack],
    tangled: frozenset[tuple[str, str]], numbers: Spans,
) -> Interest:  # fmt: skip
    """Runs that need a closer look: resent, part of a transaction, at a position that a node lacks, or with
    numbers that their queue may have had."""
    apart = resent.select("prod", "first", "last").unionByName(
        packed.where("kind = 'commit'").select("prod", "first", "last")
    )
    tags = Spans.of((row["prod"], row["first"], row["last"]) for row in apart.collect())
    copies = Spans.of((lack.view, lack.n_first, lack.n_last) for lack in lacks if not lack.disk)
    disk = Spans.of((lack.view, lack.n_first, lack.n_last) for lack in lacks if lack.disk)
    return Interest(confirmed, tags, copies, disk, tangled, numbers)


def as_publishers_say(events: DataFrame) -> DataFrame:
    """Events for the sweep over tags: confirms joined whatever their time, and `placed` tags as runs."""
    placed = F.col("kind") == "placed"
    kind = F.when(placed, "enqueue").when(F.col("kind") == "answered", "confirmed").otherwise(F.col("kind"))
    return events.where("kind != 'confirmed'").withColumns(
        {"pfirst": F.when(placed, F.col("first")).otherwise(F.col("pfirst")), "kind": kind}
    )


def sure_ids(events: DataFrame, like: Sequence[str]) -> DataFrame:
    """Ids of joined runs that were confirmed as a whole, with the columns `like` (null if unknown)."""
    have = ("queue", "epoch", "first", "last")
    sure = events.where("kind = 'sure'")
    return sure.select(*(F.col(name) if name in have else F.lit(None).alias(name) for name in like))
