"""A run of messages as one object: where a queue holds messages by the run, and not one by one.

Owners: `ReplicaContents` of a follower, `Backlog` of a serving queue. Its bytes are a blob, a list, or set
aside in the `Overflow`: then they are not in memory, and whoever wants them reads them back.
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
    """Where bytes go that are not to be in memory. Nothing of it outlives the process."""

    failed: str | None
    """Why bytes could not be read back: the node must stop. None while all is well."""

    def wanted(self) -> int:
        """Bytes that should leave memory now; 0: all is well."""

    @property
    def behind(self) -> bool:
        """More was put than the disk has taken: publishers are to wait."""

    def put(self, data: bytes) -> int:
        """Take them; the number to ask for them. Does not block on a disk, and never refuses."""

    def get(self, number: int) -> bytes:
        """Read them back; they stay. StoreError if the disk does not give them; `failed` says so too."""

    def drop(self, number: int) -> None:
        """They are not asked for any more."""

    def ahead(self, number: int) -> None:
        """They will be asked for soon."""

    def flush(self) -> None:
        """Return when what was put is not in memory any more. Only for a start: it waits for the disk."""


class SetAside:
    """The bytes of a run, in the overflow."""

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
    """Messages first..last of one run. Live ones are those from `head` to `last` that are not set in
    `gone`."""

    __slots__ = ("envelope", "epoch", "first", "gone", "head", "last", "left", "raws")

    def __init__(self, first: int, envelope: Envelope, raws: RawRun | list[bytes], count: int) -> None:
        self.first = first
        self.last = first + count - 1
        self.head = first
        self.left = count
        self.gone: bytearray | None = None
        self.epoch = envelope.epoch
        self.envelope: Envelope | None = envelope
        self.raws: RawRun | list[bytes] | SetAside | None = raws

    def remove(self, low: int, high: int) -> int:
        """Forget low..high, both inside the run; how many were still there."""
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

    def set_aside(self, overflow: Overflow) -> int:
        """Let go of the bytes; how many have left memory, 0 if they had already."""
        raws = self.raws
        if raws is None or isinstance(raws, SetAside):
            return 0
        self.raws = SetAside(overflow, raws)
        return max(1, len(raws.blob) if isinstance(raws, RawRun) else sum(map(len, raws)))

    def take(self) -> list[Entry]:
        """What is live of it; nothing of it is held here any more."""
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
        """The same live messages as runs without holes; cuts the blob."""
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


def set_aside(
    newest_first: Callable[[], Iterator[MessageRun]], overflow: Overflow, most: int
) -> tuple[int, int]:
    """Of these, about `most` bytes leave memory, the newest first; how many bytes did, and how many messages.

    Those set aside before are the newest but for what came since: a second look at all of them is taken only
    when the first finds nothing.
    """
    octets = messages = 0
    for first_look in (True, False):
        for run in newest_first():
            if octets >= most:
                break
            if first_look and isinstance(run.raws, SetAside):
                break
            out = run.set_aside(overflow)
            if out:
                octets, messages = octets + out, messages + run.left
        if octets:
            break
    return octets, messages


def stretches(entries: Iterable[Entry]) -> list[tuple[int, Envelope, list[bytes]]]:
    """Entries, sorted by id, as few runs: consecutive sequences that share an envelope. (first, it, raws)."""
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
