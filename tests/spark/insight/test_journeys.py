"""Latencies from ranges compared with those of single messages, on generated histories; quantiles."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from spark.insight.clocks import bounds, delivery_pieces
from spark.latency.confirms import confirm_latency
from spark.latency.histogram import histogram, quantiles
from spark.latency.journeys import confirm_pieces, deliveries, origins, placed, receipts, replication_pieces
from spark.schema import RECORD_SCHEMA
from tests.spark.ledgers import START_US, Ledgers, Pair

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000
Row = dict[str, Any]


def rows_of(ledgers: Ledgers) -> Iterator[Row]:
    for (writer, incarnation), records in ledgers.records.items():
        for wseq, record in enumerate(records):
            yield {"v": 1, "writer": writer, "incarnation": incarnation, "wseq": wseq, **record}


def frame(session: SparkSession, ledgers: Ledgers) -> DataFrame:
    rows = [tuple(row.get(name) for name in RECORD_SCHEMA.names) for row in rows_of(ledgers)]
    return session.createDataFrame(rows, RECORD_SCHEMA)


def each(record: Row) -> range:
    return range(record["first"], record["last"] + 1)


class Naive:
    """Follows each message on its own, in plain dicts."""

    def __init__(self, ledgers: Ledgers) -> None:
        self.ledgers = ledgers
        self.first_sent: dict[tuple[str, int], int] = {}
        self.number: dict[tuple[str, int], tuple[str, int]] = {}
        for (writer, _), r in ledgers.every("sent"):
            for place, tag in enumerate(each(r)):
                number = (writer, r["pfirst"] + place)
                self.number[r["prod"], tag] = number
                self.first_sent[number] = min(r["ts_us"], self.first_sent.get(number, r["ts_us"]))

    def confirms(self) -> Counter[tuple[str, int, int]]:
        """(producer, time of the confirm, latency) -> number of messages."""
        out: Counter[tuple[str, int, int]] = Counter()
        for (writer, _), r in self.ledgers.every("confirmed"):
            for tag in each(r):
                out[writer, r["ts_us"], r["ts_us"] - self.first_sent[self.number[r["prod"], tag]]] += 1
        return out

    def deliveries(self) -> Counter[tuple[str, int, int]]:
        """(queue, time of the first receipt, latency) -> number of messages."""
        received: dict[tuple[str, int, int], int] = {}
        for _, r in self.ledgers.every("received"):
            for number in each(r):
                key = (r["queue"], r["epoch"], number)
                received[key] = min(r["ts_us"], received.get(key, r["ts_us"]))
        begun: dict[tuple[str, int, int], int] = {}
        for _, r in self.ledgers.every("enqueue", "backup_enqueue"):
            for place, number in enumerate(each(r)):
                sent = self.first_sent[self.number[r["prod"], r["pfirst"] + place]]
                begun[r["queue"], r["epoch"], number] = sent
        return Counter((key[0], at, at - begun[key]) for key, at in received.items() if key in begun)

    def in_sync_at(self, primary: str, view: int, n: int) -> str:
        """The in-sync set after the last change by this primary at or before a position."""
        changes = [r for (w, _), r in self.ledgers.every("insync") if (w, r["view"]) == (primary, view)]
        return next((str(r["name"]) for r in reversed(changes) if r["n"] <= n), "")

    def replication(self) -> Counter[tuple[str, int, int]]:
        """(peer and kind of ack, time of the ack, latency) -> number of messages."""
        acked: dict[tuple[str, int, int, str], int] = {}
        for (writer, _), r in self.ledgers.every("replicated"):
            for n in each(r):
                acked.setdefault((writer, r["epoch"], n, f"{r['peer']}, {r['reason']}"), r["ts_us"])
        out: Counter[tuple[str, int, int]] = Counter()
        for (writer, _), r in self.ledgers.every("enqueue"):
            for (node, view, n, way), at in acked.items():
                in_sync = way.split(",")[0] in self.in_sync_at(writer, r["view"], r["n"])
                if (node, view, n) == (writer, r["view"], r["n"]) and in_sync:
                    out[way, at, at - r["ts_us"]] += len(each(r))
        return out

    def measures(self) -> dict[str, Counter[tuple[str, int, int]]]:
        return {
            "confirm": self.confirms(),
            "replication": self.replication(),
            "end to end": self.deliveries(),
        }


def counted(pieces: DataFrame) -> Counter[tuple[str, int, int]]:
    out: Counter[tuple[str, int, int]] = Counter()
    for row in pieces.collect():
        out[row["key"], row["at_us"], row["latency_us"]] += row["n"]
    return out


def slow(ledgers: Ledgers, seed: int) -> Ledgers:
    """The same history with delayed confirms, acks and receipts."""
    delays = {"confirmed": 7, "received": 31, "replicated": 3}
    for place, (_, record) in enumerate(ledgers.every(*delays)):
        record["ts_us"] += 1 + (place * 7919 + seed) % 97 * 100 * delays[record["kind"]]
    return ledgers


@pytest.mark.soak
@given(seed=st.integers(0, 10_000), ticks=st.integers(8, 14), batch=st.integers(1, 12))
@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    print_blob=True,
)
def test_pieces_match_single_messages(session: SparkSession, seed: int, ticks: int, batch: int) -> None:
    ledgers = slow(Pair(seed, ticks, batch).run(), seed)
    naive, records = Naive(ledgers), frame(session, ledgers)
    sent, put, received = (
        f.localCheckpoint() for f in (origins(records), placed(records), receipts(records))
    )
    arrived = deliveries(sent, put, received)
    agreed = session.createDataFrame([], "writer string, broker string, hour long, low_us long, high_us long")
    pieces = confirm_pieces(records, sent).unionByName(replication_pieces(records))
    found = pieces.unionByName(delivery_pieces(arrived, agreed)).localCheckpoint()
    for measure, expected in naive.measures().items():
        assert counted(found.where(F.col("measure") == measure)) == expected, measure


def nearest_rank(values: Counter[int], thousandths: int) -> int:
    ordered = sorted(values.elements())
    return ordered[max(math.ceil(len(ordered) * thousandths / 1000), 1) - 1]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(-5, 10**9), st.integers(1, 50)), min_size=1, max_size=120
    )
)
@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    print_blob=True,
)
def test_quantiles_match_single_messages_within_a_bin(
    session: SparkSession, given_pieces: list[tuple[int, int, int]]
) -> None:
    naive: dict[str, Counter[int]] = defaultdict(Counter)
    rows = []
    for key, latency, n in given_pieces:
        rows.append(("m", f"k{key}", 5 * SECOND + key, latency, n))
        naive[f"k{key}"][max(latency, 0)] += n
    pieces = session.createDataFrame(rows, "measure string, key string, at_us long, latency_us long, n long")
    found = quantiles(histogram(pieces, SECOND), ["key"]).collect()
    assert {row["key"]: row["n"] for row in found} == {key: c.total() for key, c in naive.items()}
    for row in found:
        for name, share in (("p50_us", 500), ("p99_us", 990), ("max_us", 1000)):
            exact = nearest_rank(naive[row["key"]], share)
            assert abs(row[name] - exact) <= exact / 256 and (exact >= 256 or row[name] == exact)


def test_a_resend_mixed_with_fresh_messages_counts_from_its_first_send(
    session: SparkSession,
) -> None:
    ledgers, process = Ledgers(), ("p", 1)
    ledgers.note(process, 0, 0, "sent", prod="p.1", first=1, last=10, pfirst=1)
    ledgers.note(process, 100, 0, "confirmed", prod="p.1", first=1, last=6)
    ledgers.note(process, 5000, 0, "sent", prod="p.2", first=1, last=8, pfirst=7)
    ledgers.note(process, 9000, 0, "confirmed", prod="p.2", first=1, last=8)
    records = frame(session, ledgers)
    assert counted(confirm_pieces(records, origins(records))) == Counter(
        {("p", 100, 100): 6, ("p", 9000, 9000): 4, ("p", 9000, 4000): 4}
    )


def test_hours_of_clock_skew_do_not_become_latency(session: SparkSession) -> None:
    ledgers = Pair(11).run()
    for row in (record for records in ledgers.records.values() for record in records):
        row["ts_us"] = START_US + 30 * (row["ts_us"] - START_US)  # long enough to bound each consumer's clock
    slow(ledgers, 11)
    skew = {"p1": 7200 * SECOND, "c1": -3 * 3600 * SECOND}
    before = Naive(ledgers).deliveries()
    for (writer, _), record in ledgers.every("sent", "confirmed", "received", "acked"):
        record["ts_us"] += skew.get(writer, 0)
    records = frame(session, ledgers)
    sent, put, received = (
        f.localCheckpoint() for f in (origins(records), placed(records), receipts(records))
    )
    arrived = deliveries(sent, put, received).localCheckpoint()
    limits = bounds(records, put, received, arrived).localCheckpoint()
    widest = max(latency for _, _, latency in before)
    found = counted(delivery_pieces(arrived, limits))
    assert found.total() == before.total()
    assert max(latency for _, _, latency in found) < widest + 5 * SECOND
    offsets = {(r["writer"], r["broker"]): (r["low_us"], r["high_us"]) for r in limits.collect()}
    low, high = offsets["p1", "a"]
    assert low <= -skew["p1"] <= high and high - low < SECOND
    low, high = offsets["c1", "a"]
    assert low <= -skew["c1"] <= high + SECOND


def test_latency_along_the_timeline_of_a_run(session: SparkSession) -> None:
    ledgers = slow(Pair(5).run(), 5)
    begin = min(r["ts_us"] for r in rows_of(ledgers)) // SECOND * SECOND
    timeline = {"slot_us": SECOND, "start_us": begin, "sent": [0, 0, 0]}
    answer = confirm_latency(frame(session, ledgers), timeline)
    assert answer is not None
    naive = Naive(ledgers).confirms()
    assert answer["n"] == naive.total()
    for slot in range(3):
        mine = Counter[int]()
        for (_, at, latency), n in naive.items():
            if (at - begin) // SECOND == slot:
                mine[latency] += n
        got = answer["slots"]["p99_us"][slot]
        assert (got is None) == (not mine)
        if mine:
            assert got == pytest.approx(nearest_rank(mine, 990), rel=1 / 256)
