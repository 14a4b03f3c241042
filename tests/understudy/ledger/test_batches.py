"""The history of a tick, in the ledgers of a primary and of a backup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.model.history.batch import Batch
from broker.model.history.records import (
    Bind,
    Commit,
    Dequeue,
    Duplicate,
    EnqueueRun,
    EntryDelete,
    Envelope,
    Numbering,
    QueueDeclare,
    QueueDelete,
    RawRun,
    Record,
    Unrouted,
)
from broker.model.values import Position, Reason, Scope
from tests.understudy.ledger.memory import MemoryFolder
from understudy.ledger.batches import BACKUP, PRIMARY, LedgerSink

Q1, Q2 = b"\x01" * 16, b"\x02" * 16


def run(producer: str | None = "p/1", count: int = 3) -> EnqueueRun:
    envelope = Envelope(4, "", "k", persistent=True, wall_ms=0, channel=1, largest_frame=9)
    return EnqueueRun([Q1, Q2], [10, 1], envelope, [b"raw"] * count, producer, 7)


def ledgers(tmp_path: Path, role: str, *records: Record) -> list[dict[str, Any]]:
    folder = MemoryFolder()
    sink = LedgerSink(str(tmp_path), "a", "broker", incarnation=1, open_file=folder.open, clock=folder.clock)
    sink.record("heartbeat")
    sink.batch(Batch(Position(5, 6), 0, list(records)), role)
    sink.record("heartbeat")
    sink.close(seal=True)
    rows = folder.rows()
    assert [r["wseq"] for r in rows] == list(range(len(rows)))
    found = rows[2:-2]
    for row in found:
        assert (row.pop("v"), row.pop("writer"), row.pop("incarnation"), row.pop("view")) == (2, "a", 1, 5)
        assert row.pop("ts_us") == rows[1]["ts_us"]
        del row["wseq"]
    return found


@pytest.mark.parametrize(("role", "kind"), [(PRIMARY, "enqueue"), (BACKUP, "backup_enqueue")])
def test_a_run_is_one_record_for_each_queue(tmp_path: Path, role: str, kind: str) -> None:
    same = {"kind": kind, "epoch": 4, "prod": "p/1", "pfirst": 7, "n": 6}
    assert ledgers(tmp_path, role, run()) == [
        {**same, "queue": Q1.hex(), "first": 10, "last": 12},
        {**same, "queue": Q2.hex(), "first": 1, "last": 3},
    ]


def test_a_decoded_run_is_counted_without_being_cut(tmp_path: Path) -> None:
    decoded = run()
    decoded.raws = RawRun([3, 3, 3, 3], b"raw" * 4)
    assert [r["last"] for r in ledgers(tmp_path, BACKUP, decoded)] == [13, 4]


@pytest.mark.parametrize(("role", "kind"), [(PRIMARY, "enqueue"), (BACKUP, "backup_enqueue")])
@pytest.mark.parametrize("scope", [Scope(bits) for bits in range(4)])
def test_what_a_confirm_waits_for_the_disk_for_is_durable(
    tmp_path: Path, role: str, kind: str, scope: Scope
) -> None:
    stored = run()
    stored.scope = scope
    rows = ledgers(tmp_path, role, stored)
    assert [(r["kind"], r.get("durable")) for r in rows] == [(kind, 1 if scope & Scope.STORE else None)] * 2


def test_a_commit_names_its_tags_and_position(tmp_path: Path) -> None:
    rows = ledgers(tmp_path, PRIMARY, run(), Commit("p/1", 7, 9))
    assert rows[-1] == {"kind": "commit", "prod": "p/1", "first": 7, "last": 9, "n": 6}
    assert {r["n"] for r in rows} == {6}


def test_numbers_are_told_with_enqueues_and_what_was_left_out_alone(tmp_path: Path) -> None:
    numbered = run()
    numbered.numbering = Numbering("shop", 3, 70)
    again = Duplicate(Q1, "p/1", 7, 9, Numbering("shop", 3, 68))
    rows = ledgers(
        tmp_path, PRIMARY, numbered, again, replace(again, producer=""),
        EntryDelete("producer", "/", 'a "shop"'), EntryDelete("policy", "/", "p"),
    )  # fmt: skip
    assert [(r["kind"], r["name"], r["number"]) for r in rows[:2]] == [("enqueue", "shop", 70)] * 2
    left_out = {"kind": "duplicate", "queue": Q1.hex(), "first": 7, "last": 9, "name": "shop", "number": 68}
    assert rows[2:] == [
        left_out | {"prod": "p/1"}, left_out, {"kind": "forgotten", "name": 'a "shop"'},
    ]  # fmt: skip


def test_a_publisher_without_identity_leaves_none(tmp_path: Path) -> None:
    row = ledgers(tmp_path, PRIMARY, run(producer=None))[0]
    assert "prod" not in row and "pfirst" not in row and row["n"] == 6


@pytest.mark.parametrize("reason", list(Reason))
def test_a_dequeue_is_one_record_for_each_range(tmp_path: Path, reason: Reason) -> None:
    gone = Dequeue(Q1, 3, reason, [(1, 4), (9, 9)])
    same = {"queue": Q1.hex(), "epoch": 3, "reason": reason.ledger_name}
    assert ledgers(tmp_path, PRIMARY, gone) == [
        {**same, "kind": "dequeue", "first": 1, "last": 4},
        {**same, "kind": "dequeue", "first": 9, "last": 9},
    ]
    assert ledgers(tmp_path, BACKUP, gone)[1] == {**same, "kind": "backup_dequeue", "first": 9, "last": 9}


def test_definitions_name_queues_and_unrouted_tags_are_kept(tmp_path: Path) -> None:
    declared = QueueDeclare(Q1, 'a "queue"', True, False, False)
    rows = ledgers(
        tmp_path, PRIMARY, declared, Bind("x", Q1, "q", "k"), Unrouted("p/1", 3, 5), QueueDelete(Q1, "q")
    )
    assert rows == [
        {"kind": "definition", "queue": Q1.hex(), "name": 'a "queue"'},
        {"kind": "unrouted", "prod": "p/1", "first": 3, "last": 5},
    ]


@pytest.mark.parametrize("scope", [Scope(bits) for bits in range(4)])
@pytest.mark.parametrize("level", ["none", "configuration", "all"])
def test_a_definition_tells_whether_backups_hold_the_messages(
    tmp_path: Path, scope: Scope, level: str
) -> None:
    declared = QueueDeclare(Q1, "q", True, False, False, replicate=level, scope=scope)
    (row,) = ledgers(tmp_path, BACKUP, declared)
    (other,) = ledgers(tmp_path / "other", BACKUP, replace(declared, vhost="v"))
    assert other == row | {"name": "v/q"}
    copied = scope & Scope.LINK and level != "configuration"
    assert row.get("reason") == ("replicated" if copied else None)


def test_a_sink_is_sealed_by_its_node(tmp_path: Path) -> None:
    folder = MemoryFolder()
    sink = LedgerSink(str(tmp_path), "a", "broker", incarnation=1, open_file=folder.open, clock=folder.clock)
    sink.close()
    assert [r["kind"] for r in folder.rows()] == ["open"]


def test_an_empty_batch_says_nothing(tmp_path: Path) -> None:
    assert ledgers(tmp_path, PRIMARY) == []
