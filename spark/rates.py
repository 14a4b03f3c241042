"""Rates over time, and the pauses between confirms, which show an outage."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.schema import RATE_BUCKET_US


def timeline(events: DataFrame, width_us: int) -> DataFrame:
    """name (sent | confirmed | received), slot (number of `width_us` since 1970), n = ids in it.

    `width_us` is a multiple of RATE_BUCKET_US.
    """
    slot = F.floor(F.col("first") * RATE_BUCKET_US / width_us).cast("long").alias("slot")
    return events.where("kind = 'rate'").groupBy("name", slot).agg(F.sum("n").alias("n"))


def gaps(events: DataFrame) -> DataFrame:
    """Times without any confirm: from_us, to_us. Gaps up to PULSE_SLACK_US may be missing."""
    along = Window.orderBy("ts_us").rowsBetween(Window.unboundedPreceding, -1)
    pulses = events.where("kind = 'pulse'").select("ts_us", F.max("ts_last_us").over(along).alias("from_us"))
    return pulses.where("ts_us > from_us").select("from_us", F.col("ts_us").alias("to_us"))


def pauses(events: DataFrame, limit: int = 1000) -> DataFrame:
    """The longest of `gaps`, longest first, up to `limit`."""
    return gaps(events).orderBy((F.col("to_us") - F.col("from_us")).desc()).limit(limit)
