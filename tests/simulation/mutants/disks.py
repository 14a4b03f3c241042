"""Mutants of the store and of what a node believes of its own disk after a restart."""

from __future__ import annotations

from typing import Any

from broker.model.records import Dequeue
from broker.store.segment_log import SegmentLog
from broker.store.store import SegmentStore
from ha.adapter import recovery
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


def _but_dequeues(decode: Any) -> Any:
    return lambda payload: [record for record in decode(payload) if not isinstance(record, Dequeue)]


def _go_on(sync: Any) -> Any:
    def broken(self: SegmentLog) -> None:
        try:
            sync(self)
        except OSError:
            pass

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
        (6,),
        (Patch(SegmentLog, "_segment", _but_the_last_batch),),
    ),
    Mutant(
        "recover what was dequeued",
        "Recovery replays the messages of the log, and not what has left the queues since.",
        (22,),
        (Patch(recovery, "decode_records", _but_dequeues),),
    ),
    Mutant(
        "go on after a failed sync",
        "A sync that failed is tried again and succeeds, and the pages that it lost stay lost (fsyncgate).",
        (25,),
        (Patch(SegmentLog, "sync", _go_on),),
    ),
)
