"""Mutants of the levels of confirms: what is confirmed before all disks have it, and who says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker.model.history.completion import Completion
from broker.model.values import Need, Position
from ha.core.primary.confirm_terms import ConfirmTerms
from ha.core.record.in_sync_record import InSyncRecord
from tests.simulation.mutants.mutant import Mutant, Patch


def _without_the_own_disk(reached: Any) -> Any:
    def broken(self: Completion, position: Position, need: Need) -> Any:
        return reached(self, position, Need.APPLIED if need is Need.OWN_DISK else need)

    return broken


def _before_the_commit(floor: Any) -> Any:
    def broken(self: ConfirmTerms, wanted: Need, *, in_sync: bool) -> Any:
        self.granted, granted = wanted, self.granted
        found = floor(self, wanted, in_sync=in_sync)
        self.granted = granted
        return found

    return broken


def _alone_too(floor: Any) -> Any:
    return lambda self, wanted, *, in_sync: floor(self, wanted, in_sync=True)


def _before_the_disks(due: Any) -> Any:
    return lambda self, wanted, durable, now: due(self, wanted, self.since, now)


def _forgotten(promoted: Any) -> Any:
    def broken(self: InSyncRecord, *args: Any) -> Any:
        return replace(promoted(self, *args), confirm="all-disks")

    return broken


MUTANTS = (
    Mutant(
        "under primary-disk confirm before the primary's disk",
        "The primary confirms what is in memory only, on itself and on its backups.",
        (2, 5),
        (Patch(Completion, "reached", _without_the_own_disk),),
        because="A confirm of several messages covers older ones that are not on the disk.",
    ),
    Mutant(
        "confirm by a level that the record does not have yet",
        "A policy weakens the level, and confirms go by it before anybody else can know.",
        (2, 5),
        (Patch(ConfirmTerms, "floor", _before_the_commit),),
        because="A confirm of several messages covers older ones, too.",
    ),
    Mutant(
        "under all-memory confirm alone what is on no disk",
        "A primary without a backup in sync confirms what it has in memory, as if there were another copy.",
        (2, 5),
        (Patch(ConfirmTerms, "floor", _alone_too),),
        because="A confirm of several messages covers older ones, too.",
    ),
    Mutant(
        "raise the level in the record before the disks have all",
        "The record says that disks have what was confirmed by the weaker level before, and they do not.",
        (4,),
        (Patch(ConfirmTerms, "due", _before_the_disks),),
    ),
    Mutant(
        "forget the level at a promotion",
        "The record of the new epoch says that disks have what the old primary confirmed by a weaker level.",
        (4,),
        (Patch(InSyncRecord, "promoted", _forgotten),),
    ),
)
