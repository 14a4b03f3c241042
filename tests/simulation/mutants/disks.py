"""Mutants of the store and of what a node believes of its own disk after a restart."""

from __future__ import annotations

from typing import Any

from broker.store.segment_log import SegmentLog
from broker.store.store import SegmentStore
from tests.simulation.mutants.mutant import Mutant, Patch


def _durable_when_written(write_group: Any) -> Any:
    def broken(self: SegmentStore) -> Any:
        written = write_group(self)
        if self._in_flight is not None:
            self._durable, self._synced = self._in_flight
        return written

    return broken


def _but_the_last_batch(segment: Any) -> Any:
    def broken(self: SegmentLog, number: int, header: Any, last: bool) -> Any:
        found = list(segment(self, number, header, last))
        return iter([*found[:-2], found[-1]])

    return broken


MUTANTS = (
    Mutant(
        "call written what is not synced",
        "The store reports a batch as durable when the kernel has it, and not when the disk has it.",
        (2,),
        (Patch(SegmentStore, "write_group", _durable_when_written),),
    ),
    Mutant(
        "recover all but the last batch",
        "Recovery takes the last whole batch of a segment for a torn one.",
        (4,),
        (Patch(SegmentLog, "_segment", _but_the_last_batch),),
    ),
)
