"""The arithmetic of ranges in numpy compared with single numbers; without a JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from spark.reconcile.checks.interest import without
from spark.reconcile.input.condense import condense_tables
from spark.reconcile.input.files import Piece, coded
from spark.reconcile.input.runs import Interest, Spans, expand_block, union
from spark.reconcile.input.tallies import layers
from spark.schema import RECORD_SCHEMA

Range = tuple[int, int]
ranges = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])), min_size=1
)


def numbers(pairs: Iterable[Range]) -> Counter[int]:
    return Counter(number for first, last in pairs for number in range(first, last + 1))


def as_pairs(firsts: Any, lasts: Any) -> list[Range]:
    return [(int(a), int(b)) for a, b in zip(firsts, lasts, strict=True)]


@given(ranges)
def test_layers_cover_each_number_equally_often(given_ranges: list[Range]) -> None:
    made = as_pairs(*layers(np.array(given_ranges, dtype=np.int64)))
    assert numbers(made) == numbers(given_ranges)
    assert len(made) <= len(given_ranges)


@given(ranges, ranges)
def test_union_and_difference_match_sets(one: list[Range], other: list[Range]) -> None:
    left, right = union(np.array(one, dtype=np.int64)), union(np.array(other, dtype=np.int64))
    assert numbers(as_pairs(*left)) == Counter(set(numbers(one)))
    assert all(b + 1 < c for (_, b), (c, _) in pairwise(as_pairs(*left)))
    assert set(numbers(as_pairs(*without(left, right)))) == set(numbers(one)) - set(numbers(other))


run = st.fixed_dictionaries({
    "kind": st.sampled_from(("enqueue", "backup_enqueue")),
    "writer": st.sampled_from("ab"),
    "queue": st.sampled_from("qr"),
    "prod": st.sampled_from(("p", "s", None)),
    "first": st.integers(0, 40),
    "size": st.integers(1, 9),
    "tag": st.integers(0, 40),
    "n": st.integers(0, 20),
    "durable": st.sampled_from((None, 1)),
})  # fmt: skip
spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=4)


def record(wseq: int, given_run: dict[str, Any]) -> dict[str, Any]:
    first, tag, size = given_run["first"], given_run["tag"], given_run["size"]
    known = {k: given_run[k] for k in ("kind", "writer", "queue", "n", "durable")}
    prod = {"prod": given_run["prod"], "pfirst": tag} if given_run["prod"] else {}
    head = {"v": 2, "incarnation": 1, "wseq": wseq, "ts_us": 1000 + wseq, "view": 1, "epoch": 1}
    return {**head, **known, **prod, "first": first, "last": first + size - 1}


def every_id(rows: Iterable[dict[str, Any]], *kinds: str) -> Counter[tuple[Any, ...]]:
    keys = "kind", "writer", "queue", "durable"
    return Counter(
        (*(row.get(key) for key in keys), number)
        for row in rows if row["kind"] in kinds for number in range(row["first"], row["last"] + 1)
    )  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(run, min_size=1, max_size=25), spans, spans, spans, spans)
def test_unpacked_runs_match_the_records_for_each_id(
    given_runs: list[dict[str, Any]], p: list[Range], s: list[Range], again: list[Range], lacks: list[Range]
) -> None:
    records = [record(wseq, one) for wseq, one in enumerate(given_runs)]
    table = coded(pa.Table.from_pylist(records, schema=to_arrow_schema(RECORD_SCHEMA)))
    made = [
        row
        for batch in condense_tables([(Piece("w-1-0.ledger.jsonl", 0, 1), table)])
        for row in batch.to_pylist()
    ]
    [block] = [row["packed"] for row in made if row["kind"] == "packed"]
    said = {
        "p": {i for a, n in p for i in range(a, a + n + 1)},
        "s": {i for a, n in s for i in range(a, a + n + 1)},
    }
    confirmed = Spans.of([("p", a, a + n) for a, n in p] + [("s", a, a + n) for a, n in s])
    interest = Interest(
        confirmed, tags=Spans.of(("p", a, a + n) for a, n in again),
        positions=Spans.of((1, a, a + n) for a, n in lacks),
    )  # fmt: skip
    events = [row for batch in expand_block(block, interest) for row in batch.to_pylist()]
    kinds = "enqueue", "backup_enqueue"
    assert every_id(events, *kinds) == every_id(records, *kinds), (
        "each id counts equally often, by writer and durability"
    )
    exact = [e for e in events if e["kind"] in kinds and e["prod"] is not None]
    for r in records:
        tags = range(r["pfirst"], r["pfirst"] + r["last"] - r["first"] + 1) if "prod" in r else range(0)
        here = any(
            (e["wseq"], e["n"], e["first"], e["last"]) == (r["wseq"], r["n"], r["first"], r["last"])
            for e in exact
        )
        some = {tag in said[r["prod"]] for tag in tags}
        wanted = len(some) == 2 or any(a <= r["n"] <= a + n for a, n in lacks)
        wanted |= r.get("prod") == "p" and any(t in range(a, a + n + 1) for t in tags for a, n in again)
        if tags and wanted:
            assert here, "a run of interest is kept"
        if tags and not here:
            placed = {
                i
                for e in events
                if e["kind"] == "placed" and e["prod"] == r["prod"]
                for i in range(e["first"], e["last"] + 1)
            }
            sure = {
                (e["queue"], i)
                for e in events
                if e["kind"] == "sure"
                for i in range(e["first"], e["last"] + 1)
            }
            assert set(tags) <= placed
            if some == {True}:
                assert {(r["queue"], i) for i in range(r["first"], r["last"] + 1)} <= sure
    truth = {
        (r["queue"], r["first"] + t - r["pfirst"])
        for r in records if "prod" in r for t in range(r["pfirst"], r["pfirst"] + r["last"] - r["first"] + 1)
        if t in said[r["prod"]]
    }  # fmt: skip
    assert {
        (e["queue"], i) for e in events if e["kind"] == "sure" for i in range(e["first"], e["last"] + 1)
    } <= truth
