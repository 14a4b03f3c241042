"""Numbers of producers: no queue takes one twice, and what it left out it had."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from spark.reconcile.checks.numbers import DOUBLED, FORGOTTEN, Run, Said, in_doubt, judged
from spark.reconcile.input.read import find_ledgers
from spark.reconcile.job import reconcile
from spark.reconcile.ledgers.ends import Life, endless, let_continued_go
from spark.reconcile.ledgers.state import LedgerState, Writer
from spark.reconcile.verdict.result import severity
from tests.spark.ledgers import Pair
from tests.spark.records import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.reconcile.checks.numbers import Judged

KEY = ("q", "shop")


def run(writer: str, numbers: tuple[int, int], epoch: int, start: int, wseq: int, **more: Any) -> Run:
    fields = {"given": True, "incarnation": 1} | more
    return Run(*numbers, epoch, start, fields["given"], writer, fields["incarnation"], wseq)


def found(*those: Run, said: Said | None = None, pruned: bool = False) -> Judged:
    owners = [(1, "a"), (2, "b"), (3, "a")]
    return judged({KEY: those}, said or Said(), owners, pruned=pruned)


def test_what_the_successor_never_had_may_be_enqueued_again() -> None:
    dead = run("a", (1, 9), 1, 1, 5)
    copy = run("b", (1, 6), 1, 1, 5, given=False)
    assert not found(dead, copy, run("b", (7, 9), 2, 1, 6)).doubled
    assert found(dead, copy, run("b", (5, 9), 2, 1, 6)).doubled == [
        (DOUBLED, "q", 2, 1, 2, "shop", None, None)
    ]
    # The dead primary comes back, without what its successor never had, and serves again.
    later = run("a", (7, 9), 3, 1, 1, incarnation=2)
    assert not found(dead, copy, later).doubled
    known = found(dead, copy, run("a", (4, 9), 3, 1, 1, incarnation=2)).doubled
    assert known == [(DOUBLED, "q", 3, 1, 3, "shop", 1, -3)], "if it was there by then"


def test_one_primary_gives_a_number_once() -> None:
    first, again = run("a", (1, 9), 1, 1, 5), run("a", (4, 12), 1, 10, 6)
    assert found(first, again).doubled == [(DOUBLED, "q", 1, 10, 15, "shop", None, None)]
    excused = found(first, again, said=Said(forgotten=frozenset({"shop"})))
    assert [row[0] for row in excused.doubled] == [FORGOTTEN]


def test_a_duplicate_stands_for_the_newest_id_of_its_number() -> None:
    row = {"queue": "q", "name": "shop", "view": 2, "prod": "p/1", "first": 11, "last": 20, "number": 1}
    dead, copy = run("a", (1, 9), 1, 1, 5), run("b", (1, 6), 1, 1, 5, given=False)
    taken = run("b", (7, 8), 2, 1, 6)
    told = found(dead, copy, taken, said=Said([row]))
    assert told.again == [
        ("p/1", 11, 16, "q", 1, 1), ("p/1", 17, 18, "q", 2, 1), ("p/1", 19, 19, "q", 1, 9),
    ]  # fmt: skip
    assert not told.unnamed
    assert found(dead, copy, taken, said=Said([row]), pruned=True).unnamed == [("p/1", 20, 20)]
    later = run("a", (1, 9), 3, 1, 5)
    assert not found(later, said=Said([row])).again, "it came after that"
    by_id = row | {"name": None, "number": None}
    assert judged({}, Said([by_id]), (), pruned=False).unnamed == [("p/1", 11, 20)]


def test_only_numbers_of_two_stretches_are_in_doubt() -> None:
    same: Record = {"kind": "numbers", "queue": "q", "name": "shop", "reason": None}
    hulls = [same | {"first": a, "last": b} for a, b in ((1, 100), (90, 150), (151, 160))]
    back = same | {"first": 120, "last": 121, "reason": "back"}
    spans = in_doubt([*hulls, back], Said())
    assert [list(map(int, part)) for part in spans.by_key[KEY]] == [[90, 120], [100, 121]]


def continued(top: int, *lives: tuple[str, Life | None]) -> list[str]:
    """How processes of one producer ended, oldest first. Of each: how it seems to have ended; its life."""
    state = LedgerState()
    for at, (end, _) in enumerate(lives):
        state.writers["shop", at] = writer = Writer("shop", at, role="producer", end=end, last_us=1)
        state.missing += [endless(writer)] if end == "unknown" else []
    let_continued_go(state, {("shop", at): life for at, (_, life) in enumerate(lives) if life}, {"shop": top})
    ends = [writer.end for writer in state.writers.values()]
    assert len(state.missing) == ends.count("unknown")
    return ends


def test_a_later_process_that_sends_all_in_doubt_again_excuses_a_killed_one() -> None:
    killed = Life(1, 90, 81)
    assert continued(95, ("unknown", killed), ("sealed", Life(81, 200, None))) == ["continued", "sealed"]
    again = ("unknown", Life(70, 120, 110))
    assert (
        continued(95, ("unknown", killed), again, ("sealed", Life(110, 130, None)))[:2] == ["continued"] * 2
    )
    for lives in (
        (("unknown", killed), ("sealed", Life(82, 200, None))),  # 81 may be confirmed, and lost
        (("unknown", killed), ("sealed", Life(81, 94, None))),  # the broker has 95
        (("unknown", killed), ("unknown", Life(81, 200, 190))),
        (("unknown", None), ("sealed", Life(1, 200, None))),  # nothing is known of it
        (("sealed", Life(1, 200, None)), ("unknown", killed)),
    ):
        assert "unknown" in continued(95, *lives), lives


def test_what_a_continued_process_sent_and_did_not_note_is_allowed() -> None:
    state = LedgerState()
    state.writers["shop", 17] = Writer("shop", 17, role="producer", end="continued")
    assert severity("unsent", None, None, state, "shop.17.2/1") == "allowed"
    assert severity("unsent", None, None, state, "shop.18.2/1") == "unknown"
    assert severity("unknown-producer", None, None, state, "shop.17.3/1") == "allowed"


@pytest.mark.system
def test_resends_after_a_failover_are_proven_and_faults_are_found(
    session: SparkSession, tmp_path: Path
) -> None:
    """The tail of the dead primary is enqueued again; what its successor had is left out."""
    pair = Pair(1, numbered=True)
    ledgers = pair.run()
    answer = reconcile(session, find_ledgers([ledgers.write(tmp_path / "whole")]))
    assert (answer["verdict"], answer["missing"]) == ("proven", []), answer["sentence"]
    totals = answer["totals"]
    assert (totals["doubled"], totals["left_out"], totals["resent"]) == (0, 2 * 6, 5 + 6 + 7)
    assert totals["numbered"] > 1000 and ", 0 duplicated in the queues (12 left out)" in answer["sentence"]

    # `orders` takes again what it had; and both queues claim to have had what they never had.
    orders, audit = pair.queues.values()
    left_out = [r for _, r in ledgers.every("duplicate")]
    assert {r["queue"] for r in left_out} == {orders, audit}
    size = left_out[0]["last"] - left_out[0]["first"]
    ids = {"queue": orders, "epoch": pair.epoch, "first": pair.next_id[orders]}
    ids["last"] = ids["first"] + size
    given = {"n": pair.n, "name": left_out[0]["name"], "number": left_out[0]["number"], **ids}
    end = ledgers.records[pair.primary.process].pop()
    pair.note(pair.primary.process, "enqueue", **given)
    pair.note(pair.primary.process, "dequeue", reason="acked", **ids)
    ledgers.records[pair.primary.process].append(end)
    for record in left_out:
        record["number"] += 1_000_000
    answer = reconcile(session, find_ledgers([ledgers.write(tmp_path / "faulty")]))
    assert {
        (f["kind"], f["name"], f["note"] or f["prod"], tuple(map(tuple, f["ranges"])))
        for f in answer["findings"] if f["severity"] == "violation"
    } == {
        ("number-doubled", "orders", given["name"], ((ids["first"], ids["last"]),)),
        ("unplaced", None, left_out[0]["prod"], ((left_out[0]["first"], left_out[0]["last"]),)),
    }  # fmt: skip
    assert answer["totals"]["doubled"] == answer["totals"]["lost"] == 6
