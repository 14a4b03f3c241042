"""Mutants of what history remembers of itself: an old copy that returns is judged by it."""

from __future__ import annotations

from typing import Any

from broker.model.history.epoch_ends import DeletedQueues, EpochEnd, EpochEnds
from broker.model.history.record_codec import decode_records
from broker.model.history.records import Entry, QueueEnds
from broker.model.queue import contents as queue_contents
from broker.model.vhost.vhosts import VirtualHosts
from broker.store.store import Base
from ha.adapter.quarantine import Quarantine
from ha.adapter.recovery import Bases
from ha.adapter.replica.still_to_come import StillToCome
from tests.simulation.mutants.mutant import Mutant, Patch, never


def _none(ends: Any) -> Any:
    return lambda self, scope: []


def _whatever_is_held(after_history_checkpoint: Any) -> Any:
    def broken(ends: EpochEnds, held: Any, epoch: int) -> EpochEnds:
        return {number: end for number, end in ends.items() if number >= epoch}

    return broken


def _too_far(had: Any) -> Any:
    def broken(self: EpochEnd) -> Any:
        ids = had(self)
        ids.add_range(self.last + 1, self.last + 5)
        return ids

    return broken


def _the_newest_of_all(export: Any) -> Any:
    """Each line has its own id."""

    def broken(self: Quarantine, queue: bytes, name: str, entries: list[Entry], *vhost: str) -> str:
        raw = entries[-1][2]
        path: str = export(self, queue, name, [(seq, env, raw) for seq, env, _ in entries], *vhost)
        return path

    return broken


def _without_ends(call: Any) -> Any:
    def broken(self: Bases) -> Base:
        base: Base = call(self)
        kept = [raw for raw in base.records if not isinstance(decode_records(raw)[0], QueueEnds)]
        return Base(kept, base.queues)

    return broken


MUTANTS = (
    Mutant(
        "leave no tombstone of a deleted queue",
        "What a node held of a queue that was deleted while it was away goes to quarantine, for no need.",
        (15,),
        (Patch(DeletedQueues, "add", never),),
    ),
    Mutant(
        "tell a joiner nothing of the past",
        "A joiner judges what it holds by its own past: what only it ever had is not exported.",
        (15,),
        (Patch(VirtualHosts, "ends", _none),),
    ),
    Mutant(
        "remember more than there was",
        "What only an old primary ever had counts as part of history, and is dropped unexported.",
        (15,),
        (Patch(EpochEnd, "had", _too_far),),
    ),
    Mutant(
        "forget an epoch that still has messages",
        "Its messages are consumed while a backup is away; it exports them when it returns, for no need.",
        (15,),
        (Patch(queue_contents, "after_history_checkpoint", _whatever_is_held),),
    ),
    Mutant(
        "begin a segment without the ends of history",
        "When the older segments are given back, a start does not know any more what its queues ever had.",
        (15,),
        (Patch(Bases, "__call__", _without_ends),),
    ),
    Mutant(
        "export one message for all",
        "The quarantine has the right ids, and under each of them the body of the last message.",
        (15,),
        (Patch(Quarantine, "export", _the_newest_of_all),),
    ),
    Mutant(
        "lack for ever what a deleted queue still had to bring",
        "A backup of which a queue was deleted while it came would export what history has consumed of it.",
        (13, 14),
        (Patch(StillToCome, "all_here", lambda original: lambda self, deleted_queues: []),),
        because="14 where the backup was primary before.",
    ),
)
