"""Numbers of producers (invariant 24): no queue takes a number twice, and what it left out it had before.

A producer that numbers its messages sends what is in doubt again with the same numbers. A queue that had a
number leaves the message out, and its primary notes it as `duplicate`. So the confirm of the new publish
stands for the first message of that number: it must be there.

An id counts as had if the node that gave the number a second id knew the first one: it noted the first one
earlier, and so did the next primary after the first one's epoch. What a deposed primary enqueued, and its
successor never had, does not count.

Only numbers in doubt are looked at, which the driver takes: those that two stretches of records share, and
those of duplicates.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.ranges import islands, overlap
from spark.reconcile.input.runs import Spans
from spark.reconcile.ledgers.state import LedgerState

Key = tuple[str, str]
"""Queue and producer."""
Id = tuple[int, int]
"""Epoch and sequence."""
Row = Mapping[str, Any]

DOUBLED, FORGOTTEN = "number-doubled", "number-forgotten"
"""Labels. The second one: the primary had forgotten the producer (`producers.most`, `producers.idle`)."""
_DOUBLED = (
    "label string, queue string, epoch long, first long, last long, note string, before long, shift long"
)
_AGAIN = "prod string, first long, last long, queue string, epoch long, id long"


class Run(NamedTuple):
    """Numbers first..last of one enqueue record; `start` is the first id."""

    first: int
    last: int
    epoch: int
    start: int
    given: bool
    """By a primary."""
    writer: str
    incarnation: int
    wseq: int

    def id_of(self, number: int) -> Id:
        return self.epoch, self.start + number - self.first

    @property
    def at(self) -> tuple[int, int]:
        return self.incarnation, self.wseq


@dataclass(slots=True)
class Said:
    """What ledgers say of numbers, besides enqueues. `duplicates`: messages that a queue left out, as records
    of kind `duplicate`; `forgotten`: producers."""

    duplicates: list[Row] = field(default_factory=list)
    forgotten: frozenset[str] = frozenset()

    @property
    def left_out(self) -> int:
        return sum(row["last"] - row["first"] + 1 for row in self.duplicates)


@dataclass(slots=True)
class Judged:
    """Rows for the other checks. `doubled`: findings; those with `before` count only if the id
    (before, first - shift) has a fate. `again`: tags of duplicates, and the ids that stand for them.
    `unnamed`: tags of duplicates whose first enqueue was pruned, or which are known by ids of their own."""

    doubled: list[tuple[Any, ...]] = field(default_factory=list)
    again: list[tuple[Any, ...]] = field(default_factory=list)
    unnamed: list[tuple[str, int, int]] = field(default_factory=list)


def said(plain: DataFrame, ledgers: LedgerState) -> Said:
    kinds = {kind for writer in ledgers.writers.values() for kind in writer.records}
    if not kinds & {"duplicate", "forgotten"}:
        return Said()
    rows = plain.where("kind in ('duplicate', 'forgotten')").select(
        "kind", "view", "queue", "name", "prod", "first", "last", "number"
    )
    found = [row.asDict() for row in rows.collect()]
    return Said(
        [row for row in found if row["kind"] == "duplicate"],
        frozenset(row["name"] for row in found if row["kind"] == "forgotten"),
    )


def in_doubt(hulls: Sequence[Row], told: Said) -> Spans:
    """By queue and producer: the numbers of which there may be two ids, or which were left out."""
    stretches: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    out: list[tuple[Key, int, int]] = []
    for row in hulls:
        if row["kind"] == "numbers":
            key = row["queue"], row["name"]
            if row["reason"] == "back":
                out.append((key, row["first"], row["last"]))
            else:
                stretches[key].append((row["first"], row["last"]))
    for key, found in stretches.items():
        reach = 0
        for first, last in sorted(found):
            if first <= reach:
                out.append((key, first, min(last, reach)))
            reach = max(reach, last)
    for row in told.duplicates:
        if row["number"] is None:
            continue
        size = row["last"] - row["first"]
        out.append(((row["queue"], row["name"]), row["number"], row["number"] + size))
    return Spans.of(out)


def judge(events: DataFrame, wanted: Spans, told: Said, ledgers: LedgerState, pruned: bool) -> Judged:
    if not wanted.by_key:
        return judged({}, told, (), pruned=pruned)
    rows = events.where("kind in ('enqueue', 'backup_enqueue') and number is not null").select(
        "queue", "name", "number", "first", "last", "epoch", "kind", "writer", "incarnation", "wseq"
    )
    runs: dict[Key, list[Run]] = defaultdict(list)
    for row in rows.collect():
        runs[row["queue"], row["name"]].append(Run(
            row["number"], row["number"] + row["last"] - row["first"], row["epoch"], row["first"],
            row["kind"] == "enqueue", row["writer"], row["incarnation"], row["wseq"],
        ))  # fmt: skip
    return judged(runs, told, [(p.epoch, p.node) for p in ledgers.promotions], pruned=pruned)


def judged(
    runs: Mapping[Key, Sequence[Run]], told: Said, promotions: Iterable[tuple[int, str]], *, pruned: bool
) -> Judged:  # fmt: skip
    out, owners = Judged(), sorted(promotions)
    parts = {key: list(_parts(found)) for key, found in runs.items()}
    for (queue, name), found in parts.items():
        label = FORGOTTEN if name in told.forgotten else DOUBLED
        for first, last, covering in found:
            out.doubled += (
                (label, queue, epoch, start, start + last - first, name, *before)
                for (epoch, start), before in _doubled(first, covering, owners)
            )
    for row in told.duplicates:
        if row["prod"] is not None and row["number"] is None:
            out.unnamed.append((row["prod"], row["first"], row["last"]))
        elif row["prod"] is not None:
            _stand_in(out, row, parts.get((row["queue"], row["name"]), []), pruned=pruned)
    return out


def _parts(runs: Sequence[Run]) -> Iterator[tuple[int, int, list[Run]]]:
    """Disjoint ranges of numbers, in order, with the runs that cover each."""
    edges: dict[int, list[tuple[bool, Run]]] = defaultdict(list)
    for run in runs:
        edges[run.first].append((True, run))
        edges[run.last + 1].append((False, run))
    covering: dict[Run, None] = {}
    for at, behind in pairwise(sorted(edges)):
        for begins, run in edges[at]:
            if begins:
                covering[run] = None
            else:
                covering.pop(run, None)
        if covering:
            yield at, behind - 1, list(covering)


def _doubled(
    number: int, runs: Sequence[Run], owners: Sequence[tuple[int, str]]
) -> Iterator[tuple[Id, tuple[int | None, int | None]]]:
    """Ids that a primary gave to a number, although it knew another one before. Behind each: None, or the
    epoch of that one, and the distance of the two, if that one may have been gone by then."""
    if len({run.id_of(number) for run in runs}) < 2:
        return
    for mine in runs:
        earlier = [
            run for run in runs
            if mine.given and run.id_of(number) < mine.id_of(number) and run.writer == mine.writer
            and run.at < mine.at and _went_on(number, run, mine, runs, owners)
        ]  # fmt: skip
        if any(run.incarnation == mine.incarnation for run in earlier):
            yield mine.id_of(number), (None, None)
        elif earlier:
            epoch, start = max(run.id_of(number) for run in earlier)
            yield mine.id_of(number), (epoch, mine.id_of(number)[1] - start)


def _went_on(
    number: int, run: Run, mine: Run, runs: Sequence[Run], owners: Sequence[tuple[int, str]]
) -> bool:  # fmt: skip
    """Whether that id was there in the epoch of `mine`: the next primary had it."""
    place = bisect_right(owners, (run.epoch, chr(0x10FFFF)))
    if run.epoch == mine.epoch or place == len(owners):
        return True
    return any(
        other.writer == owners[place][1] and other.id_of(number) == run.id_of(number) for other in runs
    )


def _stand_in(
    out: Judged, row: Row, parts: Sequence[tuple[int, int, list[Run]]], *, pruned: bool
) -> None:  # fmt: skip
    """For the tags of a duplicate: the newest id of each number in its epoch or before, whoever noted it.
    What a node got when it joined is not in its ledger."""
    shift, first, last = (
        row["first"] - row["number"],
        row["number"],
        row["number"] + row["last"] - row["first"],
    )
    at = first
    for begin, end, covering in parts:
        known = [run.id_of(begin) for run in covering if run.epoch <= row["view"]]
        low, high = max(begin, first), min(end, last)
        if low > high or not known:
            continue
        if pruned and at < low:
            out.unnamed.append((row["prod"], at + shift, low - 1 + shift))
        epoch, start = max(known)
        out.again.append((row["prod"], low + shift, high + shift, row["queue"], epoch, start + low - begin))
        at = high + 1
    if pruned and at <= last:
        out.unnamed.append((row["prod"], at + shift, last + shift))


def as_placed(session: SparkSession, found: Judged) -> DataFrame:
    """Events of kind `placed`: tags of duplicates that another id stands for."""
    rows = [("placed", *row[:3]) for row in (*found.again, *found.unnamed)]
    return session.createDataFrame(rows, "kind string, prod string, first long, last long")


def placements(session: SparkSession, found: Judged, columns: Sequence[str]) -> DataFrame:
    """Like `publishing.placements`, of kind `duplicate`: the tags of duplicates with the ids of the first
    messages."""
    rows = session.createDataFrame(found.again, _AGAIN).withColumn("kind", F.lit("duplicate"))
    have = set(rows.columns)
    return rows.select(*(F.col(name) if name in have else F.lit(None).alias(name) for name in columns))


def doubled(session: SparkSession, found: Judged, fates: DataFrame) -> DataFrame | None:
    """FINDING_SCHEMA by queue and epoch; note: the producer. `fates`: queue, epoch, first..last of ids with a
    fate."""
    if not found.doubled:
        return None
    columns = ("label", "queue", "epoch", "first", "last", "note")
    rows = session.createDataFrame(found.doubled, _DOUBLED)
    sure = rows.where("before is null").select(*columns)
    perhaps = rows.where("before is not null").select(
        "label", "queue", "note", "shift", F.col("epoch").alias("later"), F.col("before").alias("epoch"),
        (F.col("first") - F.col("shift")).alias("first"), (F.col("last") - F.col("shift")).alias("last"),
    )  # fmt: skip
    met = overlap(perhaps, islands(fates, ["queue", "epoch"]), ["queue", "epoch"])
    there = met.select(
        "label", "queue", F.col("later").alias("epoch"), (F.col("first") + F.col("shift")).alias("first"),
        (F.col("last") + F.col("shift")).alias("last"), "note",
    )  # fmt: skip
    return islands(sure.unionByName(there), ["label", "queue", "epoch", "note"])
