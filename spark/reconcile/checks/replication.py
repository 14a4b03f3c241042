"""Checks that every confirm waited for the acks of all in-sync nodes (invariant 2).

The acks and the in-sync times are few ranges of positions, which the driver collects. It computes the
positions that an in-sync node had *not* acknowledged. Only confirmed runs at such positions are checked;
normally there are none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from spark.ranges import islands, overlap, settle, sweep
from spark.reconcile.ledgers.state import LedgerState, SyncChange

FOREVER = 2**62
Span = tuple[int, int]

LACK_SCHEMA = StructType(
    [
        StructField("view", LongType()), StructField("owner", StringType()),
        StructField("node", StringType()), StructField("n_first", LongType()),
        StructField("n_last", LongType()), StructField("beyond", BooleanType()),
        StructField("excluded_us", LongType()), StructField("disk", BooleanType()),
    ]
)  # fmt: skip


@dataclass(slots=True, frozen=True)
class Stay:
    """A backup was in sync with `owner`, the primary of `view`, for these positions without a break."""

    view: int
    owner: str
    node: str
    n_first: int
    n_last: int
    excluded_us: int | None
    """When the backup was excluded, by the owner's clock; None: it stayed to the end of the epoch."""


@dataclass(slots=True, frozen=True)
class Lack:
    """Positions of `view` that the in-sync node `node` did not acknowledge; the columns of LACK_SCHEMA.

    `beyond`: they follow the last position that it acknowledged in that stay. `disk`: the missing acks are
    those for the disk; then `node` may be the owner itself.
    """

    view: int
    owner: str
    node: str
    n_first: int
    n_last: int
    beyond: bool
    excluded_us: int | None
    disk: bool


def acks(events: DataFrame) -> DataFrame:
    """kind, view, node, reason, first..last: acknowledged positions. Few rows.

    Kind replicated: a backup acknowledged them to the primary. Kind durable: they are on the writer's own
    disk."""
    own = F.when(F.col("kind") == "durable", F.col("writer")).otherwise(F.col("peer"))
    noted = events.where("kind in ('replicated', 'durable')").select(
        "kind", F.col("epoch").alias("view"), own.alias("node"), "reason", "first", "last"
    )
    return islands(noted, ["kind", "view", "node", "reason"])


def stays(ledgers: LedgerState) -> list[Stay]:
    """The stays of all backups, from the `insync` records of each epoch's owner."""
    owners = {(p.epoch, p.node) for p in ledgers.promotions}
    by_owner: dict[tuple[int, str], list[SyncChange]] = defaultdict(list)
    for change in ledgers.changes:
        if (change.view, change.node) in owners:
            by_owner[change.view, change.node].append(change)
    out = []
    for (view, owner), changes in sorted(by_owner.items()):
        began: dict[str, int] = {}
        for change in sorted(changes, key=lambda c: (c.incarnation, c.wseq)):
            for node in sorted(set(began) - set(change.names)):
                out.append(Stay(view, owner, node, began.pop(node), change.n - 1, change.ts_us))
            for node in change.names:
                if node != owner:
                    began.setdefault(node, change.n)
        out += [Stay(view, owner, node, n, FOREVER, None) for node, n in began.items()]
    return out


def unacknowledged(ledgers: LedgerState, noted: Iterable[Mapping[str, Any]]) -> list[Lack]:
    """The acks that confirms had to wait for and that `acks` does not contain.

    If a primary never writes `durable`, neither its own disk nor its backups' disks are checked. After a
    kill, the state of the disk beyond the last such record is unknown.
    """
    copied: dict[tuple[int, str], list[Span]] = defaultdict(list)
    on_disk: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for row in noted:
        span, key = (row["first"], row["last"]), (row["view"], row["node"])
        if row["kind"] == "durable" or row["reason"] == "durable":
            on_disk[key].append(span)
        if row["kind"] == "replicated":
            copied[key].append(span)
    out = []
    strict = {(p.epoch, p.node) for p in ledgers.promotions if ledgers.notes_disk(p)}
    for stay in stays(ledgers):
        out += _lacks(stay, copied[stay.view, stay.node], disk=False)
        if (stay.view, stay.owner) in strict:
            out += _lacks(stay, on_disk[stay.view, stay.node], disk=True)
    for promotion in ledgers.promotions:
        if (promotion.epoch, promotion.node) in strict:
            spans = on_disk[promotion.epoch, promotion.node]
            killed = ledgers.writers[promotion.node, promotion.incarnation].end == "crashed"
            end = max((last for _, last in spans), default=0) if killed else FOREVER
            own = Stay(promotion.epoch, promotion.node, promotion.node, 0, end, None)
            lacks = _lacks(own, spans, disk=True)
            out += [replace(lack, beyond=False) for lack in lacks]
    return [part for lack in out for part in _beside(lack, early(ledgers, lack))]


def early(ledgers: LedgerState, lack: Lack) -> list[Span]:
    """The positions that confirms did not wait for there: by a level below `all-disks` for the disks of
    backups, by `all-memory` for that of the primary, too."""
    if not lack.disk:
        return []
    least = 2 if lack.node == lack.owner else 1
    spans: list[Span] = []
    since: int | None = None
    changes = [c for c in ledgers.levels if (c.view, c.node) == (lack.view, lack.owner)]
    for change in sorted(changes, key=lambda c: (c.incarnation, c.wseq)):
        if change.level >= least:
            since = change.n if since is None else min(since, change.n)
        elif since is not None:
            spans.append((since, change.n - 1))
            since = None
    return spans if since is None else [*spans, (since, FOREVER)]


def _beside(lack: Lack, spans: Sequence[Span]) -> list[Lack]:
    """The parts of a lack that are in none of the spans."""
    parts, due = [], lack.n_first
    for first, last in sorted(spans):
        if first > due:
            parts.append(replace(lack, n_first=due, n_last=min(first - 1, lack.n_last)))
        due = max(due, last + 1)
        if due > lack.n_last:
            return [part for part in parts if part.n_first <= part.n_last]
    return [*parts, replace(lack, n_first=due)]


def _lacks(stay: Stay, spans: Sequence[Span], *, disk: bool) -> list[Lack]:
    """The gaps between `spans` in a stay, and the positions after the last span."""
    due, out = stay.n_first, []
    inside = sorted(span for span in spans if span[1] >= stay.n_first and span[0] <= stay.n_last)

    def lack(first: int, last: int, *, beyond: bool) -> Lack:
        return Lack(stay.view, stay.owner, stay.node, first, last, beyond, stay.excluded_us, disk)

    for first, last in inside:
        if first > due:
            out.append(lack(due, first - 1, beyond=False))
        due = max(due, last + 1)
    if due <= stay.n_last:
        out.append(lack(due, stay.n_last, beyond=True))
    return out


def early_confirms(
    events: DataFrame, confirmed: DataFrame, lacks: Sequence[Lack], ahead_us: Mapping[tuple[str, str], int]
) -> DataFrame | None:
    """FINDING_SCHEMA `early` by queue and epoch: confirmed although an in-sync node had not acknowledged.
    None if there is no such confirm.

    After a backup's last ack, two things excuse a missing ack. Either the confirm came after the backup was
    excluded, or the backup's own ledger shows that it applied the run, and the primary was killed before it
    could record the ack. `ahead_us`: by how much a primary's clock is at most ahead of a producer's; without
    an entry the time of a confirm is unknown.
    """
    session = events.sparkSession
    missing = F.broadcast(session.createDataFrame([astuple(lack) for lack in lacks], LACK_SCHEMA))
    runs = confirmed.where("kind = 'enqueue' and n is not null").withColumnRenamed("node", "writer")
    due = runs.join(missing, "view").where(
        "writer = owner and n between n_first and n_last and (not disk or coalesce(durable, 0) = 1)"
    )
    due = settle(due.select(
        "queue", "epoch", "first", "last", "prod", "tag", "owner", "node", "beyond", "excluded_us", "disk"
    ))  # fmt: skip
    cases = {(row["beyond"], row["stayed"]) for row in _cases(due)}
    if not cases:
        return None
    columns = ["queue", "epoch", "first", "last", "node", "disk"]
    found = due.where("not beyond").select(columns)
    if (True, True) in cases:
        found = found.unionByName(
            _uncopied(events, due.where("beyond and excluded_us is null")).select(columns)
        )
    if (True, False) in cases:
        late = due.where("beyond and excluded_us is not null")
        found = found.unionByName(_before_exclusion(events, late, ahead_us))
    note = F.when(F.col("disk"), F.concat(F.lit("disk of "), "node"))
    labelled = found.select(
        F.lit("early").alias("label"), "queue", "epoch", note.alias("note"), "first", "last"
    )
    return islands(labelled, ["label", "queue", "epoch", "note"])


def _cases(due: DataFrame) -> list[Any]:
    return due.select("beyond", F.col("excluded_us").isNull().alias("stayed")).distinct().collect()


def _uncopied(events: DataFrame, open_ones: DataFrame) -> DataFrame:
    """The parts of `open_ones` that the backup's own ledger does not show either."""
    wanted = islands(open_ones, ["queue", "epoch"])
    put = events.where("kind = 'backup_enqueue'").select("writer", "queue", "epoch", "first", "last")
    have = overlap(put, wanted, ["queue", "epoch"], small=True)
    both = open_ones.select(
        "node", "queue", "epoch", "first", "last", (~F.col("disk")).cast("long").alias("copy"),
        F.col("disk").cast("long").alias("disk"), F.lit(0).alias("held"),
    ).unionByName(have.select(
        F.col("writer").alias("node"), "queue", "epoch", "first", "last", F.lit(0).alias("copy"),
        F.lit(0).alias("disk"), F.lit(1).alias("held"),
    ))  # fmt: skip
    parts = sweep(both, ["node", "queue", "epoch"], ["copy", "disk", "held"]).where("held = 0")
    which = F.explode(F.array_compact(F.array(
        F.when(F.col("copy") > 0, F.lit(False)), F.when(F.col("disk") > 0, F.lit(True))
    )))  # fmt: skip
    return parts.select("node", "queue", "epoch", "first", "last", which.alias("disk"))


def _before_exclusion(
    events: DataFrame, open_ones: DataFrame, ahead_us: Mapping[tuple[str, str], int]
) -> DataFrame:
    """Runs that an excluded backup did not acknowledge, and that were certainly confirmed before the
    exclusion."""
    runs = open_ones.select(
        "prod", F.col("tag").alias("first"), (F.col("tag") + F.col("last") - F.col("first")).alias("last"),
        "queue", "epoch", (F.col("first") - F.col("tag")).alias("shift"), "owner", "node", "excluded_us",
        "disk",
    )  # fmt: skip
    pairs = [(*pair, us) for pair, us in ahead_us.items()]
    bounds = events.sparkSession.createDataFrame(pairs, "owner string, writer string, ahead_us long")
    confirms = events.where("kind = 'confirmed'").select("writer", "prod", "first", "last", "ts_last_us")
    known = overlap(confirms, runs, ["prod"], small=True).join(F.broadcast(bounds), ["owner", "writer"])
    return known.where("ts_last_us + ahead_us < excluded_us").select(
        "queue", "epoch", (F.col("first") + F.col("shift")).alias("first"),
        (F.col("last") + F.col("shift")).alias("last"), "node", "disk",
    )  # fmt: skip
