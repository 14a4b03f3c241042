"""The ledger's schema, version 1, and that of the condensed events every transform works on.

`read` gives DataFrames of RECORD_SCHEMA, `condense` turns them into EVENT_SCHEMA. What each kind and field
means, with units, is written down in `spark/README.md`.
"""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructField, StructType

VERSION = 1
"""The only value of `v` that this job reads."""

GREATEST = 1 << 53
"""No id, tag or position gets there: a line with a greater one is unreadable, and no sum overflows."""

CORRUPT = "_corrupt"
"""Column that holds a line which is no JSON object of the schema, null otherwise."""

FILE = "_file"
"""Column that holds the file of a corrupt line, null otherwise."""


def _fields(longs: str, strings: str) -> list[StructField]:
    named = [(name, LongType()) for name in longs.split()], [(name, StringType()) for name in strings.split()]
    return [StructField(name, kind, nullable=True) for group in named for name, kind in group]


RECORD_SCHEMA = StructType(
    _fields(
        "v incarnation wseq ts_us view epoch first last pfirst n",
        f"writer kind queue reason prod name peer {CORRUPT} {FILE}",
    )
)
"""One line of a ledger. Absent fields are null."""

EVENT_SCHEMA = StructType(
    _fields(
        "incarnation wseq ts_us ts_last_us view epoch first last pfirst n",
        "writer kind queue reason prod name peer",
    )
)
"""A run of records of one writer and kind whose ranges follow each other, or a summary made by `condense`."""

FINDING_SCHEMA = StructType(_fields("epoch first last", "label queue prod note"))
"""A range of ids (with queue and epoch), of publish tags or logical numbers (with prod), and what it is."""

MERGED_KINDS = (
    "sent", "confirmed", "nacked", "returned", "unrouted", "backup_enqueue", "dequeue", "backup_dequeue",
    "replicated", "received", "acked", "present", "quarantine",
)  # fmt: skip
"""Kinds whose adjacent ranges `condense` joins. Not `enqueue`: each of its records has its own position."""

RANGE_KINDS = frozenset((*MERGED_KINDS, "enqueue", "quiesce"))
"""Kinds that are wrong without `first` and `last`."""

QUEUE_KINDS = frozenset({
    "enqueue", "backup_enqueue", "dequeue", "backup_dequeue", "received", "acked", "present", "quarantine",
    "quiesce",
})  # fmt: skip
"""Kinds that are wrong without `queue` and `epoch`."""

PRODUCER_KINDS = frozenset({"sent", "confirmed", "nacked", "returned", "unrouted"})
"""Kinds that are wrong without `prod`."""

STATE_KINDS = (
    "open", "definition", "promote", "demote", "insync", "seal", "chain", "span", "malformed", "version",
)  # fmt: skip
"""Kinds of events that are few: the driver collects them to judge the books themselves."""

RATE_BUCKET_US = 100_000
"""Width of the time slots in which `condense` counts ids sent, confirmed and received."""

CONFIRM_SLOT_US = 10_000
"""Confirms further apart than this are not joined into one event, so that their time stays known."""

PULSE_SLACK_US = 20_000
"""Confirms of one writer no further apart than this are one stretch of activity; an outage is longer."""
