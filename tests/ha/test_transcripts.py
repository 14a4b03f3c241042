"""Each transcript says what happens, in words. Set REWRITE_TRANSCRIPTS=1 to write down what happens now;
then read it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ha.transcript import Interpreter, transcripts


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    expected = path.read_text()
    played = Interpreter().play(expected)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(played)
        return
    assert played == expected


def test_there_are_transcripts_and_they_can_fail() -> None:
    names = {path.stem for path in transcripts()}
    assert {"join", "catch_up", "guard", "failover", "rejoin", "stale_primary"} <= names
    assert Interpreter().play("nodes 1\nstart a\n----\nwrong\n") != "nodes 1\nstart a\n----\nwrong\n"
