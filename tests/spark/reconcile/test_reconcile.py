"""The whole job on generated histories: clean ones are proven, and planted faults are found without a false
alarm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from spark.reconcile.input.read import find_ledgers
from spark.reconcile.job import reconcile
from tests.spark.faults import Faults
from tests.spark.ledgers import START_US, Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.reconcile.conftest import Judged


def judge(session: SparkSession, folder: Path) -> dict[str, Any]:
    return reconcile(session, find_ledgers([folder]))


NOTED = frozenset({
    "early", "dequeued-twice", "acked-returned", "unexplained", "two-primaries", "quarantine-differs", "torn",
})  # fmt: skip
"""Kinds of findings whose note distinguishes several cases."""


def named(answer: dict[str, Any], *severities: str) -> set[tuple[Any, ...]]:
    """The findings: kind (and note), queue name, epoch, prod, ranges."""
    return {
        (
            f"{f['kind']}: {f['note']}" if f["kind"] in NOTED and f["note"] else f["kind"],
            f["name"],
            f["epoch"],
            f["prod"],
            tuple(map(tuple, f["ranges"])),
        )
        for f in answer["findings"]
        if f["severity"] in severities
    }


@pytest.mark.system
def test_a_killed_queue_mirror_may_fetch_lost_messages_again(session: SparkSession, tmp_path: Path) -> None:
    """A standalone broker mirrors a queue: it records the given ids, in epochs below its own."""
    ledgers, queue = Pair(1).run(), "fa" * 16
    for life, taken in ((1, (1, 50)), (2, (31, 70))):
        far, view = ("far", life), life << 16 | 99
        ledgers.note(far, START_US, 0, "open", name="broker", reason="")
        ledgers.note(far, START_US, view, "promote", reason="standalone", peer="")
        ledgers.note(far, START_US, view, "definition", queue=queue, name="orders")
        first, last = taken
        ledgers.note(
            far, START_US, view, "enqueue", queue=queue, epoch=2, first=first, last=last, n=1, durable=1
        )
    ledgers.note(far, START_US, view, "present", queue=queue, epoch=2, first=1, last=70)
    ledgers.note(far, START_US, view, "seal")
    answer = judge(session, ledgers.write(tmp_path))
    assert named(answer, "violation", "unknown") == set()
    assert answer["verdict"] == "proven"


def test_a_clean_failover_is_proven(clean_failover: Judged) -> None:
    pair, answer = clean_failover.pair, clean_failover.answer
    assert (answer["verdict"], answer["missing"]) == ("proven", [])
    assert named(answer, "violation", "unknown") == set()
    totals = answer["totals"]
    assert totals["published"] == totals["confirmed"] == sum(p.logical for p in pair.producers)
    assert totals["resent"] == 5 + 6 + 7, "what was in doubt at the kill"
    assert totals["duplicates"]["in_doubt"] > 0 and totals["duplicates"]["redelivered"] > 0
    assert totals["present"] == sum(map(len, pair.primary.contents.values()))
    assert 370 <= answer["outage_ms"] <= 385, "350 ms until the promotion, 20 more until the first confirm"
    assert [q["verdict"] for q in answer["queues"]] == ["proven", "proven"]
    assert [(b["node"], b["state"]) for b in answer["nodes"]][-1] == ("b", "active")
    assert sum(answer["timeline"]["sent"]) == totals["sends"]


@pytest.mark.system
def test_harmless_irregularities_do_not_prevent_a_proof(session: SparkSession, tmp_path: Path) -> None:
    hour = 3_600_000_000
    Pair(2).run().write(tmp_path / "ledgers", {"b": 3 * hour, "p1": -2 * hour, "c3": 5 * hour})
    for place, ledger in enumerate(sorted((tmp_path / "ledgers").iterdir())):
        lines = ledger.read_bytes().splitlines(keepends=True)
        ledger.write_bytes(b"".join(lines[: len(lines) // 2]))
        rest = ledger.with_name(ledger.name.replace("-0.ledger", "-1.ledger"))
        rest.write_bytes(b"".join(lines[len(lines) // 2 :]))
        if place == 1:
            (tmp_path / "copy-of.ledger.jsonl").write_bytes(rest.read_bytes())
    (tmp_path / "notes.txt").write_text("not a ledger")
    ledger = tmp_path / "ledgers" / "a-1-1.ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes() + b'{"v":1,"writer":"a","incarnation":1,"wseq":99')
    answer = judge(session, tmp_path)
    assert (answer["verdict"], answer["missing"]) == ("proven", [])
    assert answer["files"]["ignored"] == 1 and len(answer["files"]["copies"]) == 1
    assert answer["files"]["unreadable_lines"] == 1
    torn = next(f for f in answer["findings"] if f["kind"] == "torn-tail")
    assert (torn["severity"], torn["prod"], torn["note"]) == ("allowed", "a#1", "a-1-1.ledger.jsonl")
    said = {clock["writer"]: clock["sentence"] for clock in answer["clocks"]}
    assert said["b"] == "the clock of b is about 3 h ahead of a's"
    assert said["p1"] == "the clock of p1 is about 2 h behind a's"
    assert said["c3"] == "the clock of c3 is about 5 h ahead of a's"
    assert said["p2"] is None
    assert answer["failovers"] and answer["outage_ms"] is None, (
        "times of clocks that far apart are not comparable"
    )


@pytest.mark.system
def test_an_empty_ledger_and_an_id_out_of_range_prevent_a_proof(
    session: SparkSession, tmp_path: Path
) -> None:
    ledgers = Pair(2).run()
    (_, received), *_ = ledgers.every("received")
    received["last"] = 2**63 - 1
    ledgers.write(tmp_path)
    (tmp_path / "z-1-0.ledger.jsonl").touch()
    answer = judge(session, tmp_path)
    assert answer["verdict"] == "not provable" and answer["files"]["unreadable_lines"] == 1
    assert "z-1-0.ledger.jsonl is empty: a ledger begins with a record" in answer["missing"]


@pytest.mark.parametrize(
    "unsent", [pytest.param(False, marks=pytest.mark.soak), pytest.param(True, marks=pytest.mark.system)]
)
def test_a_truncated_producer_ledger_is_not_provable_despite_a_restart(
    session: SparkSession, tmp_path: Path, unsent: bool
) -> None:
    """The seal and the last `confirmed` of p1 are cut off; after a kill, the last `sent` may be
    missing, too."""
    pair = Pair(3)
    ledgers = pair.run()
    last = ledgers.records["p1", 7]
    del last[-3 if unsent else -2 :]
    for kind, name in (("open", "producer"), ("seal", None)):
        ledgers.note(("p1", 8), pair.now, 0, kind, name=name)
    answer = judge(session, ledgers.write(tmp_path))
    assert answer["verdict"] == "not provable"
    why = "so its sends and confirms after the last record are unknown"
    assert answer["missing"][0].startswith(f"the ledger of p1 (incarnation 7) has no end, {why}; it blocks")
    assert named(answer, "violation") == set()
    assert [kind for kind, *_ in named(answer, "unknown")] == ["unsent"] * unsent


def test_exactly_the_planted_faults_are_found(session: SparkSession, tmp_path: Path) -> None:
    faults = Faults(Pair(4))
    faults.plant_all()
    answer = judge(session, faults.ledgers.write(tmp_path))
    assert answer["verdict"] == "violated"
    assert named(answer, "violation") == faults.expected
    assert named(answer, "unknown") == set() and answer["missing"] == []
    assert ("in-doubt", None, None, "p1#7", faults.doubt) in named(answer, "allowed")
    assert answer["totals"]["lost"] == 4 + 3
    assert [answer["totals"][kind] for kind in ("torn", "two_primaries", "quarantine_differs")] == [4, 3, 5]
    wrong = [f for f in answer["findings"] if f["severity"] == "violation"]
    assert all(len(f["evidence"]) <= 8 for f in wrong)
    kinds = {f["kind"]: {piece["kind"] for piece in f["evidence"]} for f in wrong}
    assert kinds["lost"] >= {"enqueue", "backup_enqueue", "sent", "confirmed"}
    assert kinds["unplaced"] == {"sent", "confirmed"}
    assert kinds["dequeued-twice"] >= {"enqueue", "dequeue"}


@pytest.mark.system
def test_a_loss_in_ledgers_with_a_gap_is_not_provable(session: SparkSession, tmp_path: Path) -> None:
    faults = Faults(Pair(5))
    faults.lose()
    faults.ledgers.write(tmp_path)
    ledger = tmp_path / "a-1-0.ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    beat = next(place for place, line in enumerate(lines) if b'"replicated"' in line and place > 20)
    ledger.write_bytes(b"".join(lines[:beat] + lines[beat + 1 :]))
    answer = judge(session, tmp_path)
    assert answer["verdict"] == "not provable"
    gap = f"the ledger of a (incarnation 1) lacks records {beat} (in a-1-0.ledger.jsonl)"
    assert gap in answer["missing"]
    assert ("gap", None, None, "a#1", ((beat, beat),)) in named(answer, "unknown")
    assert {kind for kind, *_ in named(answer, "unknown")} >= {"lost"}
    assert answer["totals"]["lost"] == 0 and answer["totals"]["perhaps_lost"] == 4
