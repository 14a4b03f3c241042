"""Mutants of users and permissions: their way to the backup, to the disk, and to who asked for them."""

from __future__ import annotations

from typing import Any

from broker.model.history.completion import Completion
from broker.model.history.records import EntryDelete, EntryPut, Record
from broker.model.values import Scope
from broker.model.vhost.vhosts import VirtualHosts
from ha.adapter.management.directory_changes import DirectoryChanges
from ha.adapter.replica.vhost import ReplicaVhost
from tests.simulation.mutants.mutant import Mutant, Patch


def _all_stay(stale: Any) -> Any:
    def broken(self: ReplicaVhost, *args: Any) -> list[Record]:
        return [record for record in stale(self, *args) if not isinstance(record, EntryDelete)]

    return broken


def _at_once(end_tick: Any) -> Any:
    def broken(self: DirectoryChanges) -> None:
        reached, Completion.reached = Completion.reached, lambda *args, **more: True  # type: ignore[method-assign]
        try:
            end_tick(self)
        finally:
            Completion.reached = reached  # type: ignore[method-assign]

    return broken


def _not_in_a_base(definitions: Any) -> Any:
    def broken(self: VirtualHosts, scope: Scope | None = None) -> list[Record]:
        found = definitions(self, scope)
        return [r for r in found if not isinstance(r, EntryPut)] if scope is Scope.STORE else found

    return broken


MUTANTS = (
    Mutant(
        "deleted_users_return",
        "a node that joins keeps the users that the primary has deleted since: they log in again after the "
        "next failover.",
        (6, 13, 14),
        (Patch(ReplicaVhost, "_stale", _all_stay),),
        "whichever comes first of a promotion and of a look at rest",
    ),
    Mutant(
        "users_answered_at_once",
        "a change of users is answered before the backup has it, and is gone with the primary.",
        (6,),
        (Patch(DirectoryChanges, "end_tick", _at_once),),
    ),
    Mutant(
        "users_not_in_a_base",
        "a new segment does not begin with the users: they are gone with the segment that had them.",
        (6, 19),
        (Patch(VirtualHosts, "definitions", _not_in_a_base),),
        "whichever comes first of a cold start and of a look at the disk at rest",
    ),
)
