"""Recovery: reads a node's store into its virtual hosts at start, and gives the store what it must know
besides messages.

Node.start calls `recover` once, before it serves or joins. `Bases` is used then, and whenever the store
begins a new segment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.model.history.record_codec import encode_record
from broker.model.values import ORIGIN, Position, Scope
from broker.model.vhost.vhosts import VirtualHosts
from broker.store.store import Base
from ha.adapter import codes
from understudy.shared.codes import Coded

if TYPE_CHECKING:
    from broker.paging import Paging
    from broker.store.store import Store


LONG = 256 << 20
"""Bytes of a store from which on its reading is reported."""
_STEPS = 10
_RELIEF = 16 << 20
"""Bytes read between two looks whether there is too much in memory."""


def recover(
    store: Store, vhosts: VirtualHosts, log: Callable[[Coded], None], paging: Paging | None = None
) -> Position:
    """Replay. The position of the last batch on disk. StoreError if the store is damaged."""
    last, told, relieved = ORIGIN, 0, 0
    for position, records in store.recover():
        for record in records:
            vhosts.apply(record)
        last = max(last, position)
        done, total = store.progress
        if paging is not None and done - relieved > _RELIEF:
            relieved = done
            paging.relieve(vhosts)
        if total >= LONG and done * _STEPS // total > told:
            told = done * _STEPS // total
            log(codes.STORE_READING.say(done=done >> 20, total=total >> 20))
    for notice in store.notices:
        log(codes.STORE_REPAIRED.say(notice=notice))
    return last


class Bases:
    """What the store must know besides messages, as of the call. Owner: Node.

    Definitions are encoded again only when they have changed: with ten thousand queues that takes long.
    """

    def __init__(self, vhosts: VirtualHosts) -> None:
        self._vhosts = vhosts
        self._generation = (-1, -1)
        self._definitions: list[bytes] = []

    def __call__(self) -> Base:
        vhosts = self._vhosts
        generation = vhosts.generation, vhosts.directory.progress_changes
        if generation != self._generation:
            self._definitions = [encode_record(record) for record in vhosts.definitions(Scope.STORE)]
            self._generation = generation
        ends = [encode_record(record) for record in vhosts.ends(Scope.STORE) if record.ends]
        marks = [encode_record(record) for record in vhosts.stored_marks()]
        ids = [encode_record(record) for record in vhosts.stored_ids()]
        return Base([*self._definitions, *ends, *marks, *ids], vhosts.queues_by_uuid.keys())
