"""Three rounds of faults on three real nodes under load; `make soak` plays a hundred.

Each confirmed body must come to a consumer, and the ledgers of all nodes and clients must prove it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.failover.soak.faults import CUTS
from tests.failover.soak.rounds import Options, Rounds, table
from tests.failover.test_demo import children_of

KILL_FREEZE_CUT = ("kill-primary", "freeze-primary", "cut-link")


@pytest.mark.system
def test_a_kill_a_freeze_and_a_cut_link_lose_nothing(
    tmp_path: Path, seed: int, judge: Callable[..., dict[str, Any]]
) -> None:
    lines: list[str] = []
    options = Options(3, seed, KILL_FREEZE_CUT, nodes=3, folder=tmp_path)
    try:
        outcome = Rounds(options, lines.append, judge).run()
    finally:
        print("\n".join(lines))
    print("\n".join(table(outcome)))
    assert [each.fault for each in outcome.rounds] == list(KILL_FREEZE_CUT)
    assert outcome.rounds[0].promoted in ("b", "c")
    assert outcome.rounds[1].promoted in {"a", "b", "c"} - {outcome.rounds[0].promoted}
    assert len(set(outcome.cuts)) == CUTS, "each time after another number of bytes"
    assert outcome.confirmed > 0
    assert (outcome.missing, outcome.verdicts) == (0, ["proven"])


def test_terminated_rounds_say_so_and_leave_no_process_behind(tmp_path: Path) -> None:
    command = ["--rounds", "50", "--faults", "kill-backup", "--namespaces", "no", "--folder", str(tmp_path)]
    rounds = subprocess.Popen(
        [sys.executable, "-m", "tests.failover.soak.rounds", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert rounds.stdout is not None
        for line in rounds.stdout:
            if "kill-backup" in line:
                break
        children = children_of(rounds.pid)
        assert children
        rounds.send_signal(signal.SIGTERM)
        out, errors = rounds.communicate(timeout=60)
        assert (rounds.returncode, errors.strip()) == (1, "rounds: interrupted")
        assert "of 50 rounds" in out
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    finally:
        rounds.kill()
        rounds.wait()
