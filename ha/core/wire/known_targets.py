"""KnownTargets: runs to many queues go over a link without the queues' ids and the messages' first ids.

A run that goes to many queues names each of them, and the id of its first message there: 24 octets a queue.
The next run mostly goes to the same queues, and its ids follow on from those before. So both ends of a link
remember the targets of such runs, each in a numbered slot, and a batch leaves out what the other end knows.
Only BATCH_OF_TARGETS reads or changes a slot. Batches of any other kind leave the ids of a slot as they
were, so the next run in it does not follow on, and is sent whole.

Owner: RemoteBackup at the primary, BrokerReplicator at the backup; one per link. Pure codec.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ha.core.errors import LinkError
from ha.core.wire.link import UUID, BatchHead, Frame, batch_parts, frame, parse_batch

WIDEST = 4096
"""Queues of one run whose targets are remembered, at most."""
SLOTS = 64
_COUNT = struct.Struct(">H")
_TARGETS = struct.Struct(">BBHIQ")
"""Slot, whether it is known, queues, messages of the run, and the offset of the targets in the records."""
_ID = 8
"""Octets of a first id in a record, the lowest first."""


class WideRun(NamedTuple):
    """A run to many queues: the index of its record in the batch, and where that has the targets."""

    record: int
    at: int
    queues: list[bytes]
    firsts: list[int]
    messages: int


class _Slot:
    """The queues of a run, and the id that the next message gets in each."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.following: list[int] = []


class _Place(NamedTuple):
    slot: int
    known: bool
    run: WideRun


class KnownTargets:
    """What a backup was told on this link."""

    def __init__(self) -> None:
        self._slots: dict[bytes, _Slot] = {}

    def clear(self) -> None:
        """A new link begins."""
        self._slots.clear()

    def batch(self, head: bytes, payload: list[bytes], runs: Sequence[WideRun]) -> list[bytes]:
        """The batch as parts of a frame. `head`: that of BATCH. `runs` is in the order of records."""
        places = [self._place(run) for run in runs]
        left_out = [
            (run.record, run.at, (UUID + _ID) * len(run.queues) if known else 0) for _, known, run in places
        ]
        offsets, parts = batch_parts(payload, left_out)
        told = [
            _TARGETS.pack(slot, known, len(run.queues), run.messages, offset)
            for (slot, known, run), offset in zip(places, offsets, strict=True)
        ]
        return frame(Frame.BATCH_OF_TARGETS, [head, _COUNT.pack(len(told)), *told, *parts])

    def _place(self, run: WideRun) -> _Place:
        queues = b"".join(run.queues)
        slot = self._slots.get(queues)
        known = slot is not None and slot.following == run.firsts
        if slot is None:
            slot = self._slots[queues] = self._free()
        slot.following = [first + run.messages for first in run.firsts]
        return _Place(slot.number, known, run)

    def _free(self) -> _Slot:
        """A new slot, or that of the targets which were remembered first."""
        if len(self._slots) < SLOTS:
            return _Slot(len(self._slots))
        return _Slot(self._slots.pop(next(iter(self._slots))).number)


class HeardTargets:
    """What the primary has told on this link."""

    def __init__(self) -> None:
        self._slots: dict[int, tuple[bytes, list[int]]] = {}

    def batch(self, body: bytes) -> BatchHead:
        """BATCH_OF_TARGETS, as BATCH would have been. LinkError for targets that were not told."""
        head = parse_batch(body)
        rest = head.payload
        if len(rest) < _COUNT.size or len(rest) < (
            base := _COUNT.size + _TARGETS.size * _COUNT.unpack_from(rest)[0]
        ):
            raise LinkError("a batch is too short for its list of targets")
        parts: list[bytes] = []
        done = base
        for slot, known, queues, messages, offset in _TARGETS.iter_unpack(rest[_COUNT.size : base]):
            at = base + offset
            if slot >= SLOTS or not queues <= WIDEST or not done <= at <= len(rest):
                raise LinkError(f"targets of slot {slot}, {queues} queues at {offset} of a batch")
            parts.append(rest[done:at])
            if known:
                parts.append(self._of(slot, queues))
                done = at
            else:
                done = self._told(slot, rest, at, queues)
                parts.append(rest[at:done])
            names, firsts = self._slots[slot]
            self._slots[slot] = names, [first + messages for first in firsts]
        return head._replace(payload=b"".join([*parts, rest[done:]]))

    def _of(self, slot: int, queues: int) -> bytes:
        names, firsts = self._slots.get(slot, (b"", []))
        if not firsts or len(firsts) != queues:
            raise LinkError(f"slot {slot} of the link has {len(firsts)} targets, and not {queues}")
        return names + struct.pack(f"<{queues}Q", *firsts)

    def _told(self, slot: int, rest: bytes, at: int, queues: int) -> int:
        """Remember targets that come whole. Returns where they end."""
        middle = at + UUID * queues
        end = middle + _ID * queues
        if end > len(rest):
            raise LinkError(f"a batch ends in the targets of slot {slot}")
        self._slots[slot] = rest[at:middle], list(struct.unpack(f"<{queues}Q", rest[middle:end]))
        return end
