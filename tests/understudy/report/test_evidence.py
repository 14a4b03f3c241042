"""The lines of findings are found in ledger files of every form; each missing thing has advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.understudy.report.stored import stored
from understudy.report.advice import OTHERWISE, advice
from understudy.report.evidence import with_lines


def lines(writer: str, count: int = 5, incarnation: int = 1) -> list[str]:
    common = {"v": 1, "writer": writer, "incarnation": incarnation}
    return [json.dumps({**common, "wseq": n, "kind": "heartbeat", "ts_us": n}) for n in range(count)]


def answer(*places: tuple[str, int, int]) -> dict[str, Any]:
    evidence = [
        {"writer": w, "incarnation": i, "wseq": n, "kind": "heartbeat", "file": None} for w, i, n in places
    ]
    return {"findings": [{"kind": "lost", "evidence": evidence}, {"kind": "in-doubt"}]}


def found(result: dict[str, Any]) -> list[tuple[str | None, str | None]]:
    return [(piece["file"], piece["line"]) for piece in result["findings"][0]["evidence"]]


def test_plain_lines_of_the_right_writer_life_and_number(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a-1-0.ledger.jsonl").write_text("\n".join(lines("a")) + "\n{torn")
    (tmp_path / "a-2-0.ledger.jsonl").write_text("\n".join(lines("a", incarnation=2)) + "\n")
    (tmp_path / "b%2F1-1-0.ledger.jsonl").write_text("\n".join(lines("b/1")))
    result = with_lines(answer(("a", 1, 3), ("b/1", 1, 4), ("a", 1, 77)), [tmp_path])
    assert found(result) == [
        ("a-1-0.ledger.jsonl", lines("a")[3]), ("b%2F1-1-0.ledger.jsonl", lines("b/1")[4]), (None, None),
    ]  # fmt: skip
    assert result["findings"][1]["evidence"] == []


def test_compressed_and_compacted_ledgers_and_files_of_other_names(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    text = "".join(line + "\n" for line in lines("a", 400)).encode()
    with pa.CompressedOutputStream(str(tmp_path / "a-1-0.ledger.jsonl.zst"), "zstd") as file:
        file.write(text)
    rows = [json.loads(line) | {"queue": None} for line in lines("b", 9)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "b-1-0.ledger.parquet")
    (tmp_path / "copied.ledger.jsonl").write_text(lines("c")[2])
    result = with_lines(answer(("a", 1, 333), ("b", 1, 7), ("c", 1, 2)), [tmp_path])
    assert [file for file, _ in found(result)] == [
        "a-1-0.ledger.jsonl.zst", "b-1-0.ledger.parquet", "copied.ledger.jsonl",
    ]  # fmt: skip
    assert [json.loads(line or "") for _, line in found(result)] == [
        json.loads(line) for line in (lines("a", 400)[333], lines("b", 9)[7], lines("c")[2])
    ]


def test_a_damaged_file_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "a-1-0.ledger.parquet").write_bytes(b"PAR1 no more")
    (tmp_path / "a-1-1.ledger.jsonl").write_bytes(b"\xff\xfe" + lines("a")[1].encode() + b"\n")
    assert found(with_lines(answer(("a", 1, 1)), [tmp_path])) == [(None, None)]


def test_nothing_is_opened_when_nothing_is_wanted(tmp_path: Path) -> None:
    result = with_lines({"findings": []}, [tmp_path / "absent"])
    assert result == {"findings": []}


SENTENCES = (
    "the ledger of a (incarnation 1) lacks records 3..4",
    "the ledger of a (incarnation 1) numbers records 1..2 twice",
    "the ledger of a (incarnation 1) has no end, and no ledger shows that it crashed",
    "the ledger of p (incarnation 7) has no end, so its sends and confirms after the last record"
    " are unknown",
    "the ledger of c (incarnation 3) has no end, so its receipts and acks after the last record are"
    " unknown",
    "ledgers of 2 clusters are mixed: x, y", "there is no ledger of a broker",
    "there is no ledger of a producer, so the confirmed messages are unknown",
    "the ledgers mention broker b, whose ledger is not here",
    "the ledgers say that b was in sync in epoch 7, but its ledger of that time is not here",
    "no ledger here opened epoch 9, so the ledger of its primary is missing",
    "a line of a-1-0.ledger.jsonl cannot be read (not a JSON record)",
    "z-1-0.ledger.jsonl is empty: a ledger begins with a record",
    ".x.ledger.jsonl was not read: Spark ignores names that begin with . or _",
    "3 records have schema version 9; this job reads versions 1 and 2",
    "the last primary did not end cleanly, so what its queues held at the end is unknown",
    "4 messages perhaps lost (confirmed, and gone): orders, epoch 1, ids 2..5",
    "3 messages enqueued for a producer whose ledger is not here: producer x",
    "2 messages publish tags used twice in one session: their confirms are ambiguous: producer x",
)  # fmt: skip


@pytest.mark.parametrize("sentence", SENTENCES)
def test_each_thing_that_may_be_missing_has_its_own_advice(sentence: str) -> None:
    assert advice(sentence) != OTHERWISE


def test_a_client_that_was_killed_is_not_told_to_start_again() -> None:
    """The client's next ledger does not contain the events that the killed one had not written."""
    broker, *clients = [advice(sentence) for sentence in SENTENCES if "has no end" in sentence]
    assert "start it once more" in broker and len(clients) == 2
    assert all("cannot be proven" in text and "start it" not in text for text in clients)


def test_an_unknown_sentence_gets_advice_too() -> None:
    assert advice("the moon is missing") == OTHERWISE


def test_every_sentence_of_the_stored_result_has_advice() -> None:
    assert {advice(sentence) for sentence in stored("not-provable")["missing"]} - {OTHERWISE}
