"""Confirm latency along the timeline of one run. Both times are of one clock, the producer's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark.latency.histogram import SHARES, histogram, quantiles
from spark.latency.journeys import confirm_pieces, origins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = ("sent", "confirmed")


def confirm_latency(records: DataFrame, timeline: Mapping[str, Any]) -> dict[str, Any] | None:
    """`n`, `p50_us`, `p99_us` and `max_us` of the whole run, and lists of the last three by slot in `slots`.

    A slot without a confirm has null. Returns None if there is no confirm at all. A resent message counts
    from its first send.

    Both times are exact up to the flush of the producer's ledger. A send is recorded after its bytes have
    left, so the latency is never overstated.
    """
    from spark.ranges import settle

    rows = settle(known(records, KINDS))
    counts = settle(histogram(confirm_pieces(rows, origins(rows)), timeline["slot_us"]))
    whole = quantiles(counts, ["measure"]).collect()
    if not whole:
        return None
    begin, size = timeline["start_us"] // timeline["slot_us"], len(timeline["sent"])
    slots: dict[str, list[int | None]] = {name: [None] * size for name in SHARES}
    for row in quantiles(counts, ["slot"]).collect():
        place = row["slot"] - begin
        if 0 <= place < size:
            for name in SHARES:
                slots[name][place] = row[name]
    return {"n": whole[0]["n"], **{name: whole[0][name] for name in SHARES}, "slots": slots}


def known(records: DataFrame, kinds: Sequence[str]) -> DataFrame:
    """The records of these `kinds` that are valid by the schema. `reconcile` reports the others."""
    from pyspark.sql import functions as F

    from spark.schema import CORRUPT, FILE, GREATEST, VERSIONS

    whole = F.col(CORRUPT).isNull() & F.col("v").isin(*VERSIONS) & F.col("wseq").isNotNull()
    sane = (F.col("first") <= F.col("last")) & (F.col("last") < GREATEST) & (F.col("first") > -GREATEST)
    ranged = sane | (F.col("kind") == "insync")
    good = whole & ranged & F.col("ts_us").isNotNull() & F.col("writer").isNotNull()
    return records.where(F.col("kind").isin(*kinds) & good).drop(CORRUPT, FILE)
