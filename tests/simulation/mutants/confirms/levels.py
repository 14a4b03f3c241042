"""Mutants of the levels of confirms. Those of the record are in `ha/replication/test_confirm_levels.py`."""

from __future__ import annotations

from typing import Any

from broker.model.history.completion import Completion
from broker.model.values import Need, Position
from ha.core.primary.confirm_terms import ConfirmTerms
from tests.simulation.mutants.mutant import Mutant, Patch


def _without_the_own_disk(reached: Any) -> Any:
    def broken(self: Completion, position: Position, need: Need) -> Any:
        return reached(self, position, Need.APPLIED if need is Need.OWN_DISK else need)

    return broken


def _alone_too(floor: Any) -> Any:
    return lambda self, wanted, *, in_sync: floor(self, wanted, in_sync=True)


MUTANTS = (
    Mutant(
        "under primary-disk confirm before the primary's disk",
        "The primary confirms what is in memory only, on itself and on its backups.",
        (2, 5),
        (Patch(Completion, "reached", _without_the_own_disk),),
        because="A confirm of several messages covers older ones that are not on the disk.",
    ),
    Mutant(
        "under all-memory confirm alone what is on no disk",
        "A primary without a backup in sync confirms what it has in memory, as if there were another copy.",
        (2, 5),
        (Patch(ConfirmTerms, "floor", _alone_too),),
        because="A confirm of several messages covers older ones, too.",
    ),
)
