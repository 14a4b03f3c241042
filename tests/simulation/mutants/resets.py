"""Mutants of the queue that a backup cannot trust, and fetches again."""

from __future__ import annotations

from typing import Any

from ha.adapter.replica.vhost import ReplicaVhost
from ha.core.backup.backup import Backup
from ha.core.primary.primary import Primary
from ha.core.primary.remote_backup import Phase
from tests.simulation.mutants.mutant import Mutant, Patch


def _as_if_nothing_had_been(apply_batch: Any) -> Any:
    def broken(self: ReplicaVhost, *args: Any) -> Any:
        _, in_memory = apply_batch(self, *args)
        return [], in_memory

    return broken


def _not(resetting: Any) -> Any:
    return lambda self, replicator: False


def _whole_at_once(whole_again: Any) -> Any:
    def broken(self: Backup, replicator: Any, record: Any) -> None:
        replicator._awaited.clear()
        whole_again(self, replicator, record)

    return broken


def _only_for_joiners(flushes_all: Any) -> Any:
    def broken(self: Primary, now: float) -> Any:
        flushes_all(self, now)
        return self.drains or any(b.phase is Phase.WAITING or b.queue for b in self.backups.values())

    return broken


MUTANTS = (
    Mutant(
        "pass over what a queue cannot take",
        "A backup goes on without the event that failed, and acknowledges it: its copy lacks messages.",
        (2, 13),
        (Patch(ReplicaVhost, "apply_batch", _as_if_nothing_had_been),),
        because="Messages that are missing are 2, when they are confirmed; dequeues that are missing 13.",
    ),
    Mutant(
        "acknowledge while a queue is fetched again",
        "Confirms are released by a backup that has not got back what its queue lost.",
        (2,),
        (Patch(Backup, "_resetting", _not),),
    ),
    Mutant(
        "be ready before the queue is whole",
        "A backup counts as whole when it has asked for its queue again, and not when it has it.",
        (2, 4, 13),
        (Patch(Backup, "_whole_again", _whole_at_once),),
        because="It is ready, and acknowledges, in the same tick.",
    ),
    Mutant(
        "cut a consistency checkpoint while dequeues are gathered",
        "A point lists what no backup has been told of yet, and copies that are whole are fetched again.",
        (13,),
        (Patch(Primary, "flushes_all", _only_for_joiners),),
    ),
)
