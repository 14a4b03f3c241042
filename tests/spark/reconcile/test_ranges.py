"""The algebra of ranges compared with the same computation on single ids."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from spark.ranges import islands, overlap, sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Range = tuple[str, int, int]


def some_ranges(seed: int, count: int, width: int = 40) -> list[Range]:
    rng = random.Random(seed)
    firsts = [(rng.choice("ab"), rng.randint(1, 300)) for _ in range(count)]
    return [(key, first, first + rng.randint(0, width)) for key, first in firsts]


def frame(session: SparkSession, ranges: list[Range]) -> DataFrame:
    return session.createDataFrame(ranges, "key string, first long, last long")


def covered(ranges: list[Range]) -> Counter[tuple[str, int]]:
    return Counter((key, number) for key, first, last in ranges for number in range(first, last + 1))


def test_sweep_counts_the_ranges_that_cover_each_id(session: SparkSession) -> None:
    ranges = some_ranges(1, 60)
    rows = sweep(frame(session, ranges).selectExpr("*", "1 as n"), ["key"], ["n"]).collect()
    assert {(r["key"], i): r["n"] for r in rows for i in range(r["first"], r["last"] + 1)} == covered(ranges)
    assert sum(r["last"] - r["first"] + 1 for r in rows) == len(covered(ranges)), "segments are disjoint"


def test_islands_are_the_union_and_do_not_touch(session: SparkSession) -> None:
    ranges = some_ranges(2, 25, 8)
    rows = sorted(
        (r["key"], r["first"], r["last"]) for r in islands(frame(session, ranges), ["key"]).collect()
    )
    assert covered(rows) == Counter(dict.fromkeys(covered(ranges), 1))
    assert all(a[0] != b[0] or a[2] + 1 < b[1] for a, b in pairwise(rows))


def test_overlap_finds_all_pairs_across_buckets(session: SparkSession) -> None:
    left = [(key, first * 97, first * 97 + 9000) for key, first, _ in some_ranges(3, 12)]
    right = [(key, first * 97, last * 97) for key, first, last in some_ranges(4, 12)]
    rows = overlap(frame(session, left), frame(session, right), ["key"]).collect()
    found = sorted((r["key"], r["left_first"], r["first"], r["last"]) for r in rows)
    expected = [(k, a, max(a, c), min(b, d)) for k, a, b in left for q, c, d in right if k == q]
    assert found == sorted(pair for pair in expected if pair[2] <= pair[3])
