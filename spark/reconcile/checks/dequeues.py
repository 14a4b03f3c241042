"""Leaving a queue: for a documented reason, once, and for good.

Every transform here looks at few rows: `suspects` says by the sweep over all ids whether there are any.
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
    "queue-unused", "owner-gone", "delivery-limit",
})  # fmt: skip
"""For which a message may leave a queue."""

SLACK_US = 1_000_000
"""A receipt that is later than a dequeue by no more than this proves nothing."""
LOOSE_US = 60_000_000
"""Where the offset of two clocks is known no better than this, their times are not compared."""


def unexplained(events: DataFrame) -> DataFrame:
    """FINDING_SCHEMA by queue and epoch: dequeued for no reason, or for one that nobody has documented
    (note)."""
    strange = "reason is null or reason not in ({})".format(", ".join(f"'{r}'" for r in sorted(REASONS)))
    gone = events.where(f"kind in ('dequeue', 'backup_dequeue') and ({strange})")
    found = gone.select(
        F.lit("unexplained").alias("label"), "queue", "epoch", F.nullif("reason", F.lit("")).alias("note"),
        "first", "last",
    )  # fmt: skip
    return islands(found, ["label", "queue", "epoch", "note"])


@dataclass(slots=True, frozen=True)
class Known:
    """What a process noted in epoch `view` it still knew when it served epoch `serving`."""

    writer: str
    incarnation: int
    view: int
    serving: int


def known(ledgers: LedgerState) -> list[Known]:
    """A node that got in sync anew has the state of that epoch's primary, which may not have heard of all
    that it had noted before: such records count no longer."""
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
    """FINDING_SCHEMA by queue and epoch, note = the node: removed by a primary that had removed it before,
    or had followed its removal, and had not got it again since.

    `suspects`: queue, epoch, first..last worth looking at. Counts, not order, tell: more removals than
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
    """FINDING_SCHEMA by queue and epoch, note = the node: handed out again, flagged, by a primary that knew
    of its ack. None if nothing of the kind is there, or no clock is
    known well enough to say.

    If the only ack in the ledgers is that of the same consumer, the receipt is what was acked: its ledger may
    have been written late.
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
    """Of what was received late, all but what the same consumer alone acked."""
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
    """For a dequeue noted by a process in a view, and a consumer: when, by the consumer's clock, a receipt is
    certainly later, and certainly from that process."""
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
    """Until when, by a consumer's clock, nobody was promoted for a later epoch, nor another process for this
    one: two primaries of one epoch may both have handed it out. None if that is not known. `ahead`: by how
    much the clock of each node is ahead of the consumer's at most."""
    until = FOREVER
    for other in promotions:
        if other.epoch > promotion.epoch or (other.epoch == promotion.epoch and other.node != promotion.node):
            most = ahead[other.node]
            if most is None:
                return None
            until = min(until, other.ts_us - most - SLACK_US)
    return until


def digits(ledgers: LedgerState) -> dict[Process, int]:
    """Powers of 16, one for each process that served: a sum of them counts the records of each by a digit.

    Beyond 15 processes several share a digit, and more may be suspected than need be; hardly ever, since
    those that lived together served soon after each other.
    """
    processes = list(dict.fromkeys(
        (p.node, p.incarnation) for p in sorted(ledgers.promotions, key=lambda p: p.epoch)
    ))  # fmt: skip
    return {process: 16 ** (place % 15) for place, process in enumerate(processes)}
