"""The numbered segment files of one directory: how they are written, recovered and compacted.

Role: batches to files and back, in the format of `segment_format`; knows nothing of what a payload means, has
no thread and no clock. Owner and only caller: `SegmentStore` (one thread at a time).

Files are `<16 digits>.segment`; numbers follow one another. Whatever else lies in the directory is left
alone. A checkpoint is a sealed segment, made under another name and renamed, that replaces all segments
before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from broker.model.values import ORIGIN, Position
from broker.store.errors import StoreCorrupt, StoreMisuse, StoreUnusable
from broker.store.files import AppendFile, FileLayer
from broker.store.segment_format import (
    CHECKPOINT,
    FRAME_HEAD_BYTES,
    HEADER_BYTES,
    LOG,
    FrameHead,
    Header,
    NotASegment,
    WrongVersion,
    candidates,
    pack_frame,
    pack_header,
    pack_seal,
    unpack_head,
    unpack_header,
)

SEGMENT_BYTES = 64 * 1024 * 1024
"""A segment is sealed at the first group of batches that begins beyond this size."""

_WINDOW = 4 * 1024 * 1024
"""Bytes read at a time in recovery, and written at a time in a checkpoint."""

_NAME = re.compile(r"(\d{16})\.segment")
_LEFTOVER = re.compile(r"\d{16}\.segment\.new")


class StoredBatch(NamedTuple):
    """One recovered batch; `payload` is its encoded records, joined."""

    position: Position
    payload: bytes


class SegmentLog:
    """The segments of one directory: `recover()` to its end, perhaps `rewrite`, then `write` and `sync`."""

    def __init__(
        self, files: FileLayer, directory: str, *, salt: int = 0, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        """`salt`: 64 bits that no client can guess (see the format); new in each process life."""
        self._files = files
        self._directory = directory
        self._salt = salt
        self._segment_bytes = segment_bytes
        self._recovered = False
        self._file: AppendFile | None = None
        self._number = 0
        """The highest segment number so far; `_file`, if open, is that one."""
        self._size = 0
        self._seed = 0
        self._stale: list[int] = []
        """Segments that a rewrite replaces."""
        self.last_position = ORIGIN
        """Of the last batch recovered or written."""
        self.stored_bytes = 0
        """Length of all live segments together."""
        self.notices: list[str] = []
        """What recovery repaired or removed, as sentences for the log."""

    @property
    def current_path(self) -> str:
        """The file that is written to now, or was last; for messages."""
        return self._path(self._number) if self._number else self._directory

    # -- recovery ------------------------------------------------------------------------------------------

    def recover(self) -> Iterator[StoredBatch]:
        """All batches in order; afterwards the log is ready for writing.

        Cuts a torn tail and finishes an interrupted compaction, each with a notice. Raises StoreCorrupt where
        synced bytes are not what was written, StoreUnusable where the disk refuses; nothing is changed then.
        """
        try:
            self._files.make_directory(self._directory)
            yield from self._recover()
        except OSError as error:
            raise StoreUnusable(f"cannot use {self._directory}: {error.strerror or error}") from error

    def _recover(self) -> Iterator[StoredBatch]:
        names = self._files.list(self._directory)
        numbers = sorted(int(m[1]) for n in names if (m := _NAME.fullmatch(n)))
        leftovers = [n for n in names if _LEFTOVER.fullmatch(n)]
        headers, torn = self._headers(numbers)
        live = [n for n in numbers if n in headers]
        start = max((i for i, n in enumerate(live) if headers[n].kind == CHECKPOINT), default=0)
        superseded, live = live[:start], live[start:]
        self._check_numbers(live, torn, headers)
        end, sealed = 0, True
        for number in live:
            last = number == live[-1] and torn is None
            for found in self._segment(number, headers[number], last):
                if isinstance(found, StoredBatch):
                    self.last_position = found.position
                    yield found
                else:
                    end, sealed = found
            self.stored_bytes += end
        if live:
            self._settle(live[-1], headers[live[-1]], end, sealed)
        if torn is not None:
            self.notices.append(f"removed {self._path(torn)}: it was being created when the node stopped")
        if superseded:
            self.notices.append(f"removed {len(superseded)} segments that {self._path(live[0])} had replaced")
        gone = [self._path(n) for n in superseded] + [f"{self._directory}/{n}" for n in leftovers]
        self._remove(gone if torn is None else [*gone, self._path(torn)])
        self._number = live[-1] if live else 0
        self._stale = live
        self._recovered = True

    def _headers(self, numbers: list[int]) -> tuple[dict[int, Header], int | None]:
        """Header by number; and the last segment's number if its creation was interrupted."""
        headers: dict[int, Header] = {}
        for number in numbers:
            path = self._path(number)
            try:
                header = unpack_header(self._files.read(path, 0, HEADER_BYTES))
            except WrongVersion as error:
                raise StoreUnusable(f"{path} has format {error}, which this version cannot read") from error
            except NotASegment:
                # The header is synced before the first frame is written.
                if number == numbers[-1] and self._files.size(path) <= HEADER_BYTES:
                    return headers, number
                raise StoreCorrupt(path, 0, "its header is not what was written") from None
            if header.number != number:
                raise StoreCorrupt(path, 0, f"it is segment {header.number} under another name")
            headers[number] = header
        return headers, None

    def _check_numbers(self, live: list[int], torn: int | None, headers: dict[int, Header]) -> None:
        numbers = live if torn is None else [*live, torn]
        if numbers and numbers[0] != 1 and (not live or headers[live[0]].kind != CHECKPOINT):
            raise StoreCorrupt(self._path(numbers[0] - 1), 0, "the segment is missing")
        for before, number in pairwise(numbers):
            if number != before + 1:
                raise StoreCorrupt(self._path(before + 1), 0, "the segment is missing")

    def _segment(self, number: int, header: Header, last: bool) -> Iterator[StoredBatch | tuple[int, bool]]:
        """The batches of one segment, and at the end (length that is good, whether it is sealed)."""
        path = self._path(number)
        size = self._files.size(path)
        window, base, offset = b"", 0, HEADER_BYTES
        while offset < size:
            if offset - base + FRAME_HEAD_BYTES > len(window):
                window, base = self._files.read(path, offset, _WINDOW), offset
            at = offset - base
            head = unpack_head(window[at : at + FRAME_HEAD_BYTES], header.seed)
            if head is None:
                break
            end = offset + FRAME_HEAD_BYTES + head.length
            if end - base > len(window):
                window, base = self._files.read(path, offset, max(_WINDOW, end - offset)), offset
            payload = window[offset - base + FRAME_HEAD_BYTES : end - base]
            if not head.fits_payload(payload, header.seed):
                break
            if head.is_seal:
                if end != size:
                    raise StoreCorrupt(path, end, "something follows its seal")
                yield end, True
                return
            yield StoredBatch(head.position, payload)
            offset = end
        if not last or header.kind == CHECKPOINT:
            raise StoreCorrupt(path, offset, "a batch is missing or its checksum does not match")
        if offset < size:
            self._refuse_damage(path, size, offset, header.seed)
            self.notices.append(
                f"cut {size - offset} bytes from {path} at offset {offset}: they were being written, and "
                f"nothing of them was confirmed, when the node stopped"
            )
        yield offset, False

    def _refuse_damage(self, path: str, size: int, bad: int, seed: int) -> None:
        """StoreCorrupt if a later frame proves that the bytes at `bad` had been synced."""
        base = bad + 1
        while base + FRAME_HEAD_BYTES <= size:
            window = self._files.read(path, base, _WINDOW)
            for at in candidates(window):
                head = unpack_head(window[at : at + FRAME_HEAD_BYTES], seed)
                if head is not None and head.synced > bad and self._is_whole(path, base + at, head, seed):
                    raise StoreCorrupt(path, bad, "a batch that had been synced fails its checksum")
            base += max(1, len(window) - FRAME_HEAD_BYTES + 1)

    def _is_whole(self, path: str, offset: int, head: FrameHead, seed: int) -> bool:
        return head.fits_payload(self._files.read(path, offset + FRAME_HEAD_BYTES, head.length), seed)

    def _settle(self, number: int, header: Header, end: int, sealed: bool) -> None:
        """Make sure of what was read, and go on in the last segment unless it is done.

        After a killed process its tail, its seal or its very name may be in the page cache only.
        """
        file = self._files.open_append(self._path(number))
        try:
            if file.size() > end:
                file.truncate(end)
            file.sync()
            self._files.sync_directory(self._directory)
        except OSError:
            file.close()
            raise
        if sealed:
            file.close()
        else:
            self._file, self._size, self._seed = file, end, header.seed

    # -- writing -------------------------------------------------------------------------------------------

    def write(self, group: Iterable[tuple[Position, list[bytes]]]) -> None:
        """Hand batches to the kernel, in a new segment if this one is full. An OSError is final.

        One write(2) for a group of up to 4 MiB, so that a large one is not held in memory twice.
        """
        if not self._recovered:
            raise StoreMisuse("the log was not recovered")
        if self._file is None or self._size >= self._segment_bytes:
            self._roll()
        pieces: list[bytes] = []
        gathered, synced = 0, self._size
        for position, payload in group:
            frame = pack_frame(position, payload, synced, self._seed)
            pieces += frame
            gathered += sum(map(len, frame))
            self.last_position = position
            if gathered >= _WINDOW:
                self._append(b"".join(pieces))
                pieces, gathered = [], 0
        if pieces:
            self._append(b"".join(pieces))

    def sync(self) -> None:
        """Return once all that was written is on disk."""
        if self._file is not None:
            self._file.sync()

    def close(self, *, clean: bool) -> None:
        """Let go of the file. `clean`, after a sync: seal it first, so that damage to its tail will show.

        Raises OSError if the seal cannot be made durable; the file is closed all the same.
        """
        file, self._file = self._file, None
        self._recovered = False
        if file is None:
            return
        try:
            if clean:
                file.write(pack_seal(self.last_position, self._seed))
                file.sync()
        finally:
            file.close()

    def _append(self, data: bytes) -> None:
        if self._file is None:
            raise StoreMisuse("no segment is open")
        self._file.write(data)
        self._size += len(data)
        self.stored_bytes += len(data)

    def _roll(self) -> None:
        """Seal the current segment and begin the next; each step is durable before the one after it."""
        if self._file is not None:
            self._append(pack_seal(self.last_position, self._seed))
            self._file.sync()
            self._file.close()
            self._file = None
        self._number += 1
        header = pack_header(LOG, self._number, self._salt)
        self._file = self._files.open_append(self._path(self._number))
        self._seed, self._size = unpack_header(header).seed, 0
        self._append(header)
        self._file.sync()
        self._files.sync_directory(self._directory)

    # -- compaction ----------------------------------------------------------------------------------------

    def rewrite(self, batches: Iterable[tuple[Position, list[bytes]]]) -> None:
        """Replace everything by `batches`, atomically and durably, in one checkpoint segment.

        A crash leaves either the old segments or the checkpoint. Raises StoreUnusable.
        """
        if not self._recovered:
            raise StoreMisuse("the log was not recovered")
        number = self._number + 1
        path, fresh = self._path(number), f"{self._path(number)}.new"
        try:
            position, size = self._write_checkpoint(fresh, number, batches)
            self._files.replace(fresh, path)
            self._files.sync_directory(self._directory)
            if self._file is not None:
                self._file.close()
                self._file = None
            self._remove([self._path(n) for n in self._stale])
        except OSError as error:
            raise StoreUnusable(f"cannot write {path}: {error.strerror or error}") from error
        self._number, self._stale, self.last_position, self.stored_bytes = number, [number], position, size

    def _write_checkpoint(
        self, path: str, number: int, batches: Iterable[tuple[Position, list[bytes]]]
    ) -> tuple[Position, int]:
        """The last position, and the file's length; the file is synced, its name is not."""
        position, gathered = ORIGIN, 0
        header = pack_header(CHECKPOINT, number, self._salt)
        seed = unpack_header(header).seed
        pieces = [header]
        file = self._files.open_append(path)
        try:
            for position, payload in batches:
                frame = pack_frame(position, payload, 0, seed)
                gathered += sum(map(len, frame))
                pieces += frame
                if gathered >= _WINDOW:
                    file.write(b"".join(pieces))
                    pieces, gathered = [], 0
            pieces.append(pack_seal(position, seed))
            file.write(b"".join(pieces))
            file.sync()
            return position, file.size()
        finally:
            file.close()

    # -- names ---------------------------------------------------------------------------------------------

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:016d}.segment"

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self._files.unlink(path)
        if paths:
            self._files.sync_directory(self._directory)
