"""The ledger writer: fields, files, one write for each flush, and a correct count of records that a full disk
loses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.understudy.ledger.memory import MemoryFolder
from understudy.ledger import codes
from understudy.ledger.writer import LedgerError, LedgerWriter


def opened(folder: MemoryFolder, tmp_path: Path, **more: Any) -> LedgerWriter:
    return LedgerWriter(
        str(tmp_path), "a", "broker", incarnation=3, open_file=folder.open, clock=folder.clock, **more
    )


@pytest.fixture
def folder() -> MemoryFolder:
    return MemoryFolder()


def test_the_first_record_says_who_writes(tmp_path: Path) -> None:
    ledger = LedgerWriter(str(tmp_path / "deep"), "a", "producer", incarnation=1, cluster="c1", view=9)
    assert (tmp_path / "deep").stat().st_mode & 0o777 == 0o700
    ledger.close()
    path = tmp_path / "deep" / "a-1-0.ledger.jsonl"
    first, last = (json.loads(line) for line in path.read_text().splitlines())
    assert first.pop("ts_us") > 1_600_000_000_000_000
    assert first == {
        "v": 2, "writer": "a", "incarnation": 1, "wseq": 0, "view": 9, "kind": "open", "reason": "c1",
        "name": "producer",
    }  # fmt: skip
    assert (last["kind"], last["wseq"]) == ("seal", 1)


def test_every_field_comes_out_as_it_went_in(folder: MemoryFolder, tmp_path: Path) -> None:
    ledger = opened(folder, tmp_path)
    ledger.view = 65537
    fields: dict[str, Any] = {
        "queue": "ab" * 16, "epoch": 1, "first": 2, "last": 2**62, "reason": "acked", "prod": 'p"\\é\n/1',
        "pfirst": 0, "name": "ex|key", "peer": "b", "n": 7,
    }  # fmt: skip
    ledger.record("enqueue", **fields)
    ledger.flush()
    row = folder.rows()[1]
    assert row == fields | {
        "v": 2, "writer": "a", "incarnation": 3, "wseq": 1, "ts_us": row["ts_us"], "view": 65537,
        "kind": "enqueue",
    }  # fmt: skip


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_makes_one_valid_line(writer: str, text: str) -> None:
    folder = MemoryFolder()
    ledger = LedgerWriter("/tmp", writer, "broker", incarnation=1, open_file=folder.open, clock=folder.clock)
    for _ in range(2):
        ledger.record("sent", prod=text, name=text, peer=text, reason=text)
    ledger.close()
    (path,) = folder.files
    assert path.startswith("/tmp/") and "/" not in path[5:] and path.endswith("-1-0.ledger.jsonl")
    rows = [json.loads(line) for line in folder.files[path].decode().splitlines()]
    assert [r["wseq"] for r in rows] == [0, 1, 2, 3]
    assert rows[1]["prod"] == rows[2]["peer"] == text and rows[0]["writer"] == writer


def test_one_write_for_each_flush_and_none_without_records(folder: MemoryFolder, tmp_path: Path) -> None:
    ledger = opened(folder, tmp_path)
    before = folder.writes
    for _ in range(100):
        ledger.record("heartbeat")
    assert folder.writes == before
    ledger.flush()
    ledger.flush()
    assert folder.writes == before + 1
    rows = folder.rows()
    assert [r["wseq"] for r in rows] == list(range(101)) and ledger.next_wseq == 101
    assert len({r["ts_us"] for r in rows[1:]}) == 1
    assert rows[0]["ts_us"] < rows[1]["ts_us"]


def test_files_are_rotated_by_size_and_the_numbers_go_on(folder: MemoryFolder, tmp_path: Path) -> None:
    ledger = opened(folder, tmp_path, rotate_bytes=500)
    for _ in range(20):
        ledger.record("heartbeat")
        ledger.flush()
    ledger.close()
    names = [Path(path).name for path in folder.files]
    assert names == [f"a-3-{k}.ledger.jsonl" for k in range(len(names))] and len(names) > 3
    assert all(data.endswith(b"\n") and len(data) <= 500 for data in folder.files.values())
    assert [r["wseq"] for r in folder.rows()] == list(range(22))


def test_an_old_file_is_rotated_however_small_it_is(folder: MemoryFolder, tmp_path: Path) -> None:
    ledger = opened(folder, tmp_path, rotate_age=60.0)
    for seconds in (0, 59, 1, 1, 58, 1, 1):
        folder.now += seconds * 1_000_000
        ledger.record("heartbeat")
        ledger.flush()
    ledger.close()
    counts = [data.count(b"\n") for data in folder.files.values()]
    assert counts == [3, 3, 3]
    assert [r["wseq"] for r in folder.rows()] == list(range(9))
    never = opened(folder, tmp_path / "never", rotate_age=0.0)
    folder.now += 10**15
    never.close()
    assert len(folder.files) == 4


def test_only_silence_has_heartbeats(folder: MemoryFolder, tmp_path: Path) -> None:
    """Three calls within the allowed silence keep every silence shorter than that."""
    ledger = opened(folder, tmp_path)
    ledger.beat()
    ledger.record("seal")
    ledger.beat()
    ledger.beat()
    ledger.beat()
    assert [r["kind"] for r in folder.rows()] == ["open", "seal", "heartbeat", "heartbeat"]


def test_health_tells_when_the_disk_is_full_and_when_it_has_room_again(
    folder: MemoryFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = opened(folder, tmp_path)
    last = folder.now / 1e6
    whole = {"path": ledger.path, "lost": 0, "failures": 0, "failing": False, "last_write": last}
    assert ledger.health() == whole
    folder.room = 0
    for _ in range(3):
        ledger.record("heartbeat")
        ledger.flush()
    assert ledger.health() == {**whole, "lost": 3, "failures": 3, "failing": True}
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    folder.room = None
    ledger.record("heartbeat")
    ledger.flush()
    assert ledger.health() == {
        **whole, "lost": 3, "failures": 3, "last_write": folder.now / 1e6
    }  # fmt: skip
    told = [record.msg for record in caplog.records]
    assert told[0].code == codes.UNWRITABLE.name
    assert told[1] == codes.WRITTEN_AGAIN.say(path=ledger.path, lost=3)


def test_a_write_taken_in_pieces_is_whole(folder: MemoryFolder, tmp_path: Path) -> None:
    folder.most = 10
    ledger = opened(folder, tmp_path)
    ledger.close()
    assert [r["kind"] for r in folder.rows()] == ["open", "seal"] and ledger.lost == 0


def test_a_full_disk_costs_records_and_the_gap_says_so(folder: MemoryFolder, tmp_path: Path) -> None:
    """For every number of free bytes, lost records are counted and at most one row is damaged."""
    whole = MemoryFolder()
    ledger = opened(whole, tmp_path)
    start = len(whole.files[ledger.path])
    for _ in range(3):
        ledger.record("heartbeat")
    ledger.flush()
    size = len(whole.files[ledger.path]) - start
    for room in range(size):
        folder = MemoryFolder()
        ledger = opened(folder, tmp_path)
        folder.room = room
        for _ in range(3):
            ledger.record("heartbeat")
        ledger.flush()
        for _ in range(2):  # still full
            ledger.record("heartbeat")
            ledger.flush()
        assert ledger.failures == 3
        folder.room = None
        ledger.record("heartbeat")
        ledger.close()
        present = [r["wseq"] for r in folder.rows()]
        missing = sorted(set(range(8)) - set(present))
        assert len(present) == len(set(present))
        assert present[-2:] == [6, 7]
        # A row without its newline can be read, but counts as lost. No row that is lost counts as written.
        assert ledger.lost - 1 <= len(missing) <= ledger.lost
        assert missing[-2:] == [4, 5]


def test_nothing_raises_when_a_new_file_cannot_be_opened(folder: MemoryFolder, tmp_path: Path) -> None:
    ledger = opened(folder, tmp_path, rotate_bytes=1)
    folder.open_fails = folder.close_fails = True
    ledger.record("heartbeat")
    ledger.flush()
    assert ledger.lost == 1
    folder.open_fails = False
    ledger.record("heartbeat")
    ledger.flush()
    ledger.close()
    ledger.close()
    assert [r["wseq"] for r in folder.rows()] == [0, 2, 3]


def test_a_close_without_a_seal_and_records_after_it(folder: MemoryFolder, tmp_path: Path) -> None:
    ledger = opened(folder, tmp_path)
    ledger.close(seal=False)
    ledger.record("heartbeat")
    ledger.flush()
    assert [r["kind"] for r in folder.rows()] == ["open"]
    assert ledger.lost == 1 and len(folder.files) == 1


def test_an_incarnation_is_not_written_twice(tmp_path: Path) -> None:
    LedgerWriter(str(tmp_path), "a", "broker", incarnation=1).close()
    with pytest.raises(LedgerError, match=r"a-1-0\.ledger\.jsonl: File exists"):
        LedgerWriter(str(tmp_path), "a", "broker", incarnation=1)


def test_a_place_that_cannot_hold_a_ledger_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LedgerError, match="cannot open ledger") as caught:
        LedgerWriter(str(tmp_path / "file"), "a", "broker", incarnation=1)
    assert "\n" not in str(caught.value)


def test_names_are_made_safe(tmp_path: Path) -> None:
    ledger = LedgerWriter(str(tmp_path), "../host:5672 ü", "broker", incarnation=1)
    ledger.close()
    assert [p.parent for p in tmp_path.iterdir()] == [tmp_path]
    assert json.loads(Path(ledger.path).read_text().splitlines()[0])["writer"] == "../host:5672 ü"
