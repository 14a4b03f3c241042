"""Each transcript says what happens, in words. Set REWRITE_TRANSCRIPTS=1 to write down what happens now;
then read it.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from ha.core.membership import TRANSITIONS, Status
from tests.builds import PURE_ONLY
from tests.ha.transcript import Interpreter

pytestmark = PURE_ONLY

STORIES = {
    "ids_issued_again", "frozen_primary", "dequeue_overtakes", "guard_before_snapshot", "ready_with_a_gap",
    "queue_made_again", "mid_confirm", "cold_start", "confirm_before_disk", "half_synced", "register_frozen",
    "resent_after_failover",
}  # fmt: skip
"""What is known to break brokers of this kind; replication/test_cuts.py cuts a join at every byte."""
ROLES = {"join", "catch_up", "guard", "failover", "rejoin", "stale_primary", "forced", "recovering"}


def transcripts() -> list[Path]:
    return sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@cache
def played(path: Path) -> tuple[str, set[tuple[Status, Status]]]:
    """What happens now, and the changes of status in it."""
    interpreter = Interpreter()
    return interpreter.play(path.read_text()), interpreter.changes


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    expected = path.read_text()
    now, _ = played(path)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(now)
        return
    assert now == expected


def test_there_are_transcripts_and_they_can_fail() -> None:
    names = {path.stem for path in transcripts()}
    assert names >= STORIES | ROLES
    assert all(path.read_text().startswith("# ") for path in transcripts())
    assert Interpreter().play("nodes 1\nstart a\n----\nwrong\n") != "nodes 1\nstart a\n----\nwrong\n"


def test_nothing_is_waited_for_in_vain() -> None:
    for path in transcripts():
        assert "in vain" not in path.read_text(), path.stem


def test_every_change_of_status_is_shown_in_a_transcript() -> None:
    shown = set().union(*(played(path)[1] for path in transcripts()))
    table = {(old, new) for old, targets in TRANSITIONS.items() for new in targets}
    assert shown == table
