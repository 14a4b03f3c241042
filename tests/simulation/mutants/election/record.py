"""Mutants of the in-sync record and of those who wait for it: exclusion, inclusion, expected members."""

from __future__ import annotations

from typing import Any

from broker.model.values import FOREVER
from ha.adapter.effect_runner import EffectRunner
from ha.core.backup.broker_replicator import BrokerReplicator
from ha.core.effects import Effect, SaveRecord
from ha.core.election import peer_methods
from ha.core.primary.feeder import Feeder
from ha.core.primary.primary import Primary
from ha.core.primary.queue_guard import QueueGuard
from ha.core.primary.remote_backup import Phase, RemoteBackup
from ha.core.record.record_keeper import Commit, RecordKeeper
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning
from tests.simulation.mutants.mutant import Mutant, Patch


def _agreed(disagreement: Any) -> Any:
    return lambda peer, name, mine, theirs: None


def _but_for_the_lease(disagreement: Any) -> Any:
    def broken(peer: int, name: str, mine: Any, theirs: Any) -> Any:
        lease = [{key: each[key] for key in each if "lease" in key} for each in (mine, theirs)]
        return disagreement(peer, name, *lease)

    return broken


LATE = 0.02
"""Seconds by which a save comes after what it should have come before."""


def _forget_the_exclusion(done: Any) -> Any:
    def broken(self: RecordKeeper, commit: Commit, now: float) -> None:
        known = self._local.record
        if known is not None and len(commit.record.in_sync) < len(known.in_sync):
            self._commit, self._local.record = None, commit.record
            commit.done(now)
        else:
            done(self, commit, now)

    return broken


def _save_later(one: Any) -> Any:
    waiting: dict[EffectRunner, list[tuple[float, SaveRecord]]] = {}

    def broken(self: EffectRunner, effect: Effect, now: float) -> None:
        mine = waiting.setdefault(self, [])
        while mine and mine[0][0] <= now:
            one(self, mine.pop(0)[1], now)
        if isinstance(effect, SaveRecord):
            mine.append((now + LATE, effect))
        else:
            one(self, effect, now)

    return broken


def _hold_nothing(of_expected: Any) -> Any:
    return classmethod(lambda cls, epoch: cls(FOREVER))


def _save_and_be_silent(record: Any) -> Any:
    return lambda self, backups, committed: None


def _include_at_once(advance: Any) -> Any:
    def broken(self: Primary, backup: RemoteBackup, now: float) -> None:
        advance(self, backup, now)
        if backup.phase is Phase.GUARDED and not self._keeper.busy:
            self._include(backup, now)

    return broken


def _never_overdue(silent_since: Any) -> Any:
    return lambda self, tuning: self.last_ack + 1e6


def _go_on_alone(excluded: Any) -> Any:
    def broken(self: Primary, backup: RemoteBackup, why: str, now: float) -> None:
        excluded(self, backup, why, now)
        self._watermark.hold = None
        self._settle()

    return broken


def _begin_alone(init: Any) -> Any:
    """Only what it loses itself is missed."""

    def broken(self: Primary, me: OwnIdentity, tuning: Tuning, *args: Any) -> None:
        init(self, me, tuning, *args)
        if tuning.block_on_loss:
            self._watermark.hold = None
            self._settle()

    return broken


def _wants_no_number(wanted: Any) -> Any:
    return property(lambda self: 1 if self.block_on_loss else 0)


def _by_its_last_word(silent_since: Any) -> Any:
    return lambda self, tuning: self.last_ack


def _whatever_is_synced(complete: Any) -> Any:
    return property(lambda self: self.guard_mark is not None and not self._awaited)


MUTANTS = (
    Mutant(
        "release without recording",
        "The primary confirms alone, and the record still calls the dead backup a copy that may be promoted.",
        (3,),
        (Patch(RecordKeeper, "_done", _forget_the_exclusion),),
    ),
    Mutant(
        "release before the record is on disk",
        "The exclusion is on its way to the disk when the confirms that rest on it leave.",
        (3,),
        (Patch(EffectRunner, "_one", _save_later),),
    ),
    Mutant(
        "expect nobody",
        "A new primary does not wait for the members of the record that have not come back to it yet.",
        (2,),
        (Patch(QueueGuard, "of_expected", _hold_nothing),),
    ),
    Mutant(
        "never tell the joiner that it is in",
        "The inclusion is recorded, and the record is not sent to whom it includes.",
        (27,),
        (Patch(Feeder, "record", _save_and_be_silent),),
    ),
    Mutant(
        "include before the copy is whole",
        "The record names a joiner before it has acknowledged its guard and its snapshots.",
        (4,),
        (Patch(Primary, "_advance", _include_at_once),),
    ),
    Mutant(
        "never evict",
        "A backup that is silent, or whose disk stands still, holds all confirms for ever.",
        (26,),
        (Patch(RemoteBackup, "silent_since", _never_overdue),),
    ),
    Mutant(
        "evict for silence alone",
        "A backup that answers all the time, while its disk stands still, holds all confirms (26).",
        (26,),
        (Patch(RemoteBackup, "silent_since", _by_its_last_word),),
    ),
    Mutant(
        "call a snapshot whole before it is on disk",
        "A joiner is in the record by what it has in memory.",
        (4, 7),
        (Patch(BrokerReplicator, "complete", _whatever_is_synced),),
        because="4 of a message that its disk lacks, 7 of a transaction.",
    ),
    Mutant(
        "go on alone where the policy is to block",
        "The last backup is excluded, and confirms go on without one, though `ha.on_backup_loss` is block.",
        (26,),
        (Patch(Primary, "_excluded", _go_on_alone),),
    ),
    Mutant(
        "serve with fewer backups than wanted",
        "A primary confirms although fewer than `ha.min_backups` are in the record.",
        (26,),
        (Patch(Tuning, "wanted", _wants_no_number),),
    ),
    Mutant(
        "begin a reign alone where the policy is to block",
        "A primary that has just been promoted confirms alone, though `ha.on_backup_loss` is block, until it "
        "has had a backup and lost it.",
        (26,),
        (Patch(Primary, "__init__", _begin_alone),),
    ),
    Mutant(
        "join whoever serves, however it is configured",
        "A node with another lease, level or loss policy becomes a backup, and changes at the next failover "
        "what a confirm promises.",
        (4,),
        (Patch(peer_methods, "disagreement", _agreed),),
    ),
    Mutant(
        "compare nothing but the lease",
        "A node with another level or loss policy becomes a backup: only a lease that differs keeps it away.",
        (4,),
        (Patch(peer_methods, "disagreement", _but_for_the_lease),),
    ),
)
