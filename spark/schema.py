"""The ledger's schema, versions 1 and 2, and that of the condensed events every transform works on.

`read` gives DataFrames of RECORD_SCHEMA, `condense` turns them into EVENT_SCHEMA. What each kind and field
means, with units, is written down in `spark/README.md`.
"""

from __future__ import annotations

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

VERSIONS = (1, 2)
"""The values of `v` that this job reads. Version 2 adds `durable`, as a field and as a kind, and `commit`."""

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
        "v incarnation wseq ts_us view epoch first last pfirst n durable",
        f"writer kind queue reason prod name peer {CORRUPT} {FILE}",
    )
)
"""One line of a ledger. Absent fields are null."""

LONG_FIELDS = frozenset(
    ("v", "incarnation", "wseq", "ts_us", "view", "epoch", "first", "last", "pfirst", "n", "durable")
)
"""Fields of a record that are integers."""
TEXT_FIELDS = frozenset(("writer", "kind", "queue", "reason", "prod", "name", "peer", CORRUPT, FILE))
"""Fields that are strings."""

EVENT_SCHEMA = StructType(
    [
        *_fields(
            "incarnation wseq ts_us ts_last_us view epoch first last pfirst n durable",
            "writer kind queue reason prod name peer",
        ),
        StructField("packed", BinaryType(), nullable=True),
    ]
)
"""A run of records of one writer and kind whose ranges follow each other, or a summary made by `condense`.

`packed` is a block of runs (see `spark.reconcile.input.runs`), and null in all other kinds."""

FINDING_SCHEMA = StructType(_fields("epoch first last", "label queue prod note"))
"""A range of ids (with queue and epoch), of publish tags or logical numbers (with prod), and what it is."""

MERGED_KINDS = (
    "sent", "confirmed", "nacked", "returned", "unrouted", "dequeue", "backup_dequeue", "replicated",
    "durable", "received", "acked", "present", "quarantine",
)  # fmt: skip
"""Kinds whose adjacent ranges `condense` joins. Not `enqueue`: each of its records has its own position."""

RANGE_KINDS = frozenset((*MERGED_KINDS, "enqueue", "backup_enqueue", "quiesce", "commit", "pruned"))
"""Kinds that are wrong without `first` and `last`."""

QUEUE_KINDS = frozenset({
    "enqueue", "backup_enqueue", "dequeue", "backup_dequeue", "received", "acked", "present", "quarantine",
    "quiesce",
})  # fmt: skip
"""Kinds that are wrong without `queue` and `epoch`."""

PRODUCER_KINDS = frozenset({"sent", "confirmed", "nacked", "returned", "unrouted", "commit"})
"""Kinds that are wrong without `prod`."""

MARKING_KINDS = (QUEUE_KINDS | PRODUCER_KINDS) - {"quarantine"}
"""Kinds of which pruned ledgers keep only the highest ids and tags. Quarantine records are kept whole."""

STATE_KINDS = (
    "open", "definition", "promote", "demote", "insync", "seal", "pruned", "chain", "span", "malformed",
    "version",
)  # fmt: skip
"""Kinds of events that are few: the driver collects them to judge the ledgers themselves."""

RATE_BUCKET_US = 100_000
"""Width of the time slots in which `condense` counts ids sent, confirmed and received."""

CONFIRM_SLOT_US = 10_000
"""Confirms further apart than this are not joined into one event, so that their time stays known."""

SLOTS_US = {
    "confirmed": CONFIRM_SLOT_US, "received": 1_000_000, "dequeue": 1_000_000, "backup_dequeue": 1_000_000,
}  # fmt: skip
"""The same for each kind whose time matters."""

SAMPLE_EVERY = 1 << 14
"""Of each session's tags and each queue's ids, the first and every so manieth keep their times: ranges that
hold one are not joined."""
SAMPLED_KINDS = frozenset({"sent", "confirmed", "received", "acked", "dequeue"})
"""Kinds for which that is so, and `enqueue`."""

PRUNED_NAME = "pruned"
"""In the name of a file of what retention left: `p-1-7.pruned.ledger.jsonl`."""

NOT_PARQUET = "half-written or foreign Parquet"
"""What is said of a whole file, where others have it said of a line."""

PULSE_SLACK_US = 20_000
"""Confirms of one writer no further apart than this are one stretch of activity; an outage is longer."""
