"""Mutants of epochs: minted twice, on two nodes, or going back.

Queue and store refuse to serve in an epoch that they have seen; where that would only turn the bug into a
crash, the refusals are taken away too, so that the checkers are on their own.
"""

from __future__ import annotations

from typing import Any

from broker.model.queue.contents import QueueContents
from broker.store.store import SegmentStore
from ha.core.election.manual import ManualAuthority
from ha.core.record.in_sync_record import EPOCH_STEP
from tests.simulation.mutants.mutant import Mutant, Patch, never


def _take_older_positions(append: Any) -> Any:
    return lambda self, position, *what: append(self, max(position, self._last), *what)


def _mint_the_same_epoch(mint: Any) -> Any:
    return lambda self, me, seen: EPOCH_STEP + 1


def _mint_without_counting(mint: Any) -> Any:
    return lambda self, me, seen: EPOCH_STEP + me.number


_UNGUARDED = (
    Patch(QueueContents, "check_may_serve", never),
    Patch(SegmentStore, "append", _take_older_positions),
)

MUTANTS = (
    Mutant(
        "mint one epoch on both nodes",
        "Each node counts promotions by itself, so that two of them serve under one number.",
        (8,),
        (Patch(ManualAuthority, "mint", _mint_the_same_epoch), *_UNGUARDED),
    ),
    Mutant(
        "mint an epoch again",
        "A node that was promoted before takes the number that it had then.",
        (9,),
        (Patch(ManualAuthority, "mint", _mint_without_counting), *_UNGUARDED),
    ),
)
