"""Clock bounds from the order of events, and where the missing records of a ledger are; without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from spark.reconcile.checks.clocks import STAMP_US, Bounds, compare, describe, duration, pair_bounds
from spark.reconcile.checks.dequeues import SLACK_US, alone_until
from spark.reconcile.checks.replication import FOREVER
from spark.reconcile.ledgers.holes import Places
from spark.reconcile.ledgers.state import Promotion

HOUR = 3_600_000_000
MS = 1000


def tag(kind: str, writer: str, ts_us: int, prod: str = "p.0/1") -> dict[str, Any]:
    return {"kind": kind, "writer": writer, "prod": prod, "point": 1, "ts_us": ts_us, "ts_last_us": ts_us}


def receipt(kind: str, writer: str, ts_us: int) -> dict[str, Any]:
    where = {"client": "c", "queue": "q", "epoch": 1, "point": 7}
    return {"kind": kind, "writer": writer, **where, "ts_us": ts_us, "ts_last_us": ts_us}


def test_a_producer_bounds_its_broker_from_both_sides() -> None:
    """p is two hours ahead of a: sent at 0, enqueued after 3 ms, confirmed after 5 ms."""
    rows = [tag("sent", "p", 2 * HOUR), tag("enqueue", "a", 3 * MS), tag("confirmed", "p", 2 * HOUR + 5 * MS)]
    clocks = compare(pair_bounds(rows, []), ["a"])
    low, high = clocks.interval("p", "a") or (0, 0)
    assert (low, high) == (2 * HOUR - 3 * MS - STAMP_US, 2 * HOUR + 2 * MS + STAMP_US)
    [said] = describe(clocks, ["a", "p"], "a")
    assert said["sentence"] == "the clock of p is about 2 h ahead of a's"


def test_two_brokers_are_compared_through_a_common_client() -> None:
    rows = [tag("sent", "p", 0), tag("enqueue", "a", 1 * MS), tag("confirmed", "p", 2 * MS)]
    rows += [
        tag("sent", "p", 9 * MS, "p.1/1"), tag("enqueue", "b", -HOUR, "p.1/1"),
        tag("confirmed", "p", 12 * MS, "p.1/1"),
    ]  # fmt: skip
    low, high = compare(pair_bounds(rows, []), ["a", "b"]).interval("b", "a") or (0, 0)
    assert low < -HOUR - 10 * MS < high and high - low < 5 * STAMP_US


def test_a_consumer_is_bounded_by_enqueue_and_acked_dequeue() -> None:
    rows = [receipt("enqueue", "a", 0), receipt("received", "c", HOUR), receipt("dequeue", "a", 4 * MS)]
    one_sided = compare(pair_bounds([], rows), ["a"])
    assert one_sided.ahead_at_most("c", "a") == HOUR + STAMP_US
    assert one_sided.ahead_at_most("a", "c") is None, "no record shows that this receipt was acked"
    both = compare(pair_bounds([], [*rows, receipt("acked", "c", HOUR)]), ["a"])
    assert both.interval("c", "a") == (HOUR - 4 * MS - STAMP_US, HOUR + STAMP_US)


def test_a_node_serves_alone_until_the_first_later_promotion() -> None:
    """Seed 810000136 of the histories: the next epoch had two promotions, and only the later one was
    considered."""

    def promoted(epoch: int, node: str, ts_us: int) -> Promotion:
        return Promotion(epoch, node, 1, "", "unforced", ts_us)

    first, false, second = promoted(1, "a", 0), promoted(2, "a", 8 * HOUR), promoted(2, "b", 5 * HOUR)
    every = [promoted(0, "b", 0), first, false, second]
    level: dict[str, int | None] = {"a": 0, "b": HOUR}
    assert alone_until(first, every, level) == 4 * HOUR - SLACK_US, "b's clock may be an hour ahead"
    assert alone_until(false, every, level) == 4 * HOUR - SLACK_US, "it never served alone"
    assert alone_until(first, every, {"a": 0, "b": None}) is None
    assert alone_until(first, every[:2], level) == FOREVER


def test_contradictory_bounds_are_ignored() -> None:
    """A consumer stalled for a minute, and recorded its receipts when it resumed."""
    bounds = Bounds()
    bounds.say("c", "a", 10 * MS)
    bounds.say("a", "c", -60_000 * MS)
    bounds.say("p", "a", 1)
    clocks = compare(bounds, ["a"])
    assert clocks.ahead_at_most("c", "a") is None and clocks.ahead_at_most("p", "a") == 1 + STAMP_US
    for one, other in (("a", "b"), ("b", "p"), ("p", "a")):
        bounds.say(one, other, -HOUR)
    assert compare(bounds, ["a"]).bounds == {}


@pytest.mark.parametrize(
    ("us", "words"),
    [(2 * HOUR + 1, "2 h"), (90 * 60_000_000, "1.5 h"), (5_400_000, "5.4 s"), (150 * 60_000_000, "2.5 h"),
     (12 * MS, "12 ms"), (45 * 60_000_000, "45 min")],
)  # fmt: skip
def test_durations_in_words(us: int, words: str) -> None:
    assert duration(us) == words


def test_a_gap_is_in_a_file_between_files_or_in_a_missing_file(tmp_path: Path) -> None:
    for number, first in ((0, 0), (1, 10), (3, 30)):
        lines = "".join(json.dumps({"wseq": wseq}) + "\n" for wseq in range(first, first + 3))
        (tmp_path / f"a%20b-1-{number}.ledger.jsonl").write_text(lines)
    places = Places(sorted(tmp_path.iterdir()))
    assert places.of_gap("a b", 1, 1, 1) == "in a%20b-1-0.ledger.jsonl"
    assert places.of_gap("a b", 1, 3, 9) == "between a%20b-1-0.ledger.jsonl and a%20b-1-1.ledger.jsonl"
    assert places.of_gap("a b", 1, 13, 29) == "file a%20b-1-2 of that ledger is not here"
    assert places.of_gap("a b", 2, 3, 9) == "", "no file of that life is here"
