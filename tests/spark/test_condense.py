"""Condensing records into events: pure Arrow, no JVM."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from spark.condense import condense_batches
from spark.schema import RECORD_SCHEMA

HEAD = {"v": 1, "writer": "w", "incarnation": 1, "ts_us": 5_000_000, "view": 0}
QUEUE = {"queue": "q", "epoch": 1}


def events(*records: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [{**HEAD, "wseq": place, **record} for place, record in enumerate(records)]
    batch = pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(RECORD_SCHEMA))
    out = [row for made in condense_batches([batch]) for row in made.to_pylist()]
    return [{key: value for key, value in row.items() if value is not None} for row in out]


def of_kind(kind: str, *records: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in events(*records) if event["kind"] == kind]


def receipts(*pairs: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"kind": "received", **QUEUE, "first": first, "last": last} for first, last in pairs]


def test_adjacent_ranges_become_one_and_keep_their_times() -> None:
    late = {"kind": "received", **QUEUE, "first": 6, "last": 9, "ts_us": 5_000_100}
    [event] = of_kind("received", *receipts((1, 5)), late)
    assert (event["first"], event["last"], event["ts_us"], event["ts_last_us"]) == (
        1,
        9,
        5_000_000,
        5_000_100,
    )


def test_what_is_received_twice_stays_twice() -> None:
    made = of_kind("received", *receipts((1, 5), (6, 7), (6, 7), (8, 9)))
    assert [(e["first"], e["last"]) for e in made] == [(1, 7), (6, 9)]


def test_order_within_a_kind_is_kept() -> None:
    made = of_kind("received", *receipts((6, 9), (1, 5)))
    assert [(e["first"], e["last"], e["wseq"]) for e in made] == [(6, 9, 0), (1, 5, 1)]


def test_a_redelivery_is_never_joined_to_a_fresh_delivery() -> None:
    flagged = {"kind": "received", **QUEUE, "first": 6, "last": 7, "reason": "redelivered"}
    assert len(of_kind("received", *receipts((1, 5)), flagged)) == 2


def test_publishes_join_only_if_their_own_numbers_follow_too() -> None:
    def sent(first: int, pfirst: int) -> dict[str, Any]:
        return {"kind": "sent", "prod": "w.0/1", "first": first, "last": first + 1, "pfirst": pfirst}

    assert [(e["first"], e["last"]) for e in of_kind("sent", sent(1, 11), sent(3, 13), sent(5, 99))] == [
        (1, 4),
        (5, 6),
    ]


def test_enqueues_keep_their_positions() -> None:
    runs = [{"kind": "enqueue", **QUEUE, "first": n, "last": n, "n": n} for n in (1, 2, 3)]
    assert [e["n"] for e in of_kind("enqueue", *runs)] == [1, 2, 3]


def test_a_hole_in_the_count_of_records_shows_in_the_chain() -> None:
    beats = [{"kind": "heartbeat", "wseq": wseq} for wseq in (0, 1, 2, 5, 6)]
    assert [(e["first"], e["last"]) for e in of_kind("chain", *beats)] == [(0, 2), (5, 6)]


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "received", "first": 1, "last": 2},
        {"kind": "received", **QUEUE, "first": 3, "last": 2},
        {"kind": "sent", "first": 1, "last": 2},
        {"kind": "heartbeat", "writer": None},
        {"kind": "heartbeat", "_corrupt": "{", "_file": "f"},
    ],
)
def test_a_line_that_makes_no_sense_is_malformed_and_not_in_the_chain(record: dict[str, Any]) -> None:
    assert [event["kind"] for event in events(record)] == ["malformed"]


def test_an_empty_queue_at_a_quiesce_point_is_no_mistake() -> None:
    assert of_kind("quiesce", {"kind": "quiesce", **QUEUE, "first": 0, "last": -1, "name": "p"})


def test_records_of_another_version_are_counted_and_not_read() -> None:
    made = events({"kind": "sent", "v": 2, "prod": "p", "first": 1, "last": 2}, {"kind": "heartbeat", "v": 2})
    assert made == [{"kind": "version", "name": "2", "n": 2}]


def test_rates_and_pulses_sum_up_what_was_confirmed() -> None:
    def confirmed(first: int, last: int, ts_us: int) -> dict[str, Any]:
        return {"kind": "confirmed", "prod": "p", "first": first, "last": last, "ts_us": ts_us}

    records = confirmed(1, 10, 1_000_000), confirmed(11, 20, 1_015_000), confirmed(21, 25, 1_500_000)
    assert [(e["first"], e["n"]) for e in of_kind("rate", *records)] == [(10, 20), (15, 5)]
    pulses = [(e["ts_us"], e["ts_last_us"]) for e in of_kind("pulse", *records)]
    assert pulses == [(1_000_000, 1_015_000), (1_500_000, 1_500_000)]
