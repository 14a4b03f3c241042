"""Each transcript says what happens, in words. Set REWRITE_TRANSCRIPTS=1 to write down what happens now;
then read it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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
}  # fmt: skip
"""What is known to break brokers of this kind; replication/test_cuts.py cuts a join at every byte."""
ROLES = {"join", "catch_up", "guard", "failover", "rejoin", "stale_primary", "forced", "recovering"}


def transcripts() -> list[Path]:
    return sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def pending() -> list[Path]:
    """Stories of the same kind that need a part which is not built; not played."""
    return sorted((Path(__file__).parent / "transcripts" / "pending").glob("*.txt"))


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


# -- stories that wait for a part


MISSING: dict[str, Callable[[], bool]] = {}
"""Per part: whether it is still missing. One that is there has stories to be told."""
UNTESTED = {"producer ids"}
"""Parts of which nothing here could tell that they are there."""


def test_pending_stories_are_counted_and_their_parts_are_still_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = []
    for path in pending():
        words = {line.split(":")[0]: line.split(": ", 1)[-1] for line in path.read_text().splitlines()}
        needs = words["# Needs"]
        assert words["# Holds"] and "----" in words, path.stem
        assert needs in UNTESTED or MISSING[needs](), f"{needs} are there: move {path.stem}, and play it"
        lines.append(f"  {path.stem}: waits for {needs}, to hold {words['# Holds']}")
    assert len(lines) >= 1
    with capsys.disabled():
        print(f"\n{len(lines)} stories pending, not played:", *lines, sep="\n")
