"""`understudy ledger`: exit codes, one line for each error, tables and JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.understudy.ledger.test_files import DAY, Life, only
from understudy.cli.main import cli
from understudy.ledger.segments import JSONL
from understudy.ledger.writer import LedgerWriter


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["ledger", *map(str, arguments)])


def one_line(result: Result, code: int, text: str) -> None:
    assert result.exit_code == code, (result.output, result.exception)
    assert text in result.stderr and result.stderr.count("\n") == 1, result.stderr


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """Four days of long ago, in a ledger that is still open."""
    life = Life(tmp_path / "ledgers")
    life.days(4)
    yield life
    life.ledger.close()


@pytest.fixture
def folder(tmp_path: Path, life: Life) -> Path:
    return tmp_path / "ledgers"


COMMANDS = [("check",), ("compact",), ("prune", "--keep", "1d")]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_ledger_is_status_2(tmp_path: Path, command: tuple[str, ...]) -> None:
    one_line(run(*command, tmp_path / "none"), 2, "no such folder")
    one_line(run(*command, tmp_path), 2, "no ledger below")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "ledger.jsonl").write_text("{}\n")
    one_line(run(*command, tmp_path), 2, "(2 other files)")


@pytest.mark.parametrize(
    "arguments",
    [
        ("check",), ("check", "--colour", "x"), ("compact", ".", "--older-than", "soon"), ("prune", "."),
        ("prune", ".", "--keep", "0s"), ("prune", ".", "--keep", "30"),
        ("convert", "x", "--writer", "w", "--role", "broker", "--format", "csv"), ("convert",),
    ],
)  # fmt: skip
def test_wrong_usage_is_status_3(arguments: tuple[str, ...]) -> None:
    one_line(run(*arguments), 3, "understudy ledger: ")


def test_convert_takes_no_name_whose_ledger_nobody_would_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    arguments = (
        "convert",
        tmp_path / "log",
        "--writer",
        "_x",
        "--role",
        "consumer",
        "--format",
        "csv",
        "--out",
        tmp_path,
    )
    one_line(run(*arguments), 3, "'_x' cannot name the writer of a ledger")


def test_check_tells_who_wrote_what_and_how_it_ended(folder: Path, life: Life) -> None:
    found = run("check", folder)
    assert found.exit_code == 2 and "open" in found.output
    life.ledger.close()
    found = run("check", folder)
    assert found.exit_code == 0 and "sealed" in found.output and "0..41" in found.output
    (report,) = json.loads(run("check", folder, "--format", "json").stdout)["ledgers"]
    assert (report["writer"], report["role"], report["end"], report["faults"]) == (
        "a",
        "broker",
        "sealed",
        [],
    )
    first = only(folder).segments[0].path
    first.write_bytes(first.read_bytes()[:-20])
    found = run("check", folder)
    assert found.exit_code == 1 and "cannot be read (cut short)" in found.output
    first.write_bytes(b"\x00\xff" * 50)
    assert run("check", folder).exit_code == 1
    only(folder).segments[1].path.write_text('{"v":7}\n')
    assert "schema version 7" in run("check", folder).output


def test_a_broker_that_has_begun_anew_has_an_end(folder: Path, life: Life) -> None:
    life.ledger.close(seal=False)
    assert run("check", folder).exit_code == 2
    again = Life(folder, incarnation=2)
    again.ledger.close()
    found = run("check", folder)
    assert found.exit_code == 0 and "crashed" in found.output
    Life(folder, writer="b").ledger.close(seal=False)
    assert "the ledger of b (incarnation 1) has no end" in run("check", folder).output


def test_the_ledger_of_a_killed_client_is_told_to_have_no_end(folder: Path) -> None:
    LedgerWriter(str(folder), "p", "producer", incarnation=1).close(seal=False)
    LedgerWriter(str(folder), "p", "producer", incarnation=2).close()
    found = run("check", folder)
    assert found.exit_code == 2 and "the ledger of p (incarnation 1) has no end" in found.output


def test_compact_says_what_became_of_what(folder: Path) -> None:
    assert "nothing to compact" in run("compact", folder, "--older-than", "36000d").output
    torn = only(folder).segments[1].path
    torn.write_bytes(torn.read_bytes() + b'{"v":')
    found = run("compact", folder, "--format", "json")
    assert found.exit_code == 1 and "kept " in found.stderr and "cut short" in found.stderr
    answer = json.loads(found.stdout)
    assert [Path(each["file"]).name for each in answer["compacted"]] == [
        "a-1-0.ledger.jsonl", "a-1-2.ledger.jsonl"
    ]  # fmt: skip
    assert len(answer["kept"]) == 1 and torn.exists()
    assert sorted(p.name for p in folder.iterdir() if p.suffix == ".parquet") == [
        "a-1-0.ledger.parquet", "a-1-2.ledger.parquet"
    ]  # fmt: skip
    one = run("compact", folder / "a-1-3.ledger.jsonl")
    assert one.exit_code == 0 and "nothing to compact" in one.output


def test_a_crash_between_two_forms_is_tidied_up(folder: Path) -> None:
    segment = only(folder).segments[0]
    data = segment.path.read_bytes()
    run("compact", folder)
    segment.path.write_bytes(data)
    assert len(only(folder).doubles) == 1
    assert run("compact", folder).exit_code == 0
    assert not only(folder).doubles and not segment.path.exists()


def test_prune_removes_what_is_old_and_says_so(folder: Path, life: Life) -> None:
    found = run("prune", folder, "--keep", "30d", "--dry-run")
    assert found.exit_code == 0 and "would be pruned" in found.output and len(only(folder).segments) == 4
    found = run("prune", folder, "--keep", "30d", "--format", "json")
    (entry,) = json.loads(found.stdout)["pruned"]
    assert (entry["files"], entry["writer"]) == (3, "a") and entry["horizon_us"] < 5 * DAY
    assert [s.pruned for s in only(folder).segments] == [True, False]
    assert "no finished file is older than --keep" in run("prune", folder, "--keep", "30d").output
    checked = run("check", folder)
    assert checked.exit_code == 2 and "1970-01" in checked.output, "not sealed, and not damaged"
    assert not [p for p in folder.iterdir() if p.name.endswith(".part")]


def test_prune_keeps_what_is_damaged_unless_told(folder: Path) -> None:
    path = only(folder).segments[1].path
    path.write_bytes(path.read_bytes().replace(b'"kind":"dequeue"', b'"kind":"dequ', 1))
    found = run("prune", folder, "--keep", "30d")
    assert found.exit_code == 1 and "cannot be read" in found.stderr and len(only(folder).segments) == 4
    assert run("prune", folder, "--keep", "30d", "--damaged").exit_code == 0
    assert run("check", folder).exit_code == 2


@pytest.mark.parametrize("command", [("compact",), ("prune", "--keep", "30d")])
def test_a_disk_that_refuses_is_one_line(
    folder: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    one_line(run(command[0], folder, *command[1:]), 3, "No space left on device")
    assert [s.form for s in only(folder).segments] == [JSONL] * 4 and not list(folder.glob("*.part"))


def test_without_pyarrow_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("compact", folder)
    monkeypatch.setitem(sys.modules, "pyarrow.json", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    one_line(run("compact", folder), 3, "pip install 'understudy-amqp[spark]'")
    one_line(run("check", folder), 3, "pip install 'understudy-amqp[spark]'")


def convert(*arguments: object) -> Result:
    return run("convert", *arguments, "--writer", "billing", "--role", "consumer", "--format", "csv")


def test_convert_makes_a_ledger_that_checks(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("when,id,tag\n" + "".join(f"{n},{'ab' * 16}:7:{n},1\n" for n in range(1, 100)))
    done = convert(log, "--columns", "time=when", "--time", "s", "--out", tmp_path / "out")
    assert done.exit_code == 0 and "99 rows became 101 records" in done.output
    assert run("check", tmp_path / "out").exit_code == 0
    one_line(
        convert(log, "--columns", "time=when", "--time", "s", "--out", tmp_path / "out"), 3, "File exists"
    )


def test_convert_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    one_line(convert(log), 3, "No such file")
    log.write_text("when,id\nnoon,x\n")
    one_line(convert(log), 3, "no column for time")
    one_line(convert(log, "--columns", "colour=when"), 3, "not WHAT=COLUMN")
    one_line(convert(log, "--columns", "time"), 3, "not WHAT=COLUMN")
    one_line(convert(log, "--columns", "time=where", "--out", tmp_path), 1, "there is no column 'where'")
    one_line(convert(log, "--columns", "time=when", "--out", tmp_path), 1, f"{log}:2: time 'noon'")
    log.write_text("time,id\n1\n")
    one_line(convert(log, "--time", "s", "--out", tmp_path), 1, f"{log}:2: id ''")
    log.write_bytes(b"time,id\n\xff\xfe,1\n")
    one_line(convert(log, "--out", tmp_path), 1, "decode")
    (tmp_path / "file").write_text("x")
    log.write_text(f"time,id\n1,{'ab' * 16}:1:1\n")
    one_line(convert(log, "--time", "s", "--out", tmp_path / "file"), 3, "cannot open ledger")
