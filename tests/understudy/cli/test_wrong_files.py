"""Loops of links, links to nothing, folders, pipes and octets that are no text, where a file or a folder is
to be: one line that names it, and the code of a wrong file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.understudy.serving import PATIENCE, serving
from understudy.cli.main import cli, run
from understudy.ledger.writer import LedgerWriter

LOOP = "Too many levels of symbolic links"
NOT_UTF8 = os.fsdecode(b"caf\xe9")
LIMITED = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
LIMITED += "sys.argv[0] = 'understudy'; runpy.run_module('understudy', run_name='__main__')"
"""A command that cannot write to any file, whose error names none."""


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    try:
        code = run(cli.main, [str(each) for each in arguments])
    except SystemExit as end:
        assert isinstance(end.code, int)
        code = end.code
    out, err = capsys.readouterr()
    assert out == ""
    return code, err


def limited(*arguments: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, arguments)], capture_output=True, text=True,
        timeout=PATIENCE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").write_text("x")
    return tmp_path


def why(place: Path, what: str) -> str:
    """What is said of `loop`, `dangling`, `file` where a folder is to be."""
    reason = {
        "loop": LOOP, "file": "Not a directory",
        "dangling": "is a symbolic link to nowhere, which does not exist",
    }  # fmt: skip
    return f"{place / what}: {reason[what]}"


IN_THE_WAY = pytest.mark.parametrize("what", ["loop", "dangling", "file"])
BELOW = pytest.mark.parametrize("below", ["", "x"])


@IN_THE_WAY
@BELOW
def test_a_data_directory_that_cannot_be_one(
    what: str, below: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("serve", "--listen", "127.0.0.1:0", "--data-dir", place / what / below)
    text = f"understudy: broker.data_dir (command line): {why(place, what)} (config-invalid)\n"
    assert said(capsys, *arguments) == (2, text)


@IN_THE_WAY
@pytest.mark.parametrize("folder", ["ledger", "overflow"])
def test_a_folder_of_a_broker_that_cannot_be_one(
    what: str, folder: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = place / "data"
    data.mkdir()
    (data / folder).symlink_to(place / what)
    reason = {"loop": LOOP, "file": "Not a directory", "dangling": "which does not exist"}[what]
    code, text = said(capsys, "serve", "--listen", "127.0.0.1:0", "--data-dir", data, "--name", "a")
    assert code == 1
    assert str(data / folder) in text and reason in text
    assert "File exists" not in text and text.count("\n") == 1


def test_a_lock_that_is_a_folder_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = place / "data" / "lock"
    lock.mkdir(parents=True)
    code, text = said(capsys, "serve", "--listen", "127.0.0.1:0", "--data-dir", place / "data")
    sentence = f"cannot use data directory {place / 'data'}: {lock}: Is a directory"
    assert (code, text) == (1, f"understudy: {sentence} (store-unusable)\n")


@IN_THE_WAY
def test_a_folder_for_a_converted_ledger(what: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = place / "log.csv"
    log.write_text("time,event,session,tag\n2026-01-01T00:00:00Z,sent,a/1,1\n")
    given = ("ledger", "convert", log, "--writer", "w", "--role", "producer", "--format", "csv", "--out")
    code, text = said(capsys, *given, place / what)
    assert code == 3
    assert text.endswith(f": {why(place, what)}\n") and text.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [["reconcile"], ["report"], ["watch", "--once"], ["ledger", "check"]],
)
@pytest.mark.parametrize("what", ["loop", "dangling"])
@BELOW
def test_ledgers_in_no_folder(
    command: list[str], what: str, below: str, place: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("understudy.cli.watch._hold_signals", lambda: None)
    found, text = said(capsys, *command, place / what / below)
    assert found == 2
    assert text.endswith(f": {why(place, what)}\n") and text.count("\n") == 1


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("loop", LOOP), ("dangling", "No such file or directory"), ("folder", "Is a directory"),
        ("pipe", "neither a file nor a link to one"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "command",
    [["reconcile"], ["report"], ["watch", "--once"], ["ledger", "check"]],
)
def test_what_is_called_a_ledger_and_is_none_is_not_passed_over(
    command: list[str], what: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("understudy.cli.watch._hold_signals", lambda: None)
    LedgerWriter(str(tmp_path), "p", "producer", incarnation=1).close()
    wrong = tmp_path / "q-1-0.ledger.jsonl"
    match what:
        case "loop":
            wrong.symlink_to(wrong.name)
        case "dangling":
            wrong.symlink_to("nowhere")
        case "folder":
            wrong.mkdir()
        case _:
            os.mkfifo(wrong)
    text = f"understudy {command[0]}: cannot read {wrong}: {reason}\n"
    assert said(capsys, *command, tmp_path) == (3, text)


def test_a_loop_beside_ledgers_is_nothing_to_them(tmp_path: Path) -> None:
    LedgerWriter(str(tmp_path), "p", "producer", incarnation=1).close()
    (tmp_path / "loop").symlink_to("loop")
    done = CliRunner().invoke(cli, ["ledger", "check", str(tmp_path)])
    assert (done.exit_code, done.exception) == (0, None)


@pytest.mark.parametrize("what", ["loop", "dangling", "file"])
def test_a_checkpoint_that_cannot_be_one(what: str, place: Path) -> None:
    from spark.watch.checkpoint import Checkpoint, CheckpointError

    with pytest.raises(CheckpointError) as caught:
        Checkpoint(place / what)
    assert str(place / what) in str(caught.value) and "File exists" not in str(caught.value)


def test_a_cursor_that_is_no_number_is_named(tmp_path: Path) -> None:
    from spark.watch.checkpoint import CheckpointError, Cursor

    for octets in (b"\xff", b"two"):
        (tmp_path / "printed").write_bytes(octets)
        with pytest.raises(CheckpointError, match=f"cannot read {tmp_path}/printed: "):
            Cursor(tmp_path / "printed")


def test_errors_without_a_file_are_given_one(tmp_path: Path) -> None:
    ledgers = tmp_path / "ledgers"
    LedgerWriter(str(ledgers), "p", "producer", incarnation=1, clock=lambda: 1_700_000_000_000_000).close()
    part = ledgers / "p-1-0.ledger.parquet.part"
    big = "File too large"
    assert limited("ledger", "compact", ledgers) == (3, f"understudy ledger: compacting: {part}: {big}\n")
    code, text = limited("ledger", "prune", "--keep", "1s", ledgers)
    part = ledgers / "p-1-0.pruned.ledger.jsonl.part"
    assert (code, text) == (3, f"understudy ledger: pruning: {part}: {big}\n")
    assert [each.name for each in ledgers.iterdir()] == ["p-1-0.ledger.jsonl"]
    kept = tmp_path / "kept"
    code, text = limited("watch", "--once", ledgers, "--checkpoint", kept)
    assert (code, text) == (3, f"understudy watch: cannot write {kept}/watch: {big}\n")
    code, text = limited("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "data")
    assert (code, text.count("\n")) == (1, 1) and str(tmp_path / "data") in text


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """The data directory of a node, and a copy of it."""
    with serving(tmp_path / "data") as node:
        assert node.stop() == 0
    assert CliRunner().invoke(cli, ["backup", str(tmp_path / "data"), str(tmp_path / "copy")]).exit_code == 0
    yield tmp_path / "data", tmp_path / "copy"


def test_backup_and_restore_name_what_is_in_the_way(
    copied: tuple[Path, Path], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, copy = copied
    for what in ("loop", "file"):
        sentence = f"understudy: {why(place, what)}\n"
        for command, source in (("backup", data), ("restore", copy)):
            assert said(capsys, command, source, place / what / "x") == (2, sentence)
    assert said(capsys, "backup", data, place / "loop") == (2, f"understudy: {why(place, 'loop')}\n")
    assert said(capsys, "restore", copy, place / "loop") == (2, f"understudy: {why(place, 'loop')}\n")
    for command, code in (("backup", 2), ("restore", 1)):
        found, text = said(capsys, command, place / "loop", place / "new")
        assert (found, text.count("\n")) == (code, 1)
        assert str(place / "loop") in text and LOOP in text
    code, text = limited("backup", data, place / "full")
    assert (code, text.count("\n")) == (1, 1)
    assert f"{place / 'full'}.partial/store/" in text and "File too large" in text
    code, text = limited("restore", copy, place / "new")
    assert (code, text.count("\n")) == (1, 1) and f"{place / 'new'}/" in text
    (segment,) = (copy / "store").iterdir()
    segment.unlink()
    segment.mkdir()
    code, text = said(capsys, "restore", copy, place / "new")
    assert code == 1 and str(segment) in text and text.endswith("(archive-failed)\n")


def test_names_and_passwords_that_are_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    commands = (["status"], ["quarantine", "republish"])
    for command, option in product(commands, ("--user", "--password")):
        code, text = said(capsys, *command, "-b", "127.0.0.1:1", option, NOT_UTF8)
        assert (code, text.count("\n")) == (2, 1)
        assert option in text and "not UTF-8" in text and NOT_UTF8 not in text
    done = subprocess.run(
        [sys.executable, "-m", "understudy", "passwd", "joe", "--stdin"], input=b"caf\xe9\n",
        capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"understudy: the password is not UTF-8\n"


def test_an_export_leaves_a_loop_alone(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(place / "data") as node:
        found = said(capsys, "definitions", "export", place / "loop", "-b", node.amqp)
        assert node.stop() == 0
    assert found == (1, f"understudy: cannot write {place / 'loop'}: {LOOP} (file-unusable)\n")
    assert (place / "loop").is_symlink()
