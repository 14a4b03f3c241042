"""Pruned ledgers: every planted fault above the horizon is still found, and nothing else.

The horizon is computed here from the pruned records themselves: the highest id of each queue and epoch, and
the highest tag of each session, in any pruned ledger. A loss concerns confirmed messages, by tag. If the
confirm was pruned and the id was not, the id is unaccounted for instead, and an early confirm cannot be
found.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.histories.oracle import Named
from understudy.ledger.ranges import to_ranges
from understudy.ledger.retention import plan, prune
from understudy.ledger.segments import Series, find, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_OTHERS = frozenset({
    "enqueued-twice", "reordered-enqueue", "two-primaries", "acked-returned", "duplicate-illegal",
    "quarantine-differs", "dequeued-twice", "number-doubled",
})  # fmt: skip
"""Kinds that compare an id or tag with another, which may be gone: found less often, never falsely."""

Floors = dict[tuple[object, ...], int]
Id = tuple[str, int, int]
Tag = tuple[str, int]


def every(series: Series) -> list[dict[str, Any]]:
    return [record for segment in series.segments for record in records(segment, lambda damage: None)]


def prune_at(folder: Path, seed: int) -> tuple[Floors, Set[Id]]:
    """Prune all ledgers up to one moment, as a nightly job does.

    Returns the highest pruned id or tag of each key, and the ids whose confirms were pruned.
    """
    whole = find([folder])[0]
    times = [record["ts_us"] for series in whole for record in every(series)]
    moment = random.Random(seed).randint(min(times), max(times))
    enqueued: dict[Tag, set[Id]] = defaultdict(set)
    for record in (record for series in whole for record in every(series)):
        for tag, id_ in _enqueued(record):
            enqueued[tag].add(id_)
    floors: Floors = defaultdict(int)
    unconfirmed: set[Id] = set()
    for series in whole:
        going = plan(series, before_us=moment)
        if not going.going:
            continue
        for segment in going.going:
            for record in records(segment, lambda damage: None):
                for key, upto in _told(record):
                    floors[key] = max(floors[key], upto)
                if record["kind"] == "confirmed":
                    for number in range(record["first"], record["last"] + 1):
                        unconfirmed |= enqueued.get((record["prod"], number), set())
        prune(going)
    return floors, unconfirmed


def _enqueued(record: dict[str, Any]) -> Iterable[tuple[Tag, Id]]:
    if record["kind"] in ("enqueue", "backup_enqueue") and "prod" in record:
        for k, sequence in enumerate(range(record["first"], record["last"] + 1)):
            yield (record["prod"], record["pfirst"] + k), (record["queue"], record["epoch"], sequence)


def _told(record: dict[str, Any]) -> Iterable[tuple[tuple[object, ...], int]]:
    if record["kind"] == "quarantine" or "last" not in record:
        return
    if "queue" in record and "epoch" in record:
        yield (record["queue"], record["epoch"]), record["last"]
    if "prod" in record:
        run = record["kind"] in ("enqueue", "backup_enqueue")
        yield (
            (record["prod"],),
            record["pfirst"] + record["last"] - record["first"] if run else record["last"],
        )


def above(named: Named, floors: Floors) -> Named | None:
    kind, queue, epoch, prod, note, ranges = named
    floor = floors.get((queue, epoch) if epoch is not None else (prod,), 0) if queue is None or epoch else 0
    if kind == "torn":
        return named if ranges[0][0] > floor else None
    left = tuple((max(first, floor + 1), last) for first, last in ranges if last > floor)
    return (kind, queue, epoch, prod, note, left) if left or not ranges else None


def renamed(expected: Iterable[Named], unconfirmed: Set[Id]) -> set[Named]:
    """The expected findings as the remaining ledgers show them, with those confirms gone."""
    out: set[Named] = set()
    ids: dict[tuple[str, Any, Any, Any, Any], set[int]] = defaultdict(set)
    for named in expected:
        kind, queue, epoch, prod, note, ranges = named
        if kind not in ("lost", "unaccounted", "early"):
            out.add(named)
            continue
        for sequence in (n for first, last in ranges for n in range(first, last + 1)):
            gone = kind != "unaccounted" and (queue, epoch, sequence) in unconfirmed
            if not gone:
                ids[kind, queue, epoch, prod, note].add(sequence)
            elif kind == "lost" and note != "quarantined":
                ids["unaccounted", queue, epoch, prod, note].add(sequence)
    return out | {(*key, tuple(to_ranges(found))) for key, found in ids.items()}


def differences(expected: Set[Named], session: SparkSession, folder: Path, seed: int) -> list[str]:
    """Prune ledgers with these expected findings, and reconcile what remains. Returns the differences."""
    from spark.reconcile.input.read import find_ledgers
    from spark.reconcile.job import reconcile
    from tests.spark.histories.trial import told

    floors, unconfirmed = prune_at(folder, seed)
    answer = reconcile(session, find_ledgers([folder]))
    spark = told(answer)
    found = spark["violation"] | spark["unknown"]
    left = {rest for named in renamed(expected, unconfirmed) if (rest := above(named, floors)) is not None}
    out = [f"  pruned, and found by Spark alone: {named}" for named in sorted(found - left, key=str)]
    out += [
        f"  pruned, and no longer found by Spark: {named}"
        for named in sorted(left - found, key=str)
        if named[0] not in BY_OTHERS
    ]
    if not left and answer["missing"]:
        out.append(f"  pruned, and not provable: {answer['missing'][:2]}")
    return out
