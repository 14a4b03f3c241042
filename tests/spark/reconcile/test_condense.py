"""Condensing records into events: only Arrow, no JVM."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from spark.reconcile.input.condense import condense_tables
from spark.reconcile.input.files import Piece, coded
from spark.reconcile.input.runs import Interest, Spans, expand_block, tangled_pairs
from spark.reconcile.input.tallies import any_late
from spark.schema import RECORD_SCHEMA, SAMPLE_EVERY

HEAD = {"v": 1, "writer": "w", "incarnation": 1, "ts_us": 5_000_000, "view": 0}
QUEUE = {"queue": "q", "epoch": 1}


def events(*records: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [{**HEAD, "wseq": place, **record} for place, record in enumerate(records)]
    table = coded(pa.Table.from_pylist(rows, schema=to_arrow_schema(RECORD_SCHEMA)))
    made = [
        batch
        for condensed in condense_tables([(Piece("w-1-0.ledger.jsonl", 0, 1), table)])
        for batch in opened(condensed)
    ]
    out = [row for batch in made for row in batch.to_pylist()]
    return [{key: value for key, value in row.items() if value is not None} for row in out]


def opened(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The batch; for a `measured` block, its unpacked events."""
    if batch.column("kind")[0].as_py() != "measured":
        return [batch]
    with pa.ipc.open_stream(batch.column("packed")[0].as_py()) as stream:
        return list(stream)


def of_kind(kind: str, *records: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in events(*records) if event["kind"] == kind]


def receipts(*pairs: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"kind": "received", **QUEUE, "first": first, "last": last} for first, last in pairs]


def test_adjacent_ranges_are_joined_and_keep_their_times() -> None:
    late = {"kind": "received", **QUEUE, "first": 16, "last": 19, "ts_us": 5_000_100}
    [event] = of_kind("received", *receipts((11, 15)), late)
    found = event["first"], event["last"], event["ts_us"], event["ts_last_us"]
    assert found == (11, 19, 5_000_000, 5_000_100)


def test_a_double_receipt_stays_double() -> None:
    made = of_kind("received", *receipts((11, 15), (16, 17), (16, 17), (18, 19)))
    assert [(e["first"], e["last"]) for e in made] == [(11, 17), (16, 19)]


def test_dequeues_out_of_order_are_joined_and_double_ones_stay_double() -> None:
    pairs = ((18, 19), (11, 15), (16, 17), (16, 17))
    made = of_kind("dequeue", *({"kind": "dequeue", **QUEUE, "first": a, "last": b} for a, b in pairs))
    assert sorted((e["first"], e["last"], e["wseq"]) for e in made) == [(11, 17, 1), (16, 19, 0)]


def test_a_range_with_a_sampled_number_keeps_its_own_time() -> None:
    pairs = (1, 5, 0), (6, 9, 0), (10, SAMPLE_EVERY - 1, 0), (SAMPLE_EVERY, SAMPLE_EVERY + 1, 100)
    kind = {"kind": "dequeue", **QUEUE}
    gone = ({**kind, "first": a, "last": b, "ts_us": 5_000_000 + us} for a, b, us in pairs)
    made = of_kind("dequeue", *gone)
    assert [(e["first"], e["ts_us"]) for e in made] == [
        (1, 5_000_000), (6, 5_000_000), (SAMPLE_EVERY, 5_000_100)
    ]  # fmt: skip


def test_order_within_a_kind_is_kept() -> None:
    made = of_kind("received", *receipts((6, 9), (1, 5)))
    assert [(e["first"], e["last"], e["wseq"]) for e in made] == [(6, 9, 0), (1, 5, 1)]


def test_a_redelivery_is_never_joined_to_a_fresh_delivery() -> None:
    flagged = {"kind": "received", **QUEUE, "first": 6, "last": 7, "reason": "redelivered"}
    assert len(of_kind("received", *receipts((1, 5)), flagged)) == 2


def test_publishes_join_only_if_logical_numbers_are_adjacent_too() -> None:
    def sent(first: int, pfirst: int) -> dict[str, Any]:
        return {"kind": "sent", "prod": "w.0/1", "first": first, "last": first + 1, "pfirst": pfirst}

    made = of_kind("sent", sent(11, 21), sent(13, 23), sent(15, 99))
    assert [(e["first"], e["last"]) for e in made] == [(11, 14), (15, 16)]


def expanded(interest: Interest, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of the packed runs."""
    [block] = [event["packed"] for event in events(*records) if event["kind"] == "packed"]
    out = [row for made in expand_block(block, interest) for row in made.to_pylist()]
    return [{key: value for key, value in row.items() if value is not None} for row in out]


def put(first: int, last: int, tag: int, n: int, prod: str = "p", **more: Any) -> dict[str, Any]:
    where = {**QUEUE, "first": first, "last": last, "prod": prod, "pfirst": tag, "n": n}
    return {"kind": "enqueue", **where, **more}


def test_ordinary_runs_of_several_producers_are_joined() -> None:
    runs = put(11, 15, 101, 5), put(16, 17, 201, 6, "q"), put(18, 30, 106, 7)
    made = expanded(Interest(Spans.of([("p", 1, 999), ("q", 1, 999)])), *runs)
    assert [(e["kind"], e.get("prod"), e["first"], e["last"]) for e in made] == [
        ("enqueue", None, 11, 30), ("sure", None, 11, 30), ("placed", "p", 101, 118),
        ("placed", "q", 201, 202)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "interest",
    [
        Interest(Spans.of([("p", 1, 107), ("q", 1, 999)])),
        Interest(Spans.of([("p", 1, 999), ("q", 1, 999)]), tags=Spans.of([("p", 118, 118)])),
        Interest(Spans.of([("p", 1, 999), ("q", 1, 999)]), positions=Spans.of([(0, 7, 9)])),
        Interest(Spans.of([("p", 1, 999), ("q", 1, 999)]), durable_positions=Spans.of([(0, 1, 9)])),
    ],
    ids=["partly confirmed", "sent again", "not acknowledged", "not on disk"],
)
def test_a_run_of_interest_keeps_its_position_and_its_producer(interest: Interest) -> None:
    runs = put(11, 15, 101, 5), put(16, 17, 201, 6, "q"), put(18, 30, 106, 7, durable=1)
    made = [e for e in expanded(interest, *runs) if e["kind"] == "enqueue"]
    assert sorted((e["first"], e["last"], e.get("prod"), e.get("n")) for e in made) == [
        (11, 17, None, None), (18, 30, "p", 7)
    ]  # fmt: skip


def test_pairs_of_queue_and_session_out_of_order_are_tangled() -> None:
    plain = put(11, 15, 101, 5), put(16, 17, 201, 6, "q"), put(18, 30, 106, 7)
    back = put(31, 31, 105, 8)
    assert tangled_pairs(of_kind("hull", *plain)) == frozenset()
    assert tangled_pairs(of_kind("hull", *plain, back)) == {("q", "p")}
    apart = [*of_kind("hull", *plain), *of_kind("hull", back)]
    assert tangled_pairs(apart) == {("q", "p")}, "in another stretch of records"


def test_a_gap_in_record_numbers_splits_the_chain() -> None:
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
def test_an_invalid_line_is_malformed_and_not_in_the_chain(record: dict[str, Any]) -> None:
    assert [event["kind"] for event in events(record)] == ["malformed"]


def test_an_empty_queue_at_a_consistency_checkpoint_is_valid() -> None:
    assert of_kind("quiesce", {"kind": "quiesce", **QUEUE, "first": 0, "last": -1, "name": "p"})


def test_records_of_another_version_are_counted_and_not_read() -> None:
    made = events({"kind": "sent", "v": 3, "prod": "p", "first": 1, "last": 2}, {"kind": "heartbeat", "v": 3})
    assert made == [{"kind": "version", "name": "3", "n": 2}]


def test_version_2_is_read_and_durable_messages_stay_separate() -> None:
    runs = [
        {"kind": "backup_enqueue", "v": 2, **QUEUE, "first": n, "last": n, **more}
        for n, more in ((1, {"durable": 1}), (2, {"durable": 1}), (3, {}))
    ]
    made = expanded(Interest(Spans({})), *runs)
    assert {(e["first"], e["last"], e.get("durable")) for e in made} == {(1, 2, 1), (3, 3, None)}
    flushes = [{"kind": "durable", "v": 2, "epoch": 1, "first": n, "last": n} for n in (1, 2, 3)]
    assert [(e["first"], e["last"]) for e in of_kind("durable", *flushes)] == [(1, 3)]
    commit = {"kind": "commit", "v": 2, "prod": "p", "first": 1, "last": 2, "n": 7}
    assert [(e["first"], e["last"], e["n"]) for e in of_kind("commit", commit)] == [(1, 2, 7)]
    assert [e["kind"] for e in events({"kind": "commit", "v": 2, "prod": "p"})] == ["malformed"]


def test_rates_and_pulses_sum_up_confirms() -> None:
    def confirmed(first: int, last: int, ts_us: int) -> dict[str, Any]:
        return {"kind": "confirmed", "prod": "p", "first": first, "last": last, "ts_us": ts_us}

    records = confirmed(1, 10, 1_000_000), confirmed(11, 20, 1_015_000), confirmed(21, 25, 1_500_000)
    assert [(e["first"], e["n"]) for e in of_kind("rate", *records)] == [(10, 20), (15, 5)]
    pulses = [(e["ts_us"], e["ts_last_us"]) for e in of_kind("pulse", *records)]
    assert pulses == [(1_000_000, 1_015_000), (1_500_000, 1_500_000)]


def test_receipts_out_of_order_are_detected() -> None:
    plain = of_kind("receipts", *receipts((11, 15), (16, 20)))
    assert not any_late(plain)
    assert any_late(of_kind("receipts", *receipts((16, 20), (11, 15))))
    later = [{**event, "wseq": 9, "first": 12} for event in plain]
    assert any_late([*plain, *later]), "in another stretch of records"


def test_each_receipt_and_ack_is_tallied_or_kept_once() -> None:
    pairs = [(first, first + 3) for first in range(10, 90, 8)]
    acks = [{**record, "kind": "acked"} for record in receipts(*pairs[1:-1])]
    made = events(*receipts(*pairs), *acks)
    kept = [(e["kind"], e["first"], e["last"]) for e in made if e["kind"] in ("received", "acked")]
    bare = [
        (e["name"], int(first), int(last))
        for e in made if e["kind"] == "tally"
        for first, last in np.frombuffer(e["packed"], dtype=np.int64).reshape(-1, 2)
    ]  # fmt: skip
    assert kept == [("received", *pairs[0]), ("received", *pairs[-1])], "ends keep their times"
    assert sorted(kept + bare) == sorted(
        [("received", *pair) for pair in pairs] + [("acked", *pair) for pair in pairs[1:-1]]
    )
