"""Finding ledgers and reading their files, in every form and state; without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from spark.reconcile.input.files import Piece, read_piece
from spark.reconcile.input.read import find_ledgers, pieces, tasks
from spark.schema import CORRUPT, FILE, NOT_PARQUET

HEAD = {"v": 2, "writer": "w", "incarnation": 1, "ts_us": 5, "view": 0}


def records(count: int) -> list[dict[str, Any]]:
    more = {"kind": "received", "queue": "q", "epoch": 1}
    return [{**HEAD, **more, "wseq": n, "first": n * 10, "last": n * 10 + 9} for n in range(count)]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def rows_of(*given: Piece) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if value is not None}
        for piece in given for table in read_piece(piece) for row in table.to_pylist()
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["jsonl", "jsonl.zst", "parquet"])
def test_every_form_gives_the_same_records_in_order(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"w-1-0.ledger.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(records(1000)), path, row_group_size=300)
    else:
        with pa.output_stream(path, compression="zstd" if form == "jsonl.zst" else None) as stream:
            stream.write(lines(records(1000)))
    assert find_ledgers([tmp_path]).ledgers == [path]
    assert rows_of(*pieces([path])) == records(1000)


def test_pieces_of_a_file_share_no_line_and_miss_none(tmp_path: Path) -> None:
    path = tmp_path / "w-1-0.ledger.jsonl"
    path.write_bytes(lines(records(50)))
    size = path.stat().st_size
    for width in (1, 7, 100, len(lines(records(1))), size):
        given = [Piece(str(path), begin, min(begin + width, size)) for begin in range(0, size, width)]
        assert rows_of(*given) == records(50), width


def test_row_groups_are_shared_among_pieces(tmp_path: Path) -> None:
    path = tmp_path / "w-1-0.ledger.parquet"
    pq.write_table(pa.Table.from_pylist(records(1000)), path, row_group_size=300)
    for count in (1, 2, 3, 4, 7):
        assert rows_of(*(Piece(str(path), share, count) for share in range(count))) == records(1000), count


@pytest.mark.parametrize(
    "line",
    [
        b'{"v":2,"wri', b"[1,2]", b'"text"', b'{"v":"2"}', b'{"v":1.5}', b'{"v":true}', b"\xff\xfe",
        b'{"v":99999999999999999999}', b'{"writer":7}', b'{"v":2}{"v":2}', b'{"writer":"\\ud800"}',
    ],
)  # fmt: skip
def test_an_invalid_line_does_not_affect_other_lines(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "w-1-0.ledger.jsonl"
    path.write_bytes(lines(records(2)) + line + b"\n" + lines(records(3)[2:]))
    found = rows_of(*pieces([path]))
    assert [row for row in found if CORRUPT not in row] == records(3)
    [bad] = [row for row in found if CORRUPT in row]
    assert bad[FILE].endswith("w-1-0.ledger.jsonl")


def test_blank_lines_unknown_fields_and_a_missing_newline_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "w-1-0.ledger.jsonl"
    more = [{**row, "novel": {"deep": [1]}} for row in records(2)]
    path.write_bytes(lines(more[:1]) + b"\n\r\n" + lines(more[1:]).rstrip())
    assert rows_of(*pieces([path])) == records(2)


def test_half_written_foreign_or_empty_parquet_is_reported(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    pq.write_table(pa.Table.from_pylist(records(100)), whole)
    for place, content in enumerate((whole.read_bytes()[:-30], b"PAR1", b"", b"text")):
        (tmp_path / f"w-1-{place}.ledger.parquet").write_bytes(content)
    pq.write_table(pa.table({"price": [1.5]}), tmp_path / "w-1-5.ledger.parquet")
    pq.write_table(pa.Table.from_pylist(records(1)).slice(0, 0), tmp_path / "w-1-6.ledger.parquet")
    wrong = [{**row, "wseq": "x"} for row in records(3)]
    pq.write_table(pa.Table.from_pylist(wrong), tmp_path / "w-1-7.ledger.parquet")
    for path in find_ledgers([tmp_path]).ledgers:
        assert [row[CORRUPT] for row in rows_of(*pieces([path]))] == [NOT_PARQUET], path.name


def test_a_damaged_compressed_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "w-1-0.ledger.jsonl.zst"
    with pa.output_stream(path, compression="zstd") as stream:
        stream.write(lines(records(1000)))
    path.write_bytes(path.read_bytes()[:-40])
    found = rows_of(*pieces([path]))
    assert (
        CORRUPT in found[-1]
        and [row for row in found if CORRUPT not in row] == records(1000)[: len(found) - 1]
    )


def test_the_compacted_form_of_a_ledger_is_read(tmp_path: Path) -> None:
    names = ("w-1-0.ledger.jsonl", "w-1-0.ledger.parquet", "w-1-1.ledger.jsonl", "w-1-1.ledger.jsonl.zst")
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "w-1-2.ledger.parquet.tmp").touch()
    found = find_ledgers([tmp_path])
    assert [path.name for path in found.ledgers] == ["w-1-0.ledger.parquet", "w-1-1.ledger.jsonl.zst"]
    assert len(found.older) == 2 and found.ignored == 1


def test_a_pruned_file_replaces_the_files_that_it_came_from(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"w-1-{number}.ledger.jsonl").write_text(str(number))
    (tmp_path / "w-1-2.pruned.ledger.jsonl").write_text("pruned")
    (tmp_path / "w-2-0.ledger.jsonl").write_text("another life")
    found = [path.name for path in find_ledgers([tmp_path]).ledgers]
    assert found == ["w-1-2.pruned.ledger.jsonl", "w-1-3.ledger.jsonl", "w-2-0.ledger.jsonl"]


def test_tasks_get_pieces_in_order(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"w-1-{number}.ledger.jsonl").write_bytes(lines(records(20 + number)))
    ledgers = find_ledgers([tmp_path]).ledgers
    groups = tasks(ledgers)
    assert len(groups) == 2 and [piece for group in groups for piece in group] == pieces(ledgers)


def test_files_of_a_ledger_are_in_order_of_writing(tmp_path: Path) -> None:
    """A sort by name put the tenth file before the second. Then nothing was plainly in order, and a hundred
    million ids took three times as long."""
    names = [f"a-1-{place}.ledger.jsonl" for place in range(12)]
    later = ["a-1-12.ledger.parquet", "a-2-0.ledger.jsonl", "b-1-0.ledger.jsonl"]
    for name in reversed([*names, *later]):
        (tmp_path / name).write_text(name)
    assert [path.name for path in find_ledgers([tmp_path]).ledgers] == [*names, *later]
