"""The phases of a backup, as its primary sees it: each move by the table, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.model.values import ORIGIN
from ha.core.errors import IllegalTransition
from ha.core.primary.remote_backup import PHASES, Phase, RemoteBackup
from ha.core.record.in_sync_record import Incarnation

MOVES: dict[Phase, Callable[[RemoteBackup], object]] = {
    Phase.ASKED: lambda backup: backup.linked(7, 1.0),
    Phase.WAITING: lambda backup: backup.admitted(0.0),
    Phase.CATCHING: lambda backup: backup.begins(ORIGIN, iter(()), 1.0),
    Phase.GUARDED: lambda backup: backup.guarded(ORIGIN, 1.0),
    Phase.INCLUDING: RemoteBackup.including,
    Phase.COMMITTED: RemoteBackup.committed,
    Phase.IN_SYNC: lambda backup: backup.in_sync(1.0),
    Phase.LOST: lambda backup: backup.lost(1.0),
    Phase.LEAVING: RemoteBackup.leaving,
}
STALLED = (Phase.GUARDED, Phase.CATCHING)


@pytest.mark.parametrize("before", Phase)
def test_each_move_is_in_the_table_or_is_refused(before: Phase) -> None:
    for after, move in MOVES.items():
        backup = RemoteBackup(Incarnation("b", 1), "b", 7, 0.0)
        backup.phase = before
        if after in PHASES[before] and (before, after) != STALLED:
            move(backup)
            assert backup.phase is after
        elif after not in PHASES[before]:
            with pytest.raises(IllegalTransition, match=rf"{before.value} -> {after.value}"):
                move(backup)
            assert backup.phase is before


def test_one_that_stalls_goes_on_catching_up_unguarded() -> None:
    backup = RemoteBackup(Incarnation("b", 1), "b", 7, 0.0)
    for phase in (Phase.WAITING, Phase.CATCHING, Phase.GUARDED):
        MOVES[phase](backup)
    assert backup.guard is not None
    backup.stalled()
    assert backup.phase is Phase.CATCHING and backup.guard is None
    assert not backup.paid_up, "before it has got to where it was guarded"


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "replication.md").read_text()
    for phase, targets in PHASES.items():
        after = ", ".join(target.value for target in Phase if target in targets) or "-"
        assert f"\n| {phase.value} | {after} | " in page


def test_every_phase_leads_to_an_end() -> None:
    ends = {Phase.IN_SYNC, Phase.LEAVING}
    for begin in Phase:
        reached, found = {begin}, [begin]
        while found:
            found = [after for after in PHASES[found.pop()] if after not in reached] + found
            reached |= set(found)
        assert reached & ends, begin
    assert set(PHASES) == set(Phase)
