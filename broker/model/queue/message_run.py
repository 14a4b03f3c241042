"""A run of messages in one object, for places that hold messages in runs and not one by one.

Owners: `ReplicaContents` of a replica, `Backlog` of a serving queue. The bytes are one blob, a list, or paged
out to the `Overflow`. Paged-out bytes are read back on each use.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Protocol

from broker.model.history.records import EnqueueRun, Entry, Envelope, RawRun
from broker.model.history.replication_id_set import Range, to_ranges

_COUNT = struct.Struct("<I")


class Overflow(Protocol):
    """Storage for paged-out bytes. Nothing in it outlives the process."""

    failed: str | None
    """Why bytes could not be read back; then the node must stop. None otherwise."""

    def wanted(self) -> int:
        """Bytes that should leave memory now, or 0."""

    @property
    def behind(self) -> bool:
        """The disk is slower than `put`: publishers must wait."""

    def put(self, data: bytes) -> int:
        """Store bytes and return a number for `get`. Does not block on the disk and never fails."""

    def get(self, number: int) -> bytes:
        """Read bytes back; they stay stored. Raises StoreError if the disk fails, and sets `failed`."""

    def drop(self, number: int) -> None:
        """The bytes are not needed any more."""

    def ahead(self, number: int) -> None:
        """Hint that `get` will be called soon."""

    def flush(self) -> None:
        """Block until the stored bytes have left memory. Only at startup: it waits for the disk."""


class PagedOut:
    """The bytes of a run, paged out to the overflow."""

    __slots__ = ("_number", "_overflow")

    def __init__(self, overflow: Overflow, raws: RawRun | list[bytes]) -> None:
        lengths, blobs = (
            (raws.lengths, [raws.blob]) if isinstance(raws, RawRun) else (list(map(len, raws)), raws)
        )
        self._overflow = overflow
        self._number = overflow.put(
            b"".join([_COUNT.pack(len(lengths)), array("I", lengths).tobytes(), *blobs])
        )

    def split(self) -> list[bytes]:
        data = self._overflow.get(self._number)
        (count,) = _COUNT.unpack_from(data)
        lengths = array("I")
        start = _COUNT.size + lengths.itemsize * count
        lengths.frombytes(data[_COUNT.size : start])
        return RawRun(lengths.tolist(), data[start:]).split()

    def ahead(self) -> None:
        self._overflow.ahead(self._number)

    def __del__(self) -> None:
        self._overflow.drop(self._number)


class MessageRun:
    """Messages `first` to `last` of one run. A message is live from `head` on unless its byte in `gone` is
    set."""

    __slots__ = ("envelope", "epoch", "first", "gone", "head", "last", "left", "raws")

    def __init__(self, first: int, envelope: Envelope, raws: RawRun | list[bytes], count: int) -> None:
        self.first = first
        self.last = first + count - 1
        self.head = first
        self.left = count
        self.gone: bytearray | None = None
        self.epoch = envelope.epoch
        self.envelope: Envelope | None = envelope
        self.raws: RawRun | list[bytes] | PagedOut | None = raws

    def remove(self, low: int, high: int) -> int:
        """Remove low..high, which must lie inside the run. Returns how many were live."""
        if low < self.head:
            low = self.head
            if high < low:
                return 0
        if self.gone is None:
            if low == self.head:
                self.head = high + 1
                removed = high - low + 1
                self.left -= removed
                if not self.left:
                    self.release()
                return removed
            self.gone = bytearray(self.last - self.first + 1)
        start, stop = low - self.first, high - self.first + 1
        removed = self.gone.count(0, start, stop)
        self.gone[start:stop] = b"\1" * (stop - start)
        self.left -= removed
        if not self.left:
            self.release()
        return removed

    def release(self) -> None:
        self.envelope = self.raws = self.gone = None
        self.head = self.last + 1

    def page_out(self, overflow: Overflow) -> int:
        """Page out the bytes. Returns how many left memory; 0 if they had left before."""
        raws = self.raws
        if raws is None or isinstance(raws, PagedOut):
            return 0
        self.raws = PagedOut(overflow, raws)
        return max(1, len(raws.blob) if isinstance(raws, RawRun) else sum(map(len, raws)))

    def take(self) -> list[Entry]:
        """The live entries. The run is empty afterwards."""
        entries = self.entries()
        self.left = 0
        self.release()
        return entries

    def live_ranges(self) -> list[Range]:
        if not self.left:
            return []
        if self.gone is None:
            return [(self.head, self.last)]
        first, gone = self.first, self.gone
        return to_ranges([seq for seq in range(self.head, self.last + 1) if not gone[seq - first]])

    def pieces(self) -> list[MessageRun]:
        """The live messages as runs without gaps; splits the blob."""
        entries = self.entries()
        made = []
        for low, high in self.live_ranges():
            count = high - low + 1
            part, entries = entries[:count], entries[count:]
            made.append(MessageRun(low, part[0][1], [raw for _, _, raw in part], count))
        return made

    def entries(self) -> list[Entry]:
        if self.raws is None or self.envelope is None:
            return []
        raws = self.raws if isinstance(self.raws, list) else self.raws.split()
        first, head, gone, envelope = self.first, self.head, self.gone, self.envelope
        if gone is None:
            return list(zip(range(head, self.last + 1), repeat(envelope), raws[head - first :], strict=False))
        return [
            (seq, envelope, raws[seq - first]) for seq in range(head, self.last + 1) if not gone[seq - first]
        ]


def page_out(
    newest_first: Callable[[], Iterator[MessageRun]], overflow: Overflow, most: int
) -> tuple[int, int]:
    """Page out about `most` bytes of these runs, newest first. Returns the bytes and the messages that left
    memory.

    Runs that were paged out before are the newest except for later arrivals. So the first pass stops at the
    first one of them, and only if it finds nothing does a second pass visit all runs.
    """
    octets = messages = 0
    for first_look in (True, False):
        for run in newest_first():
            if octets >= most:
                break
            if first_look and isinstance(run.raws, PagedOut):
                break
            out = run.page_out(overflow)
            if out:
                octets, messages = octets + out, messages + run.left
        if octets:
            break
    return octets, messages


def stretches(entries: Iterable[Entry]) -> list[tuple[int, Envelope, list[bytes]]]:
    """Group entries, sorted by id, by consecutive sequences with one envelope: (first sequence, envelope,
    raws)."""
    found: list[tuple[int, Envelope, list[bytes]]] = []
    envelope, following = None, 0
    raws: list[bytes] = []
    for seq, its, raw in entries:
        if its is envelope and seq == following:
            raws.append(raw)
        else:
            envelope, raws = its, [raw]
            found.append((seq, its, raws))
        following = seq + 1
    return found


def as_runs(entries: Iterable[Entry]) -> list[MessageRun]:
    """Entries, sorted by id, as few runs."""
    return [MessageRun(first, envelope, raws, len(raws)) for first, envelope, raws in stretches(entries)]


def group_runs(queue: bytes, entries: Iterable[Entry]) -> list[EnqueueRun]:
    """Entries of one queue as few EnqueueRun records (scope NONE)."""
    return [EnqueueRun([queue], [first], envelope, raws) for first, envelope, raws in stretches(entries)]
