"""Ledgers that may not be read are not passed over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from understudy.cli.main import cli, run
from understudy.ledger.writer import LedgerWriter


def _code(arguments: list[str]) -> int:
    try:
        return run(cli.main, arguments)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("mine", "others"):
        LedgerWriter(str(tmp_path / name), name, "producer", incarnation=1).close()
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [["reconcile"], ["report"], ["watch", "--once"], ["ledger", "check"]],
)
@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_ledger_that_may_not_be_read_ends_the_command(
    command: list[str], what: str, folder: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """As for a user who is not root, whom nothing is kept from."""
    scandir, access = os.scandir, os.access
    closed = str(folder / "others" if what == "folder" else next((folder / "others").iterdir()))

    def refusing(path: Any = ".") -> Any:
        if str(path) == closed:
            raise PermissionError(13, "Permission denied", closed)
        return scandir(path)

    monkeypatch.setattr("os.scandir", refusing)
    monkeypatch.setattr("os.access", lambda path, *_, **__: str(path) != closed and access(path, *_))
    monkeypatch.setattr("understudy.cli.watch._hold_signals", lambda: None)
    assert _code([*command, str(folder)]) == 3
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"understudy {command[0]}: cannot read {closed}: Permission denied\n")
