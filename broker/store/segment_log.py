"""The numbered segment files of one directory: which of them count, and how they are written and removed.

Converts batches to files and back, in the format of `segment_format`. Does not interpret payloads; has no
thread and no clock. Owner and only caller: `SegmentStore` (one thread at a time).

Files are `<16 digits>.segment`. A log segment begins with a base, which holds the state before it and lists
the older segments that still count. So the newest base, those segments and the batches after the base are the
whole store. Other files in the directory are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise

from broker.model.values import ORIGIN, Position
from broker.store.errors import StoreCorrupt, StoreMisuse, StoreUnusable
from broker.store.files import AppendFile, FileLayer
from broker.store.node_files import RecordFile
from broker.store.segment_format import (
    CHECKPOINT,
    COPY,
    LOG,
    Header,
    pack_frame,
    pack_header,
    pack_seal,
    unpack_header,
)
from broker.store.segment_reader import WINDOW, End, SegmentReader, StoredBatch, Torn
from understudy.shared.file_errors import of_file
from understudy.shared.octets import blocks

SEGMENT_BYTES = 32 * 1024 * 1024
"""Size at which a segment is finished."""

_WITHOUT_CLOSED = (
    "if no other file is damaged, remove it: the node starts as after a crash, and does not see whether the "
    "end of its last segment is lost"
)
_NAME = re.compile(r"(\d{16})\.segment")
_LEFTOVER = re.compile(r"\d{16}\.segment\.new")

Live = Callable[[StoredBatch], Collection[int]]
"""Called with the newest base; returns the older segments that count."""


class SegmentLog:
    """The segments of one directory: `recover` to its end, then `roll`, `write`, `sync` and `retain`."""

    def __init__(
        self, files: FileLayer, directory: str, *, salt: int = 0, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        """`salt`: 64 bits that no client can guess (see the format); new in each process life."""
        self.files = files
        self.directory = directory
        self.salt = salt
        self.segment_bytes = segment_bytes
        self.reader = SegmentReader(files, directory)
        self._closed = RecordFile(files, directory, "closed.json", _WITHOUT_CLOSED)
        """Written at a clean shutdown: the last segment and its length."""
        self._recovered = False
        self._file: AppendFile | None = None
        self._size = self._synced = 0
        """The length of the current segment, and how much of it is synced."""
        self._seed = 0
        self.number = 0
        """The highest segment number so far."""
        self._current = 0
        """The current or last log segment."""
        self.last_position = ORIGIN
        """Position of the last batch recovered or written."""
        self.to_read = 0
        """Bytes that recovery reads; known when the first batch comes."""
        self.notices: list[str] = []
        """What recovery repaired or removed, as sentences for the log."""

    @property
    def current_path(self) -> str:
        """The current or last segment file, for messages."""
        return self.reader.path(self._current) if self._current else self.directory

    # -- recovery ------------------------------------------------------------------------------------------

    def recover(self, live: Live) -> Iterator[tuple[int, StoredBatch]]:
        """All batches that count, each with its segment's number. Afterwards `roll` begins a new segment.

        Cuts a torn tail and finishes interrupted changes of segments, each with a notice. Raises StoreCorrupt
        if synced bytes are not what was written, StoreUnusable if the disk fails; nothing is changed then.
        """
        try:
            self.files.make_directory(self.directory)
            yield from self._recover(live)
        except OSError as error:
            raise StoreUnusable(f"cannot use {self.directory}: {of_file(error, self.directory)}") from error

    def _recover(self, live: Live) -> Iterator[tuple[int, StoredBatch]]:
        names = self.files.list(self.directory)
        numbers = sorted(int(m[1]) for n in names if (m := _NAME.fullmatch(n)))
        leftovers = [f"{self.directory}/{n}" for n in names if _LEFTOVER.fullmatch(n)]
        headers, torn = self._headers(numbers)
        last, base, unfinished = self._newest(headers)
        torn += unfinished
        if not last and (set(headers) - set(torn) or torn not in ([], [1])):
            raise StoreCorrupt(self.directory, 0, "the segments that say what counts are missing")
        self._check_closed(last)
        if base is not None:
            self.last_position = base.position
            older = [*live(base)]
            old = {n: headers[n] if n in headers else self.reader.header(n) for n in older}
            # Copies hold the oldest messages.
            older.sort(key=lambda n: (old[n].kind != COPY, n))
        else:
            older = self._before_bases(headers, torn, last)
            old = headers
        counted = [*older, last] if last else older
        self.to_read = sum(self.files.size(self.reader.path(number)) for number in counted)
        for number in older:
            for found in self.reader.batches(number, old[number], open_end=False):
                if isinstance(found, StoredBatch):
                    self.last_position = max(self.last_position, found.position)
                    yield number, found
        if last:
            yield from self._tail(last, headers[last], closed=bool(torn))
        gone = sorted(set(headers) - {last, *older})
        self._closed.discard()
        self._tidy(torn, gone, leftovers)
        self.number, self._current = max([last, *older], default=0), last
        self._recovered = True

    def _check_closed(self, last: int) -> None:
        """After a clean shutdown, no write was in progress: whatever is missing has been lost."""
        closed = self._closed.load()
        if closed is None:
            return
        path = self.reader.path(closed["segment"])
        was = f"when the node stopped, this was the newest segment, with {closed['size']} bytes"
        if closed["segment"] != last:
            newest = self.reader.path(last) if last else "missing"
            raise StoreCorrupt(path, 0, f"{was}; now the newest is {newest}")
        if (size := self.files.size(path)) != closed["size"]:
            raise StoreCorrupt(path, min(size, closed["size"]), f"{was}; now it has {size} bytes")

    def _headers(self, numbers: list[int]) -> tuple[dict[int, Header], list[int]]:
        """Headers by number; and the last segment if its header was being written."""
        headers: dict[int, Header] = {}
        for number in numbers:
            try:
                headers[number] = self.reader.header(number, newest=number == numbers[-1])
            except Torn:
                return headers, [number]
        return headers, []

    def _newest(self, headers: dict[int, Header]) -> tuple[int, StoredBatch | None, list[int]]:
        """The last log segment, its base if it has one, and a later segment that was being created."""
        logs = [n for n, header in headers.items() if header.kind != COPY]
        if not logs or headers[logs[-1]].version == 1:
            return (logs[-1] if logs else 0), None, []
        try:
            return logs[-1], self.reader.base(logs[-1], headers[logs[-1]]), []
        except Torn:
            before = logs[-2] if len(logs) > 1 else 0
            if not before or headers[before].version == 1:
                return before, None, [logs[-1]]
            try:
                return before, self.reader.base(before, headers[before]), [logs[-1]]
            except Torn:
                raise StoreCorrupt(self.reader.path(before), 0, "its base is not what was written") from None

    def _before_bases(self, headers: dict[int, Header], torn: list[int], last: int) -> list[int]:
        """In a store of version 1: the segments before `last` that count."""
        logs = [n for n in headers if n <= last]
        start = max((i for i, n in enumerate(logs) if headers[n].kind == CHECKPOINT), default=0)
        logs = logs[start:]
        following = [n for n in torn if last and n == last + 1]
        numbers = [*logs, *following]
        if numbers and numbers[0] != 1 and headers[logs[0]].kind != CHECKPOINT:
            raise StoreCorrupt(self.reader.path(numbers[0] - 1), 0, "the segment is missing")
        for before, number in pairwise(numbers):
            if number != before + 1:
                raise StoreCorrupt(self.reader.path(before + 1), 0, "the segment is missing")
        return logs[:-1]

    def _tail(self, number: int, header: Header, *, closed: bool) -> Iterator[tuple[int, StoredBatch]]:
        """The batches after the base, up to where the node stopped. Then sync and seal the segment.

        After a killed process, its tail, its seal or even its name may only be in the page cache.
        """
        end = End(0, False)
        open_end = not closed and header.kind != CHECKPOINT
        for found in self.reader.batches(number, header, open_end=open_end):
            if isinstance(found, StoredBatch):
                self.last_position = max(self.last_position, found.position)
                yield number, found
            else:
                end = found
        path = self.reader.path(number)
        file = self.files.open_append(path)
        try:
            cut = file.size() - end.offset
            if cut > 0:
                file.truncate(end.offset)
                self.notices.append(
                    f"cut {cut} bytes from {path} at offset {end.offset}: they were being written, and "
                    f"nothing of them was confirmed, when the node stopped"
                )
            if not end.sealed:
                file.sync()
                file.write(pack_seal(self.last_position, header.seed))
            file.sync()
            self.files.sync_directory(self.directory)
        finally:
            file.close()

    def _tidy(self, torn: list[int], gone: list[int], leftovers: list[str]) -> None:
        """Remove what a crash between two steps has left."""
        for number in torn:
            path = self.reader.path(number)
            self.notices.append(f"removed {path}: it was being created when the node stopped")
        self._remove([*(self.reader.path(n) for n in sorted({*gone, *torn})), *leftovers])

    # -- writing -------------------------------------------------------------------------------------------

    def roll(self, number: int, position: Position, base: bytes) -> None:
        """Seal the current segment and begin `number` with its base, which is durable after the next `sync`.

        An OSError is final.
        """
        if not self._recovered or number <= self._current:
            raise StoreMisuse(f"segment {number} cannot follow {self._current} of a log")
        if self._file is not None:
            if self._synced < self._size:  # a seal says that everything before it was synced
                self._file.sync()
            self._append(pack_seal(self.last_position, self._seed))
            self._file.sync()
            self._file.close()
            self._file = None
        self._current, self.number = number, max(number, self.number)
        header = pack_header(LOG, number, self.salt)
        self._file = self.files.open_append(self.current_path)
        self._seed, self._size = unpack_header(header).seed, 0
        self._append(header)
        self._file.sync()
        self._synced = self._size
        self.files.sync_directory(self.directory)
        self._append(b"".join(pack_frame(position, [base], self._synced, self._seed)))
        self.last_position = max(self.last_position, position)

    def write(self, group: Iterable[tuple[Position, list[bytes]]]) -> None:
        """Write batches to the kernel. An OSError is final.

        One write(2) for a group of up to 4 MiB. Larger data is not copied, because a copy would block all
        threads.
        """
        if self._file is None:
            raise StoreMisuse("no segment is open")
        pieces: list[bytes] = []
        gathered = 0
        for position, payload in group:
            frame = pack_frame(position, payload, self._synced, self._seed)
            pieces += frame
            gathered += sum(map(len, frame))
            self.last_position = position
            if gathered >= WINDOW:
                for block in blocks(pieces, WINDOW):
                    self._append(block)
                pieces, gathered = [], 0
        if pieces:
            self._append(b"".join(pieces))

    def sync(self) -> None:
        """Block until everything written is on disk."""
        if self._file is not None:
            self._file.sync()
            self.was_synced()

    @property
    def descriptor(self) -> int:
        """Of the file that `write` writes to; -1 if it has none. Whoever syncs it calls `was_synced`."""
        return -1 if self._file is None else self._file.descriptor

    def was_synced(self) -> None:
        """All that was written is on disk."""
        self._synced = self._size

    def retain(self, numbers: Collection[int]) -> None:
        """Remove all segments except `numbers`, those that the base on disk counts. An OSError is final."""
        there = [n for n in self.files.list(self.directory) if _NAME.fullmatch(n)]
        self._remove([f"{self.directory}/{n}" for n in there if int(n[:16]) not in numbers])

    def close(self, *, clean: bool) -> None:
        """Close the file. `clean`: after a sync, seal the segment and record its length, so that damage to
        its tail, or a missing tail, is detected.

        Raises OSError or StoreUnusable if that cannot be made durable; the file is closed anyway.
        """
        file, self._file = self._file, None
        self._recovered = False
        if file is None:
            return
        try:
            if clean:
                file.write(pack_seal(self.last_position, self._seed))
                file.sync()
                self._closed.save({"segment": self._current, "size": file.size()})
        finally:
            file.close()

    def _append(self, data: bytes) -> None:
        if self._file is None:
            raise StoreMisuse("no segment is open")
        self._file.write(data)
        self._size += len(data)

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self.files.unlink(path)
        if paths:
            self.files.sync_directory(self.directory)
