"""Checks of dequeues: each message leaves a queue for a documented reason, once, and permanently.

Every transform here processes few rows: the sweep over all ids finds the `suspects` first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.ranges import islands, overlap, settle, sweep
from spark.reconcile.checks.clocks import Clocks
from spark.reconcile.checks.replication import FOREVER
from spark.reconcile.ledgers.state import LedgerState, Process, Promotion

REASONS = frozenset({
    "acked", "expired", "dead-lettered", "rejected", "dropped", "purged", "deleted", "queue-expired",
    "queue-unused", "owner-gone", "delivery-limit", "transferred", "looped", "moved",
})  # fmt: skip
"""The reasons for which a message may leave a queue."""

SLACK_US = 1_000_000
"""A receipt at most this much later than a dequeue proves nothing."""
LOOSE_US = 60_000_000
"""Times by two clocks are not compared if their offset is known less precisely than this."""


def unexplained(events: DataFrame) -> DataFrame:
    """FINDING_SCHEMA by queue and epoch: dequeued without a reason, or for an undocumented one (the note)."""
    strange = "reason is null or reason not in ({})".format(", ".join(f"'{r}'" for r in sorted(REASONS)))
    gone = events.where(f"kind in ('dequeue', 'backup_dequeue') and ({strange})")
    found = gone.select(
        F.lit("unexplained").alias("label"), "queue", "epoch", F.nullif("reason", F.lit("")).alias("note"),
        "first", "last",
    )  # fmt: skip
    return islands(found, ["label", "queue", "epoch", "note"])


@dataclass(slots=True, frozen=True)
class Known:
    """The process still knew its records of epoch `view` when it served epoch `serving`."""

    writer: str
    incarnation: int
    view: int
    serving: int


def known(ledgers: LedgerState) -> list[Known]:
    """The epochs whose records each primary still knew when it served.

    A node that joins again takes over the state of that epoch's primary, which may lack changes that the node
    recorded earlier. Such earlier records no longer count."""
    joined = {(change.peer, change.view) for change in ledgers.changes if change.reason == "included"}
    out = []
    for promotion in ledgers.promotions:
        writer = ledgers.writers[promotion.node, promotion.incarnation]
        last = max((v for name, v in joined if name == writer.name and v <= promotion.epoch), default=0)
        views = (view for view in {*writer.views, promotion.epoch} if last <= view <= promotion.epoch)
        out += [Known(*writer.process, view, promotion.epoch) for view in sorted(views)]
    return sorted(set(out), key=astuple)


KNOWN = "writer string, incarnation long, view long, serving long"


def _known_frame(events: DataFrame, ledgers: LedgerState) -> DataFrame:
    return F.broadcast(events.sparkSession.createDataFrame([astuple(k) for k in known(ledgers)], KNOWN))


def dequeued_twice(events: DataFrame, suspects: DataFrame, ledgers: LedgerState) -> DataFrame:
    """FINDING_SCHEMA by queue and epoch, note = the node: removed twice by one primary.

    The primary had removed the id before, or had replicated its removal, and had not received it again since.
    `suspects`: queue, epoch, first..last to look at. The check counts, and ignores order: more removals than
    enqueues.
    """
    kinds = ("dequeue", "backup_dequeue", "enqueue", "backup_enqueue")
    rows = events.where(F.col("kind").isin(*kinds)).select(
        "writer", "incarnation", "view", "kind", "queue", "epoch", "first", "last"
    )
    near = overlap(rows, islands(suspects, ["queue", "epoch"]), ["queue", "epoch"], small=True)
    lives = near.join(_known_frame(events, ledgers), ["writer", "incarnation", "view"])
    out, served = F.col("kind").isin("dequeue", "backup_dequeue"), F.col("kind") == "dequeue"
    counted = lives.select(
        "writer", "incarnation", "serving", "queue", "epoch", "first", "last",
        out.cast("long").alias("gone"), (~out).cast("long").alias("put"),
        (served & (F.col("view") == F.col("serving"))).cast("long").alias("served"),
    )  # fmt: skip
    keys = ["writer", "incarnation", "serving", "queue", "epoch"]
    found = sweep(counted, keys, ["gone", "served", "put"]).where("served > 0 and gone > greatest(1, put)")
    labelled = found.select(
        F.lit("dequeued-twice").alias("label"),
        "queue",
        "epoch",
        F.col("writer").alias("note"),
        "first",
        "last",
    )
    return islands(labelled, ["label", "queue", "epoch", "note"])


def acked_returned(events: DataFrame, ledgers: LedgerState, clocks: Clocks) -> DataFrame | None:
    """FINDING_SCHEMA by queue and epoch, note = the node: redelivered by a primary that knew of the ack.

    None if there is no such redelivery, or no clock is known precisely enough. If the only ack in the ledgers
    is by the same consumer, this receipt may be the one that it acked, written late: then it does not count.
    """
    times = _times(ledgers, clocks)
    if not times:
        return None
    table = F.broadcast(events.sparkSession.createDataFrame(times, TIMES))
    again = events.where("kind = 'received' and reason = 'redelivered'").select(
        F.col("writer").alias("consumer"), F.col("incarnation").alias("life"), "ts_us", "queue", "epoch",
        "first", "last",
    )  # fmt: skip
    gone = events.where("kind in ('dequeue', 'backup_dequeue') and reason = 'acked'").select(
        "writer", "incarnation", "view", F.coalesce("ts_last_us", "ts_us").alias("gone_us"), "queue", "epoch",
        "first", "last",
    )  # fmt: skip
    met = overlap(gone, again, ["queue", "epoch"], small=True).join(
        table, ["writer", "incarnation", "view", "consumer"]
    )
    certain = "ts_us > gone_us + shift_us and ts_us > since_us and ts_us < until_us"
    late = settle(met.where(certain).select("consumer", "life", "writer", "queue", "epoch", "first", "last"))
    return None if late.isEmpty() else _acked_by_others(events, late)


def _acked_by_others(events: DataFrame, late: DataFrame) -> DataFrame:
    """Late receipts, without those that only the same consumer acked."""
    acks = overlap(
        events.where("kind = 'acked'").select("writer", "incarnation", "queue", "epoch", "first", "last"),
        islands(late, ["queue", "epoch"]), ["queue", "epoch"], small=True,
    )  # fmt: skip
    own = (F.col("writer") == F.col("consumer")) & (F.col("incarnation") == F.col("life"))
    each = late.select("consumer", "life", F.col("writer").alias("note")).distinct()
    counted = late.select(
        "consumer", "life", F.col("writer").alias("note"), "queue", "epoch", "first", "last",
        F.lit(1).alias("late"), F.lit(0).alias("own"), F.lit(0).alias("acks"),
    ).unionByName(acks.crossJoin(F.broadcast(each)).select(
        "consumer", "life", "note", "queue", "epoch", "first", "last", F.lit(0).alias("late"),
        own.cast("int").alias("own"), F.lit(1).alias("acks"),
    ))  # fmt: skip
    segments = sweep(counted, ["consumer", "life", "note", "queue", "epoch"], ["late", "own", "acks"])
    found = segments.where("late > 0 and not (own = 1 and acks = 1)")
    labelled = found.select(F.lit("acked-returned").alias("label"), "queue", "epoch", "note", "first", "last")
    return islands(labelled, ["label", "queue", "epoch", "note"])


TIMES = (
    "writer string, incarnation long, view long, consumer string, shift_us long, since_us long, until_us long"
)


def _times(ledgers: LedgerState, clocks: Clocks) -> list[tuple[Any, ...]]:
    """For each process, view and consumer: when a receipt certainly follows a dequeue of that process, and
    certainly came from that process. By the consumer's clock."""
    served = {(p.node, p.incarnation, p.epoch): p for p in ledgers.promotions}
    consumers = sorted({w.name for w in ledgers.writers.values() if w.role == "consumer"})
    out: list[tuple[Any, ...]] = []
    nodes = sorted({p.node for p in ledgers.promotions})
    ahead = {name: {node: clocks.ahead_at_most(node, name) for node in nodes} for name in consumers}
    for k in known(ledgers):
        promotion = served[k.writer, k.incarnation, k.serving]
        for consumer in consumers:
            offset = clocks.interval(consumer, promotion.node)
            until = alone_until(promotion, ledgers.promotions, ahead[consumer])
            if offset is None or until is None or offset[1] - offset[0] > LOOSE_US:
                continue
            shift = offset[1] + SLACK_US
            out.append((
                k.writer, k.incarnation, k.view, consumer, shift, promotion.ts_us + shift, until,
            ))  # fmt: skip
    return out


def alone_until(
    promotion: Promotion, promotions: Sequence[Promotion], ahead: Mapping[str, int | None]
) -> int | None:
    """Until when, by a consumer's clock, this promotion was certainly the last; None if unknown.

    A second promotion for the same epoch also counts, since both primaries may have delivered the message.
    `ahead`: by how much each node's clock is at most ahead of the consumer's."""
    until = FOREVER
    for other in promotions:
        if other.epoch > promotion.epoch or (other.epoch == promotion.epoch and other.node != promotion.node):
            most = ahead[other.node]
            if most is None:
                return None
            until = min(until, other.ts_us - most - SLACK_US)
    return until


def digits(ledgers: LedgerState) -> dict[Process, int]:
    """A power of 16 for each process that served, so that each hex digit of a sum counts one process's
    records.

    With more than 15 processes some share a digit, and the sweep may find needless suspects. This is rare:
    processes that share a digit served far apart.
    """
    processes = list(dict.fromkeys(
        (p.node, p.incarnation) for p in sorted(ledgers.promotions, key=lambda p: p.epoch)
    ))  # fmt: skip
    return {process: 16 ** (place % 15) for place, process in enumerate(processes)}
