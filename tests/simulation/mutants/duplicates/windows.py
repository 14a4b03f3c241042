"""Mutants of windows of ids: that are noted too late, forgotten, or told to nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from broker.model.history.recent_ids import RecentIds
from broker.model.history.records import IdsNoted
from broker.model.values import Need
from broker.model.vhost import applying as applying_module
from broker.model.vhost import enqueueing as enqueueing_module
from broker.model.vhost.enqueueing import Enqueueing
from broker.model.vhost.vhosts import VirtualHosts
from ha.adapter import primary_vhost as primary_module
from tests.simulation.mutants.mutant import Mutant, Patch, never


def _nothing(original: Any) -> Any:
    return lambda self: iter(())


def _told_to_nobody(records_of: Any) -> Any:
    def broken(*args: Any) -> Iterator[Any]:
        return iter(())

    return broken


def _without_history(note: Any) -> Any:
    def broken(queue: Any, keys: Any, wall_ms: int, scope: Any, history: Any) -> None:
        note(queue, keys, wall_ms, type(scope)(0), history)

    return broken


def _never_too_old(take: Callable[[Any, IdsNoted], None]) -> Any:
    def broken(queue: Any, record: IdsNoted) -> None:
        take(queue, IdsNoted(record.queue, record.first, 1, record.wall_ms, record.keys, record.scope))

    return broken


def _at_once(publish_again: Any) -> Any:
    return lambda self, *args: publish_again(self, *args)._replace(need=Need.NONE)


def _not_within_a_run(known_in: Any) -> Any:
    def broken(self: RecentIds, keys: Sequence[bytes | None], *more: Any) -> set[int]:
        return {at for at in known_in(self, keys, *more) if keys[at] in self._ids}

    return broken


MUTANTS = (
    Mutant(
        "forget ids in a base",
        "A node reads its store, and knows only the ids of its newest segment.",
        (24,),
        (Patch(VirtualHosts, "stored_ids", _nothing),),
    ),
    Mutant(
        "tell a joiner no ids",
        "A node joins, is promoted, and takes again what its primary had.",
        (24,),
        (Patch(primary_module, "records_of", _told_to_nobody),),
    ),
    Mutant(
        "note ids without history",
        "Only the primary knows which ids its queues took.",
        (24,),
        (Patch(enqueueing_module, "note", _without_history),),
    ),
    Mutant(
        "follow without forgetting ids",
        "A backup does not heed what the primary says is too old, and grows for ever.",
        (24,),
        (Patch(applying_module, "take_noted", _never_too_old),),
    ),
    Mutant(
        "know no id of the same run",
        "Two messages of one id in one read are both taken.",
        (24,),
        (Patch(RecentIds, "known_in", _not_within_a_run),),
    ),
    Mutant(
        "note what a queue took too late",
        "The ids of a run are noted nowhere.",
        (24,),
        (Patch(Enqueueing, "_note_ids", never),),
    ),
)
