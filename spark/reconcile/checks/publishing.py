"""Checks of producers: publish tags, their outcomes, and the logical messages behind them.

A publish has three names: its tag in a session (`prod`); the producer's logical number, which a resend keeps;
and the replication id that the primary assigned in each queue. `sent` records join the first two, and
`enqueue` records join the first and the third.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.ranges import islands, overlap, size, sweep
from spark.reconcile.checks.hops import is_link

TAG_MEASURES = ("sent", "confirmed", "refused", "returned", "unrouted", "placed", "before")
LOGICAL_MEASURES = ("sends", "confirms", "refusals")


def _is(*kinds: str) -> Column:
    return F.col("kind").isin(*kinds)


def _flag(condition: Column) -> Column:
    return F.when(condition, F.lit(1)).otherwise(F.lit(0))


def placements(events: DataFrame) -> DataFrame:
    """Runs that a broker put into a queue, by publish tag. Runs of publishers without an identity are left
    out.

    prod, first..last (tags), queue, epoch, id (of first), kind, n, view, node, durable."""
    named = _is("enqueue", "backup_enqueue") & F.col("prod").isNotNull() & F.col("pfirst").isNotNull()
    return events.where(named).select(
        "prod", F.col("pfirst").alias("first"), (F.col("pfirst") + size() - 1).alias("last"),
        "queue", "epoch", F.col("first").alias("id"), "kind", "n", "view", F.col("writer").alias("node"),
        "durable",
    )  # fmt: skip


def tag_segments(events: DataFrame) -> DataFrame:
    """prod, first..last (tags), and how often they were sent, confirmed, refused (nacked), returned, unrouted
    and placed. known: some producer's ledger has the session, or had it before the horizon. See `hops` for
    the sessions of links."""
    kinds = _is("sent", "given", "confirmed", "nacked", "returned", "unrouted")
    own = events.where(kinds & F.col("prod").isNotNull()).select("prod", "first", "last", "kind")
    put = placements(events).select("prod", "first", "last", F.lit("placed").alias("kind"))
    gone = events.where(_is("horizon") & F.col("name").isin("sent", "confirmed", "nacked", "returned"))
    own = own.unionByName(gone.select("prod", "first", "last", F.lit("before").alias("kind")))
    named = {"refused": ("nacked",), "sent": ("sent", "given")}
    marked = own.unionByName(put).select(
        "prod", "first", "last", *(_flag(_is(*named.get(name, (name,)))).alias(name) for name in TAG_MEASURES)
    )
    known = F.max(F.col("sent") + F.col("before")).over(Window.partitionBy("prod")) > 0
    return sweep(marked, ["prod"], TAG_MEASURES).withColumn("known", known)


def tag_totals(tags: DataFrame) -> DataFrame:
    """One row with numbers of tags: sends, nacked, returned, unrouted."""
    tests = {"sends": "sent", "nacked": "refused", "returned": "returned", "unrouted": "unrouted"}
    sums = (F.sum(F.when(F.col(by) > 0, size())).alias(name) for name, by in tests.items())
    return tags.where(~is_link()).agg(*sums)


def tag_findings(tags: DataFrame) -> DataFrame:
    """FINDING_SCHEMA by prod:

    * unplaced: confirmed, but in no queue, and neither unrouted nor returned: lost;
    * unsent: placed or confirmed, but not sent by its producer's ledger;
    * unknown-producer: placed, but no ledger of that producer is here;
    * reused: one tag was sent twice in one session, so its confirms are ambiguous.

    The same for links: hop-lost, hop-unsent, hop-unknown.
    """
    link = is_link()
    got = F.col("confirmed") > 0
    nowhere = (F.col("placed") == 0) & (F.col("unrouted") == 0) & (F.col("returned") == 0)
    unsent = (F.col("sent") == 0) & (got | (F.col("placed") > 0) | (link & (F.col("unrouted") > 0)))
    labels = F.array_compact(
        F.array(
            F.when(got & nowhere, F.when(link, "hop-lost").otherwise("unplaced")),
            F.when(unsent & F.col("known"), F.when(link, "hop-unsent").otherwise("unsent")),
            F.when(
                unsent & ~F.col("known"), F.when(link, "hop-unknown").otherwise("unknown-producer")
            ),
            F.when((F.col("sent") > 1) & ~link, "reused"),
        )
    )  # fmt: skip
    found = tags.select("prod", "first", "last", F.explode(labels).alias("label"))
    return islands(found, ["label", "prod"])


def sends(events: DataFrame) -> DataFrame:
    """All sends: prod, first..last (tags), stream, logical (number of first).

    A stream is the scope of logical numbers: one process of a producer, or, without logical numbers, the
    session itself.
    """
    numbered = F.col("pfirst").isNotNull()
    process = F.concat_ws("#", "writer", F.col("incarnation").cast("string"))
    return events.where(_is("sent") & F.col("prod").isNotNull()).select(
        "prod", "first", "last", F.when(numbered, process).otherwise(F.col("prod")).alias("stream"),
        F.coalesce("pfirst", "first").alias("logical"),
    )  # fmt: skip


def outcomes(tags: DataFrame) -> DataFrame:
    """prod, first..last, confirmed (true) or refused (false): nacked, or returned without a confirm."""
    settled = tags.where("confirmed > 0 or refused > 0 or returned > 0")
    said = settled.select("prod", "first", "last", (F.col("confirmed") > 0).alias("confirmed"))
    return islands(said, ["prod", "confirmed"])


def logical_segments(sent: DataFrame, settled: DataFrame) -> DataFrame:
    """stream, first..last (logical numbers), and the numbers of their sends, confirms and refusals."""
    answered = overlap(sent, settled, ["prod"]).select(
        "stream", (F.col("logical") + F.col("first") - F.col("left_first")).alias("first"),
        (F.col("logical") + F.col("last") - F.col("left_first")).alias("last"),
        F.lit(0).alias("sends"), _flag(F.col("confirmed")).alias("confirms"),
        _flag(~F.col("confirmed")).alias("refusals"),
    )  # fmt: skip
    tried = sent.select(
        "stream", F.col("logical").alias("first"), (F.col("logical") + size() - 1).alias("last"),
        F.lit(1).alias("sends"), F.lit(0).alias("confirms"), F.lit(0).alias("refusals"),
    )  # fmt: skip
    return sweep(tried.unionByName(answered), ["stream"], LOGICAL_MEASURES)


def logical_totals(logical: DataFrame) -> DataFrame:
    """One row with numbers of messages, however often each was sent: published, confirmed."""
    tests = {"published": "sends", "confirmed": "confirms"}
    return logical.agg(*(F.sum(F.when(F.col(by) > 0, size())).alias(name) for name, by in tests.items()))


def lives(logical: DataFrame, streams: Sequence[str]) -> DataFrame:
    """Of these streams: stream, first..last (numbers that were sent), open (the first without an answer)."""
    unanswered = F.when(F.expr("confirms = 0 and refusals = 0"), F.col("first"))
    rows = logical.where("sends > 0").where(F.col("stream").isin(*streams))
    return rows.groupBy("stream").agg(
        F.min("first").alias("first"), F.max("last").alias("last"), F.min(unanswered).alias("open")
    )  # fmt: skip


def doubts(logical: DataFrame) -> DataFrame:
    """FINDING_SCHEMA with stream as prod: in-doubt = sent, and not answered under any tag."""
    open_ones = logical.where("sends > 0 and confirms = 0 and refusals = 0")
    found = open_ones.select(F.lit("in-doubt").alias("label"), F.col("stream").alias("prod"), "first", "last")
    return islands(found, ["label", "prod"])


def confirmed_ids(placed: DataFrame, settled: DataFrame) -> DataFrame:
    """Ids whose publish was confirmed: queue, epoch, first..last, prod, tag of first, kind, n, view, node,
    durable."""
    sure = settled.where("confirmed").drop("confirmed")
    shifted = F.col("id") + F.col("first") - F.col("left_first")
    return overlap(placed, sure, ["prod"]).select(
        "queue", "epoch", shifted.alias("first"), (shifted + size() - 1).alias("last"),
        "prod", F.col("first").alias("tag"), "kind", "n", "view", "node", "durable",
    )  # fmt: skip


def resent_tags(sent: DataFrame, logical: DataFrame) -> DataFrame:
    """Tags of messages that were sent more than once: prod, first..last, stream, tag_offset (tag minus
    logical number), confirms (number of confirmed sends). Few: messages in doubt at a failover."""
    again = logical.where("sends > 1").select("stream", "first", "last", "confirms")
    by_logical = sent.select(
        "stream", F.col("logical").alias("first"), (F.col("logical") + size() - 1).alias("last"), "prod",
        (F.col("first") - F.col("logical")).alias("tag_offset"),
    )  # fmt: skip
    return overlap(by_logical, again, ["stream"], small=True).select(
        "prod", (F.col("first") + F.col("tag_offset")).alias("first"),
        (F.col("last") + F.col("tag_offset")).alias("last"), "stream", "tag_offset", "confirms",
    )  # fmt: skip


def resent_ids(by_tag: DataFrame, placed: DataFrame) -> DataFrame:
    """Ids of the tags of `resent_tags`: queue, epoch, first..last (ids), stream, offset (logical number minus
    id), confirms."""
    ids = F.col("id") + F.col("first") - F.col("left_first")
    return overlap(placed, by_tag, ["prod"], small=True).select(
        "queue", "epoch", ids.alias("first"), (ids + size() - 1).alias("last"), "stream",
        (F.col("first") - F.col("tag_offset") - ids).alias("offset"), "confirms",
    )  # fmt: skip


def resend_findings(resent: DataFrame, received: DataFrame) -> DataFrame:
    """FINDING_SCHEMA with stream as prod and logical numbers as range: received under more than one id.

    * duplicate-in-doubt: at most one of the sends was confirmed, so the resend was right;
    * duplicate-illegal: the message was resent although it had been confirmed.
    """
    taken = received.select("queue", "epoch", "first", "last")
    met = overlap(taken, resent, ["queue", "epoch"], small=True)
    once = islands(met, ["queue", "epoch", "stream", "offset", "confirms"])
    numbers = once.select(
        "queue", "stream", (F.col("first") + F.col("offset")).alias("first"),
        (F.col("last") + F.col("offset")).alias("last"), F.lit(1).alias("ids"), "confirms",
    )  # fmt: skip
    twice = sweep(numbers, ["queue", "stream"], ["ids", "confirms"]).where("ids > 1")
    label = F.when(F.col("confirms") > F.col("ids"), "duplicate-illegal").otherwise("duplicate-in-doubt")
    found = twice.select(label.alias("label"), "queue", F.col("stream").alias("prod"), "first", "last")
    return islands(found, ["label", "queue", "prod"])
