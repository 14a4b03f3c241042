"""Ledger files: compaction loses nothing, retention records what it deletes, and a crash leaves
whole files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from tests.understudy.ledger.schema import check_all
from understudy.ledger import compaction, retention
from understudy.ledger.compaction import LONGS, TEXTS, Kept, compact, finish, parquet_of
from understudy.ledger.inspection import inspect
from understudy.ledger.retention import Unprunable, plan, prune
from understudy.ledger.segments import JSONL, Record, Segment, Series, find, finished, records
from understudy.ledger.writer import LedgerWriter

Q = "ab" * 16
DAY = 86_400_000_000


class Life:
    """A broker's ledger over several days, one file a day, with its own clock."""

    def __init__(self, folder: Path, writer: str = "a", incarnation: int = 1) -> None:
        self.now = DAY
        self.ids = 0
        self.ledger = LedgerWriter(
            str(folder), writer, "broker", incarnation=incarnation, cluster="c", view=7, rotate_age=86400.0,
            clock=lambda: self.now,
        )  # fmt: skip

    def day(self, count: int = 5) -> None:
        for _ in range(count):
            first, self.ids = self.ids + 1, self.ids + 10
            self.ledger.record(
                "enqueue", queue=Q, epoch=7, first=first, last=self.ids, prod="p/1", pfirst=first, n=first
            )
            self.ledger.record("dequeue", queue=Q, epoch=7, first=first, last=self.ids, reason="acked")
            self.ledger.flush()
            self.now += DAY // count
        self.now += 1

    def days(self, count: int) -> None:
        for _ in range(count):
            self.day()


def only(folder: Path) -> Series:
    (series,) = find([folder])[0]
    return series


def read(series: Series) -> list[Record]:
    return [record for segment in series.segments for record in records(segment, lambda damage: None)]


def lines(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A ledger of four days that is still open. Three of its files are finished."""
    life = Life(tmp_path)
    life.ledger.record("definition", queue=Q, name="orders", reason="replicated")
    life.ledger.record("promote", peer="", reason="unforced")
    life.days(4)
    return life


# -- segments and inspection


def test_the_last_file_is_finished_by_its_seal_alone(tmp_path: Path, life: Life) -> None:
    series = only(tmp_path)
    assert [s.number for s in series.segments] == [0, 1, 2, 3]
    assert finished(series) == series.segments[:3]
    assert inspect(series).end == "open"
    life.ledger.close()
    series = only(tmp_path)
    assert finished(series) == series.segments
    report = inspect(series)
    assert (report.end, report.faults(), report.count, report.first) == ("sealed", [], 44, 0)


def test_names_are_read_as_they_are_written(tmp_path: Path) -> None:
    for writer in ("a-1-2", "../x y", "", "ü-0"):
        LedgerWriter(str(tmp_path), writer, "broker", incarnation=17).close()
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a-1.ledger.jsonl").write_text("x")
    series, foreign = find([tmp_path, tmp_path])
    assert {s.process for s in series} == {("a-1-2", 17), ("../x y", 17), ("_", 17), ("ü-0", 17)}
    assert foreign == 2


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda ls: ls[:5] + ls[6:], "lacks records 5 (next record in a-1-0"),
        (
            lambda ls: [*ls[:5], b"{}\n", *ls[5:]],
            "line 6 of a-1-0.ledger.jsonl cannot be read (unsupported schema version",
        ),
        (lambda ls: [*ls, ls[3]], "repeats record numbers 3, in a-1-0"),
        (lambda ls: [*ls, b'{"v":2,"wri'], "the last line of a-1-0.ledger.jsonl is cut short"),
        (lambda ls: [b"nonsense\n", *ls], "line 1 of a-1-0.ledger.jsonl cannot be read (not JSON)"),
        (lambda ls: ls[:-1], "has no end"),
        (lambda ls: [], "is empty"),
        (lambda ls: [ls[0].replace(b'"view":7', b'"view":-7'), *ls[1:]], "view is -7"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: Any, fault: str) -> None:
    life = Life(tmp_path)
    life.day()
    life.now = DAY  # the same day
    life.ledger.close()
    path = Path(life.ledger.path)
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    assert any(fault in each for each in inspect(only(tmp_path)).faults()), inspect(only(tmp_path)).faults()


# -- Parquet


def test_parquet_says_what_the_lines_said(tmp_path: Path, life: Life) -> None:
    series = only(tmp_path)
    before = read(series)
    for segment in finished(series):
        assert compact(segment) == parquet_of(segment).stat().st_size
        assert not segment.path.exists()
    again = only(tmp_path)
    assert [s.form for s in again.segments] == [".ledger.parquet"] * 3 + [JSONL]
    assert read(again) == before
    assert inspect(again).faults() == []
    life.day()
    assert life.ledger.lost == 0, "the file that is written to is left alone"


def test_the_columns_are_those_that_spark_reads(tmp_path: Path, life: Life) -> None:
    from spark import schema

    (segment, *_) = finished(only(tmp_path))
    compact(segment)
    made = pyarrow.parquet.read_schema(parquet_of(segment))
    wanted = [name for name in schema.RECORD_SCHEMA.names if name not in (schema.CORRUPT, schema.FILE)]
    assert made.names == [*LONGS, *TEXTS]
    assert sorted(made.names) == sorted(wanted)
    for name in wanted:
        assert (
            str(made.field(name).type)
            == {"bigint": "int64", "string": "string"}[schema.RECORD_SCHEMA[name].dataType.simpleString()]
        )


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (b'{"v":2,"writer":"a"', "its last line is cut short"),
        (b"nonsense\n", "a line is not a record"),
        (b'{"v":2,"writer":"a"}\n', "has no incarnation"),
        (b"\n", "lines and records differ in number"),
        (b'{"v":3,"writer":"a","incarnation":1,"wseq":1,"ts_us":1,"view":1,"kind":"x"}\n', "version 3"),
        (
            b'{"v":2,"writer":"a","incarnation":1,"wseq":1,"ts_us":1,"view":1,"kind":"x","new":1}\n',
            "not a record",
        ),
        (b'{"v":2,"writer":"a","incarnation":1,"wseq":1.5,"ts_us":1,"view":1,"kind":"x"}\n', "not a record"),
        (b"\xff\xfe\n", "a line is not a record"),
    ],
)
def test_lines_that_are_no_records_stay_as_they_are(tmp_path: Path, life: Life, end: bytes, why: str) -> None:
    segment = only(tmp_path).segments[0]
    with segment.path.open("ab") as file:
        file.write(end)
    data = segment.path.read_bytes()
    with pytest.raises(Kept, match=why):
        compact(segment)
    assert segment.path.read_bytes() == data
    assert not [p for p in tmp_path.iterdir() if p.suffix in (".part", ".parquet")]


class Killed(BaseException):
    """The process is killed."""


@pytest.mark.parametrize("step", ["fsync", "replace", "sync_folder", "unlink"])
def test_a_compaction_that_is_killed_leaves_one_whole_ledger(
    tmp_path: Path, life: Life, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read(only(tmp_path))
    segment = only(tmp_path).segments[1]

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if step == "unlink":
            patch.setattr(Path, "unlink", killed)
        else:
            patch.setattr(compaction if step == "sync_folder" else os, step, killed)
        with pytest.raises(Killed):
            compact(segment)
    assert read(only(tmp_path)) == before
    for double in only(tmp_path).doubles:
        finish(double)
    assert read(only(tmp_path)) == before and not only(tmp_path).doubles
    rest = only(tmp_path).segments[1]
    if rest.form == JSONL:
        compact(rest)
    assert read(only(tmp_path)) == before


def test_parquet_that_differs_from_the_lines_is_not_believed(tmp_path: Path, life: Life) -> None:
    first, second = only(tmp_path).segments[:2]
    data = first.path.read_bytes()
    compact(first)
    first.path.write_bytes(data[: data.rindex(b"\n", 0, -1) + 1])
    with pytest.raises(Kept, match="differs"):
        finish(only(tmp_path).doubles[0])
    parquet_of(second).write_bytes(b"PAR1")
    with pytest.raises(Kept, match="cannot be read"):
        finish(Segment(second.path, "a", 1, 1, JSONL))
    assert first.path.exists() and second.path.exists()


def test_what_is_read_back_wrong_is_not_kept(
    tmp_path: Path, life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk stores something else: `_write` writes another segment, so the comparison fails."""
    segment = only(tmp_path).segments[0]
    write = compaction._write

    def other(source: Path, file: Any, progress: Any) -> None:
        write(only(tmp_path).segments[1].path, file, progress)

    monkeypatch.setattr(compaction, "_write", other)
    with pytest.raises(Kept, match="differs"):
        compact(segment)
    assert segment.path.exists() and not parquet_of(segment).exists()


# -- retention


@pytest.mark.parametrize("parquet", [False, True])
def test_old_files_go_and_every_number_is_accounted_for(tmp_path: Path, life: Life, parquet: bool) -> None:
    before = {record["wseq"]: record for record in read(only(tmp_path))}
    if parquet:
        compact(only(tmp_path).segments[0])
    found = plan(only(tmp_path), before_us=3 * DAY)
    assert [s.number for s in found.going] == [0, 1]
    target = prune(found)
    assert target.name == "a-1-1.pruned.ledger.jsonl"
    series = only(tmp_path)
    assert [(s.number, s.pruned) for s in series.segments] == [(1, True), (2, False), (3, False)]
    report = inspect(series)
    assert report.faults() == [] and report.end == "open"
    assert report.pruned_us is not None and report.pruned_us <= 3 * DAY
    summary = lines(target)
    check_all(summary)
    kinds = [r["kind"] for r in summary]
    assert kinds == ["open", "definition", "promote", "pruned", "enqueue", "dequeue"]
    kept = [r for r in summary if r["kind"] != "pruned"]
    assert all(before[r["wseq"]] == r for r in kept), "as they were written"
    last = max(r["last"] for r in before.values() if r["kind"] == "enqueue" and r["wseq"] <= kept[-1]["wseq"])
    assert kept[-1]["last"] == last, "how far the ids had got"
    gone = [range(r["first"], r["last"] + 1) for r in summary if r["kind"] == "pruned"]
    covered = [number for numbers in gone for number in numbers]
    assert sorted([*covered, *(r["wseq"] for r in kept)]) == list(range(series_first(series)))


def series_first(series: Series) -> int:
    """Number of the first record that was not pruned."""
    found: int = next(records(series.segments[1], lambda damage: None))["wseq"]
    return found


def test_the_next_time_goes_on_from_there(tmp_path: Path, life: Life) -> None:
    prune(plan(only(tmp_path), before_us=2 * DAY + 2))
    assert plan(only(tmp_path), before_us=2 * DAY + 2).going == [], "nothing new is that old"
    life.days(2)
    prune(plan(only(tmp_path), before_us=4 * DAY))
    series = only(tmp_path)
    assert [s.pruned for s in series.segments] == [True] + [False] * (len(series.segments) - 1)
    assert len([p for p in tmp_path.iterdir() if ".pruned." in p.name]) == 1
    report = inspect(series)
    assert not report.damaged and report.first == 0
    assert sum(r["kind"] == "open" for r in read(series)) == 1


def test_what_is_written_to_stays_however_old(tmp_path: Path, life: Life) -> None:
    found = plan(only(tmp_path), before_us=10**18)
    assert [s.number for s in found.going] == [0, 1, 2]
    life.ledger.close(seal=False)  # it crashed
    found = plan(only(tmp_path), before_us=10**18)
    assert [s.number for s in found.going] == [0, 1, 2, 3]
    prune(found)
    assert [s.pruned for s in only(tmp_path).segments] == [True]
    assert inspect(only(tmp_path)).faults() == ["the ledger of a (incarnation 1) has no end"]


def test_an_incarnation_that_has_ended_keeps_its_seal(tmp_path: Path, life: Life) -> None:
    life.ledger.close()
    prune(plan(only(tmp_path), before_us=10**18))
    report = inspect(only(tmp_path))
    assert (report.end, report.faults()) == ("sealed", [])


def test_how_far_a_client_had_got_stays(tmp_path: Path) -> None:
    """The highest id of each queue and epoch stays, and the highest tag of each session, whatever the kind of
    the record."""
    ledger = LedgerWriter(str(tmp_path), "c", "consumer", incarnation=1)
    for first, last, kind in ((1, 9, "received"), (1, 4, "acked"), (10, 12, "received"), (5, 12, "acked")):
        ledger.record(kind, queue=Q, epoch=7, first=first, last=last)
    for kind, last in (("sent", 30), ("confirmed", 20), ("nacked", 30)):
        ledger.record(kind, prod="c.1/1", first=1, last=last)
    ledger.close()
    summary = lines(prune(plan(only(tmp_path), before_us=10**18)))
    check_all(summary)
    told = [(r["kind"], r["last"]) for r in summary if "last" in r and r["kind"] != "pruned"]
    assert told == [("acked", 12), ("nacked", 30)]


def test_damage_stays_unless_it_is_to_go(tmp_path: Path, life: Life) -> None:
    segment = only(tmp_path).segments[1]
    data = segment.path.read_bytes().splitlines(keepends=True)
    segment.path.write_bytes(b"".join([*data[:2], b"torn\n", *data[3:]]))
    found = plan(only(tmp_path), before_us=4 * DAY)
    with pytest.raises(Unprunable, match="line 3 of a-1-1"):
        prune(found)
    segment.path.write_bytes(b"".join([*data[:2], *data[3:]]))
    with pytest.raises(Unprunable, match="are missing"):
        prune(found)
    assert len(only(tmp_path).segments) == 4 and not only(tmp_path).doubles
    summary = lines(prune(found, damaged=True))
    check_all(summary)
    assert {r.get("reason") for r in summary if r["kind"] == "pruned"} == {"damaged"}
    assert not inspect(only(tmp_path)).damaged


@pytest.mark.parametrize("step", ["fsync", "replace", "tidy"])
def test_a_pruning_that_is_killed_is_done_or_not(
    tmp_path: Path, life: Life, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(retention if step == "tidy" else os, step, killed)
        with pytest.raises(Killed):
            prune(plan(only(tmp_path), before_us=3 * DAY))
    series = only(tmp_path)
    assert not inspect(series).damaged
    assert bool(series.doubles) == (step == "tidy"), "what is left over is told apart by its name"
    if series.doubles:
        retention.tidy(series.doubles, series.segments[0].path)
    prune(plan(only(tmp_path), before_us=4 * DAY))
    assert not inspect(only(tmp_path)).damaged and not only(tmp_path).doubles


def test_a_producer_keeps_how_far_each_session_got(tmp_path: Path) -> None:
    now = DAY
    ledger = LedgerWriter(str(tmp_path), "p", "producer", incarnation=1, clock=lambda: now)
    for session, tags in (("p.1/1", ((1, 5), (6, 9))), ("p.2/1", ((1, 2),))):
        for first, last in tags:
            ledger.record("sent", prod=session, first=first, last=last, pfirst=first, name="|q")
            ledger.record("confirmed", prod=session, first=first, last=last)
    ledger.close()
    summary = lines(prune(plan(only(tmp_path), before_us=2 * DAY)))
    told = [(r["prod"], r["last"]) for r in summary if "prod" in r]
    assert told == [("p.1/1", 9), ("p.2/1", 2)]
    assert summary[-1]["kind"] == "seal"


def test_lines_that_somebody_has_packed_are_read_too(tmp_path: Path, life: Life) -> None:
    before = read(only(tmp_path))
    path = only(tmp_path).segments[0].path
    packed = path.with_name(path.name + ".zst")
    with pyarrow.output_stream(str(packed), compression="zstd") as out:
        out.write(path.read_bytes())
    assert [s.path for s in only(tmp_path).doubles] == [path], "a crash may leave both"
    path.unlink()
    assert read(only(tmp_path)) == before
    assert not inspect(only(tmp_path)).damaged
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(OSError, match=r"a-1-0\.ledger\.jsonl\.zst"):
        inspect(only(tmp_path))
