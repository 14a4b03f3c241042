"""Schemas of what the transforms of this package give each other. Times are microseconds since 1970, UTC."""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructField, StructType


def _fields(strings: str, longs: str) -> StructType:
    named = [(name, StringType()) for name in strings.split()], [(name, LongType()) for name in longs.split()]
    return StructType([StructField(name, kind, nullable=True) for group in named for name, kind in group])


PIECE_SCHEMA = _fields("measure key", "at_us latency_us n")
"""n messages that took latency_us, seen at at_us. `measure` is what was measured, `key` whose: a producer, a
queue, a backup and how it acknowledged."""

HISTOGRAM_SCHEMA = _fields("measure key", "slot latency_us n")
"""n messages of a time slot in the bin whose middle is latency_us."""

ORIGIN_SCHEMA = _fields("prod producer", "first last sent_us")
"""Publish tags of a session, and when their messages were first sent, by the producer's clock."""

PLACED_SCHEMA = _fields("prod queue broker", "epoch first last id enqueued_us")
"""Publish tags of a session, and where they went: `id` is that of `first`; time and name are the broker's."""

RECEIPT_SCHEMA = _fields("queue consumer", "epoch first last received_us")
"""Ids and their first receipt by anyone, by the consumer's clock. No id is in two rows."""

BOUND_SCHEMA = _fields("writer broker", "hour low_us high_us")
"""By how much the broker's clock was ahead of the writer's in an hour of the broker's: at least, at most."""

ACTIVITY_SCHEMA = _fields("name key", "slot n")
"""n ids sent, confirmed, received, redelivered or acked in a time slot; `key` is a queue for those of
consumers' kinds, and `writer` a consumer's name."""
