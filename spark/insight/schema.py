"""Schemas of the rows that the transforms of this package exchange. Times are microseconds since
1970, UTC."""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructField, StructType


def _fields(strings: str, longs: str) -> StructType:
    named = [(name, StringType()) for name in strings.split()], [(name, LongType()) for name in longs.split()]
    return StructType([StructField(name, kind, nullable=True) for group in named for name, kind in group])


PIECE_SCHEMA = _fields("measure key", "at_us latency_us n")
"""n messages that took latency_us, with their end at at_us. `measure`: what was measured. `key`: a producer,
a queue, or a backup and its kind of ack."""

HISTOGRAM_SCHEMA = _fields("measure key", "slot latency_us n")
"""n messages of a time slot in the histogram bin whose middle is latency_us."""

ORIGIN_SCHEMA = _fields("prod producer", "first last sent_us")
"""Publish tags of a session, and when their messages were first sent, by the producer's clock."""

PLACED_SCHEMA = _fields("prod queue broker", "epoch first last id enqueued_us")
"""Publish tags of a session, and where they were enqueued. `id` belongs to `first`. The time and name are the
broker's."""

RECEIPT_SCHEMA = _fields("queue consumer", "epoch first last received_us")
"""Ids with their first receipt by any consumer, by that consumer's clock. No id is in two rows."""

BOUND_SCHEMA = _fields("writer broker", "hour low_us high_us")
"""Least and greatest lead of the broker's clock over the writer's, in one hour by the broker's clock."""

ACTIVITY_SCHEMA = _fields("name key", "slot n")
"""n ids sent, confirmed, received, redelivered or acked in a time slot. `key`: the queue, for kinds that
consumers write. `activity` adds `writer`, whose ledger it is."""
