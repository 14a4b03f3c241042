"""Mutants of the store and of what a node believes of its own disk after a restart."""

from __future__ import annotations

from typing import Any

from broker.model.history.records import Dequeue
from broker.store import store as store_module
from broker.store.segment_format import FrameHead
from broker.store.segment_log import SegmentLog
from broker.store.segment_reader import SegmentReader
from broker.store.store import SegmentStore
from tests.simulation.mutants.mutant import Mutant, Patch


def _durable_when_written(write_group: Any) -> Any:
    def broken(self: SegmentStore) -> Any:
        written = write_group(self)
        if self._in_flight is not None:
            self._durable, self._synced = self._in_flight
        return written

    return broken


def _but_the_last_batch(batches: Any) -> Any:
    def broken(self: SegmentReader, number: int, header: Any, **how: bool) -> Any:
        found = list(batches(self, number, header, **how))
        return iter([*found[:-2], found[-1]])

    return broken


def _one_too_many(retain: Any) -> Any:
    def broken(self: SegmentLog, numbers: set[int]) -> None:
        retain(self, set(numbers) - {min(numbers)} if len(numbers) > 1 else numbers)

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


def _long_enough(fits: Any) -> Any:
    return lambda self, payload, seed: len(payload) == self.length


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
        (Patch(SegmentReader, "batches", _but_the_last_batch),),
    ),
    Mutant(
        "recover what was dequeued",
        "Recovery replays the messages of the log, and not what has left the queues since.",
        (12, 15, 22),
        (Patch(store_module, "decode_records", _but_dequeues),),
        because="They are delivered again (22); but who has them depends on the order of starts (12), and an "
        "old primary that rejoins exports them (15), which is seen first.",
    ),
    Mutant(
        "give back a segment that is needed",
        "The oldest segment is taken for empty, and its messages are gone after the next start.",
        (2, 4),
        (Patch(SegmentLog, "retain", _one_too_many),),
        because="Whichever looks first: at the next confirm, or at the next change of the record.",
    ),
    Mutant(
        "go on after a failed sync",
        "A sync that failed is tried again and succeeds, and the pages that it lost stay lost (fsyncgate).",
        (25,),
        (Patch(SegmentLog, "sync", _go_on),),
    ),
    Mutant(
        "read a segment whatever its checksums say",
        "A bit that rots in a stored message is served, and sent to whoever joins.",
        (25,),
        (Patch(FrameHead, "fits_payload", _long_enough),),
    ),
)
