"""Schemas: the ledger records of versions 1 and 2, and the condensed events that every transform works on.

`read` gives DataFrames of RECORD_SCHEMA; `condense` turns them into EVENT_SCHEMA. `spark/README.md` documents
each kind and field, with units.
"""

from __future__ import annotations

import re

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

VERSIONS = (1, 2)
"""The values of `v` that this job reads. Version 2 adds `durable`, as a field and as a kind, and `commit`."""

GREATEST = 1 << 53
"""Limit of ids, tags and positions. A line with a greater number is unreadable, so no sum overflows."""

GREATEST_NUMBER = 1 << 62
"""Limit of the numbers of producers."""

LINK = re.compile(r"link:([0-9a-f]{32}):(\d+)")
"""The session of messages that came from a federated node: by which link queue, and which epoch of it. Their
tags are their ids there. No client has such a session."""

CORRUPT = "_corrupt"
"""Column with the text of a line that is not a JSON object of the schema; otherwise null."""

FILE = "_file"
"""Column with the file of a corrupt line; otherwise null."""


def _fields(longs: str, strings: str) -> list[StructField]:
    named = [(name, LongType()) for name in longs.split()], [(name, StringType()) for name in strings.split()]
    return [StructField(name, kind, nullable=True) for group in named for name, kind in group]


RECORD_SCHEMA = StructType(
    _fields(
        "v incarnation wseq ts_us view epoch first last pfirst n durable number",
        f"writer kind queue reason prod name peer {CORRUPT} {FILE}",
    )
)
"""One line of a ledger. Absent fields are null."""

LONG_FIELDS = frozenset(
    (
        "v",
        "incarnation",
        "wseq",
        "ts_us",
        "view",
        "epoch",
        "first",
        "last",
        "pfirst",
        "n",
        "durable",
        "number",
    )
)
"""Fields of a record that are integers."""
TEXT_FIELDS = frozenset(("writer", "kind", "queue", "reason", "prod", "name", "peer", CORRUPT, FILE))
"""Fields that are strings."""

EVENT_SCHEMA = StructType(
    [
        *_fields(
            "incarnation wseq ts_us ts_last_us view epoch first last pfirst n durable number",
            "writer kind queue reason prod name peer",
        ),
        StructField("packed", BinaryType(), nullable=True),
    ]
)
"""A run of records of one writer and kind whose ranges follow each other, or a summary made by `condense`.

`packed` is a block of runs (see `spark.reconcile.input.runs`), and null in all other kinds."""

FINDING_SCHEMA = StructType(_fields("epoch first last", "label queue prod note"))
"""A labelled range of ids (with queue and epoch), or of publish tags or logical numbers (with prod)."""

MERGED_KINDS = (
    "sent", "confirmed", "nacked", "returned", "unrouted", "dequeue", "backup_dequeue", "replicated",
    "durable", "received", "acked", "present", "quarantine", "duplicate",
)  # fmt: skip
"""Kinds whose adjacent ranges `condense` joins. Not `enqueue`, whose records have their own positions."""

RANGE_KINDS = frozenset(
    (*MERGED_KINDS, "enqueue", "backup_enqueue", "quiesce", "commit", "pruned", "duplicate")
)
"""Kinds that require `first` and `last`."""

QUEUE_KINDS = frozenset({
    "enqueue", "backup_enqueue", "dequeue", "backup_dequeue", "received", "acked", "present", "quarantine",
    "quiesce",
})  # fmt: skip
"""Kinds that require `queue` and `epoch`."""

PRODUCER_KINDS = frozenset({"sent", "confirmed", "nacked", "returned", "unrouted", "commit"})
"""Kinds that require `prod`."""

MARKING_KINDS = (QUEUE_KINDS | PRODUCER_KINDS) - {"quarantine"}
"""Kinds of which pruned ledgers keep only the highest ids and tags. Quarantine records are kept whole."""

STATE_KINDS = (
    "open", "definition", "promote", "demote", "insync", "confirm_level", "link", "seal", "pruned", "chain",
    "span", "malformed", "version",
)  # fmt: skip
"""Kinds with few events, which the driver collects to judge the ledgers themselves."""

RATE_BUCKET_US = 100_000
"""Width of the time slots in which `condense` counts ids sent, confirmed and received."""

CONFIRM_SLOT_US = 10_000
"""Confirms further apart than this are not joined into one event, so that their times stay known."""

SLOTS_US = {
    "confirmed": CONFIRM_SLOT_US, "received": 1_000_000, "dequeue": 1_000_000, "backup_dequeue": 1_000_000,
}  # fmt: skip
"""The same for each kind whose time matters."""

SAMPLE_EVERY = 1 << 14
"""The first tag or id of each session and queue, and every multiple of this, keeps its time: ranges that
contain one are not joined."""
SAMPLED_KINDS = frozenset({"sent", "confirmed", "received", "acked", "dequeue"})
"""Kinds that are sampled so, besides `enqueue`."""

PRUNED_NAME = "pruned"
"""Part of the name of a pruned file: `p-1-7.pruned.ledger.jsonl`."""

NOT_PARQUET = "half-written or foreign Parquet"
"""Reason of an unreadable file; other reasons concern one line."""

PULSE_SLACK_US = 20_000
"""Confirms of one writer at most this far apart form one stretch of activity; an outage is longer."""
