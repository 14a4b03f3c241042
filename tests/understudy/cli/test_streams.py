"""Standard streams that are closed, or cannot encode what is to be said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.understudy.serving import PATIENCE

_COMMAND = 'exec "$0" -m understudy "$@" '


def _run(closed: str, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        ["sh", "-c", _COMMAND + closed, sys.executable, *arguments],
        capture_output=True, text=True, timeout=PATIENCE, env=env, errors="surrogateescape",
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("closed", "said"), [(">&-", ""), ("2>&-", "version"), (">&- 2>&-", ""), ("<&- >&- 2>&-", "")]
)
def test_a_command_whose_output_nobody_takes_is_done_all_the_same(closed: str, said: str) -> None:
    code, out, err = _run(closed, "--version")
    assert (code, err) == (0, "")
    assert said in out


def test_a_password_from_an_input_that_is_closed_is_none() -> None:
    assert _run("<&-", "passwd", "joe", "--stdin") == (2, "", "understudy: the password is empty\n")


def test_definitions_from_an_input_that_is_closed_are_none() -> None:
    code, out, err = _run("<&-", "definitions", "import", "-", "-b", "127.0.0.1:1")
    assert (code, out) == (2, "")
    assert err.startswith("understudy: -: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_cannot_be_encoded_is_escaped(encoding: str, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"gr\xc3\xbc\xc3\x9fe \xff \xe2\x82\xac")
    (folder / "quarantine").mkdir(parents=True)
    (folder / "node.json").write_text("{}")
    env = os.environ | {"PYTHONIOENCODING": encoding}
    code, out, err = _run("", "quarantine", "list", "-d", str(folder), env=env)
    assert (code, err) == (0, "")
    assert out.startswith("nothing in quarantine in ")
