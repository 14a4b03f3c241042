"""Bounds on the clock offsets of writers, derived from the order in which events must happen.

A message is sent before it is enqueued, enqueued before it is confirmed or received, and received before the
dequeue that its ack causes. Each such pair of events bounds the offset of two clocks from one side. A sample
of messages gives the bounds between clients and brokers. Shortest paths over these give the bounds between
any writer and any broker. The only assumption is that clocks run evenly. Where they do not, the offset is
unknown, and no check uses it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.ranges import overlap, settle

SAMPLE_EVERY = 1 << 20
"""The sample has the first tag of each session, and every tag that is a multiple of this."""
STAMP_US = 250_000
"""A record may carry the time of its flush, so no bound is more precise than this."""
WORTH_SAYING_US = 2_000_000
"""The result mentions clocks that certainly differ by more than this."""


@dataclass(slots=True)
class Clocks:
    """Upper bounds of (clock of x - clock of y), in microseconds, for pairs (x, y) that are known."""

    bounds: dict[tuple[str, str], int] = field(default_factory=dict)

    def ahead_at_most(self, one: str, other: str) -> int | None:
        """The most by which the clock of `one` can be ahead of the clock of `other`; None if unknown."""
        return 0 if one == other else self.bounds.get((one, other))

    def interval(self, one: str, other: str) -> tuple[int, int] | None:
        """(least, greatest) of clock of `one` - clock of `other`; None unless both are known."""
        most, least = self.ahead_at_most(one, other), self.ahead_at_most(other, one)
        return None if most is None or least is None else (-least, most)


def sessions(events: DataFrame) -> DataFrame:
    """kind, writer, prod, point, ts_us, ts_last_us: which writer sent, enqueued and confirmed each sampled
    tag, and when. Few rows."""
    of_run = F.col("kind") == "enqueue"
    first = F.when(of_run, F.col("pfirst")).otherwise(F.col("first"))
    last = first + F.col("last") - F.col("first")
    multiple = F.floor(last / SAMPLE_EVERY) * SAMPLE_EVERY
    point = F.when((first <= 1) & (last >= 1), F.lit(1)).when(multiple >= first, multiple)
    rows = events.where("prod is not null and kind in ('sent', 'confirmed', 'enqueue')")
    return rows.select(
        "kind", "writer", "prod", point.cast("long").alias("point"), "ts_us",
        F.coalesce("ts_last_us", "ts_us").alias("ts_last_us"),
    ).where("point is not null")  # fmt: skip


def receipts(events: DataFrame) -> DataFrame:
    """kind, writer, client, queue, epoch, point, ts_us, ts_last_us. Few rows.

    When the first and the last id that each consumer received from each queue and epoch were enqueued,
    received, acked by this consumer, and dequeued."""
    fresh = events.where("kind = 'received' and writer is not null and coalesce(reason, '') != 'redelivered'")
    one = F.struct("wseq", "first", "ts_us", F.coalesce("ts_last_us", "ts_us").alias("ts_last_us"))
    ends = fresh.groupBy("writer", "incarnation", "queue", "epoch").agg(
        F.array_distinct(F.array(F.min(one), F.max(one))).alias("ends")
    )
    got = settle(
        ends.select(F.col("writer").alias("client"), "queue", "epoch", F.inline("ends")).select(
            "client", "queue", "epoch", "first", F.col("first").alias("last"), F.col("first").alias("point"),
            F.col("ts_us").alias("got_us"), F.col("ts_last_us").alias("by_us"),
        )
    )  # fmt: skip
    acked = "kind in ('enqueue', 'acked') or (kind = 'dequeue' and reason = 'acked')"
    rows = events.where(f"queue is not null and ({acked})").select(
        "kind", "writer", "queue", "epoch", "first", "last", "ts_us",
        F.coalesce("ts_last_us", "ts_us").alias("ts_last_us"),
    )  # fmt: skip
    columns = ["kind", "writer", "client", "queue", "epoch", "point", "ts_us", "ts_last_us"]
    met = overlap(rows, got.drop("got_us", "by_us"), ["queue", "epoch"], small=True)
    mine = met.where("kind != 'acked' or writer = client").select(columns)
    return mine.unionByName(got.select(
        F.lit("received").alias("kind"), F.col("client").alias("writer"), "client", "queue", "epoch", "point",
        F.col("got_us").alias("ts_us"), F.col("by_us").alias("ts_last_us"),
    ))  # fmt: skip


Row = Mapping[str, Any]


@dataclass(slots=True)
class Bounds:
    """The least upper bound of (clock of x - clock of y) for each pair of writers with common messages."""

    most: dict[tuple[str, str], int] = field(default_factory=dict)

    def say(self, one: str, other: str, us: int) -> None:
        pair = one, other
        self.most[pair] = min(us, self.most.get(pair, us))


def pair_bounds(sent: Iterable[Row], got: Iterable[Row]) -> Bounds:
    """Bounds from the rows of `sessions` and `receipts`: the order of events holds by either clock."""
    bounds = Bounds()
    for rows in _grouped(sent, "prod", "point").values():
        for put in rows["enqueue"]:
            for row in rows["sent"]:
                bounds.say(put["writer"], row["writer"], put["ts_us"] - row["ts_us"])
            for row in rows["confirmed"]:
                bounds.say(row["writer"], put["writer"], row["ts_last_us"] - put["ts_us"])
    for rows in _grouped(got, "client", "queue", "epoch", "point").values():
        for row in rows["received"]:
            for put in rows["enqueue"]:
                bounds.say(row["writer"], put["writer"], row["ts_last_us"] - put["ts_us"])
            for gone in rows["dequeue"] if rows["acked"] else ():
                bounds.say(gone["writer"], row["writer"], gone["ts_last_us"] - row["ts_us"])
    return bounds


def _grouped(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], dict[str, list[Row]]]:
    out: dict[tuple[Any, ...], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        out[tuple(row[key] for key in keys)][row["kind"]].append(row)
    return out


def compare(found: Bounds, brokers: Iterable[str]) -> Clocks:
    """Derive bounds between any writer and each of `brokers` from the bounds of pairs.

    A pair with contradictory bounds is ignored (a clock was set, or a client wrote late). If the bounds
    contradict each other only together, nothing is known.
    """
    loose = {pair: us + STAMP_US for pair, us in found.most.items()}
    edges = {(x, y): us for (x, y), us in loose.items() if us + loose.get((y, x), abs(us)) >= 0}
    bounds: dict[tuple[str, str], int] = {}
    turned = {(y, x): us for (x, y), us in edges.items()}
    for broker in sorted(set(brokers)):
        above, below = _shortest(turned, broker), _shortest(edges, broker)
        if above is None or below is None:
            return Clocks()
        bounds.update({(x, broker): us for x, us in above.items() if x != broker})
        bounds.update({(broker, x): us for x, us in below.items() if x != broker})
    return Clocks(bounds)


def _shortest(edges: Mapping[tuple[str, str], int], start: str) -> dict[str, int] | None:
    """Shortest distances from `start` along `edges` (Bellman-Ford); None if the edges contradict each
    other."""
    far = {start: 0}
    nodes = {name for pair in edges for name in pair} | {start}
    for _ in nodes:
        changed = False
        for (x, y), us in edges.items():
            if x in far and far[x] + us < far.get(y, 1 << 62):
                far[y] = far[x] + us
                changed = True
        if not changed:
            return far
    return None


def duration(us: int) -> str:
    """An approximate duration in words."""
    for unit, size in (("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000)):
        if us >= size * (1 if unit == "h" else 2):
            amount = us / size
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f}".removesuffix(".0") + f" {unit}"
    return "0 ms"


def describe(clocks: Clocks, writers: Iterable[str], reference: str) -> list[dict[str, Any]]:
    """The `clocks` of the result: for each writer the interval of its clock minus the clock of
    `reference`."""
    out = []
    for writer in sorted(set(writers) - {reference}):
        most, least = clocks.ahead_at_most(writer, reference), clocks.ahead_at_most(reference, writer)
        low, high = None if least is None else -least, most
        out.append({
            "writer": writer, "reference": reference, "low_us": low, "high_us": high,
            "sentence": _sentence(writer, reference, low, high),
        })  # fmt: skip
    return out


def _sentence(writer: str, reference: str, low: int | None, high: int | None) -> str | None:
    for sign, near, far, way in ((1, low, high, "ahead of"), (-1, high, low, "behind")):
        if near is not None and near * sign > WORTH_SAYING_US:
            close = far is not None and abs(far - near) * 5 < abs(near)
            amount = f"about {duration(abs(near + far) // 2)}" if close and far is not None else (
                f"at least {duration(abs(near))}"
            )  # fmt: skip
            return f"the clock of {writer} is {amount} {way} {reference}'s"
    return None
