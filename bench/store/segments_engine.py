"""Plain segments: append-only files of frames in the broker's own format, `broker.store.segment_format`.

A frame is one run, or the dequeues of one group; a group is one write and one fdatasync. Each file begins
with a base, which says where all older live runs are and what is gone of them, so the newest file alone tells
what lives. A file without live runs is removed at once; when more than half of what is stored is dead, the
live runs of the emptiest file move to the new one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence

from bench.store.engines import Damaged
from bench.store.pattern import Range, Run, Stored
from bench.store.run_index import Live, RunIndex, pack_ranges, unpack_ranges
from broker.model.values import Position
from broker.store.files import AppendFile, RealFiles
from broker.store.segment_format import (
    FRAME_HEAD_BYTES,
    HEADER_BYTES,
    LOG,
    FrameHead,
    NotASegment,
    candidates,
    pack_frame,
    pack_header,
    pack_seal,
    unpack_head,
    unpack_header,
)

SEGMENT_BYTES = 32 << 20
WINDOW = 4 << 20
BASE, RUN, GONE, MOVED = 1, 2, 3, 4
_RUN = struct.Struct("<B16sQQI")
_RANGE = struct.Struct("<16sQQQ")
_LIVE = struct.Struct("<16sQQIIQQI")

Frame = tuple[int, FrameHead, bytes]
"""Offset, head, payload."""


class SegmentFile:
    """Reads one file; knows nothing of what a frame means."""

    def __init__(self, files: RealFiles, path: str, number: int) -> None:
        self.files, self.path, self.number = files, path, number
        self.size = files.size(path)
        try:
            header = unpack_header(files.read(path, 0, HEADER_BYTES))
        except NotASegment:
            raise Damaged(f"{path} is damaged at offset 0: its header is not what was written") from None
        except ValueError as error:
            raise Damaged(f"{path} has version {error}, which is not one of ours") from None
        if header.number != number:
            raise Damaged(f"{path} is segment {header.number} under another name")
        self.seed = header.seed
        self.end = HEADER_BYTES
        """Where the last good frame ends, once all were read."""
        self.sealed = False

    def frames(self, *, newest: bool) -> Iterator[Frame]:
        """All of them; a torn tail ends the newest file, and is damage in another. Raises Damaged."""
        window, base, offset = b"", 0, HEADER_BYTES
        while offset < self.size:
            if offset + FRAME_HEAD_BYTES - base > len(window):
                window, base = self.files.read(self.path, offset, WINDOW), offset
            head = unpack_head(window[offset - base : offset - base + FRAME_HEAD_BYTES], self.seed)
            if head is None:
                break
            end = offset + FRAME_HEAD_BYTES + head.length
            if end - base > len(window):
                window, base = self.files.read(self.path, offset, max(WINDOW, end - offset)), offset
            payload = window[offset - base + FRAME_HEAD_BYTES : end - base]
            if not head.fits_payload(payload, self.seed):
                break
            if head.is_seal:
                if end != self.size:
                    break
                self.sealed = True
                return
            yield offset, head, payload
            self.end = offset = end
        if not newest or self._was_synced(offset):
            raise Damaged(f"{self.path} is damaged at offset {offset}: a frame is not what was written")

    def frame(self, offset: int, size: int) -> bytes:
        """The payload of `size` bytes of the frame there. Raises Damaged."""
        raw = self.files.read(self.path, offset, FRAME_HEAD_BYTES + size)
        head, payload = unpack_head(raw[:FRAME_HEAD_BYTES], self.seed), raw[FRAME_HEAD_BYTES:]
        if head is None or not head.fits_payload(payload, self.seed):
            raise Damaged(f"{self.path} is damaged at offset {offset}: a frame is not what was written")
        return payload

    def _was_synced(self, bad: int) -> bool:
        """Whether a later frame says so: then it is damage, and no torn tail."""
        rest = self.files.read(self.path, bad)
        for at in candidates(rest):
            head = unpack_head(rest[at : at + FRAME_HEAD_BYTES], self.seed)
            if head is not None and head.synced > bad:
                return True
        return False


class SegmentsEngine:
    def __init__(self, directory: str, sync: bool) -> None:
        self._files = RealFiles()
        self._directory, self._sync = directory, sync
        self._files.make_directory(directory)
        self._salt = int.from_bytes(os.urandom(8), "little")
        self.index = RunIndex()
        self._live: dict[int, dict[int, Live]] = {}
        """By file and offset."""
        self._sizes: dict[int, int] = {}
        self._readers: dict[int, SegmentFile] = {}
        self._file: AppendFile | None = None
        self._failed: OSError | None = None
        self._number = self._n = self._size = self._synced = self._seed = 0

    # -- reading -------------------------------------------------------------------------------------------

    def recover(self) -> Iterator[Stored]:
        numbers = [int(name[:16]) for name in self._files.list(self._directory) if name.endswith(".segment")]
        newest = self._newest(numbers)
        if newest:
            self._settle(self._reader(newest))
        for number in numbers:
            self._sizes[number] = self._files.size(self._path(number))
        for number, runs in sorted(self._live.items()):
            wanted = set(runs)
            if not wanted:
                continue  # it may be removed already
            for offset, _head, payload in self._reader(number).frames(newest=False):
                if offset in wanted:
                    wanted.discard(offset)
                    yield runs[offset].stored(payload[_RUN.size :])
            if wanted:
                raise Damaged(f"{self._path(number)} ends before the run at offset {min(wanted)}")
        self._number = max(numbers, default=0)
        self._roll()
        self._finish()

    def _newest(self, numbers: list[int]) -> int:
        """Read what lives from the newest file that has a base, and forget one that was being created."""
        for number in reversed(numbers):
            found = False
            try:
                for frame in self._reader(number).frames(newest=True):
                    self._replay(number, frame)
                    found = True
            except Damaged:
                if number != numbers[-1] or self._files.size(self._path(number)) > HEADER_BYTES:
                    raise
            if found:
                return number
            if number != numbers[-1]:
                raise Damaged(f"{self._path(number)} is damaged at offset {HEADER_BYTES}: it has no base")
            self._readers.pop(number, None)
        if len(numbers) > 1:
            raise Damaged(f"{self._directory}: no file says what lives")
        return 0

    def _settle(self, file: SegmentFile) -> None:
        """Cut the torn tail and seal it: from now on it is an older file."""
        if file.sealed:
            return
        open_file = self._files.open_append(file.path)
        open_file.truncate(file.end)
        open_file.write(pack_seal(Position(1, self._n), file.seed))
        open_file.sync()
        open_file.close()
        file.size = self._files.size(file.path)

    def _replay(self, number: int, frame: Frame) -> None:
        offset, head, payload = frame
        self._n = max(self._n, head.position.n)
        kind = payload[0]
        if kind in (RUN, MOVED):
            _kind, queue, epoch, first, count = _RUN.unpack_from(payload)
            if kind == RUN:
                live = self.index.add(queue, epoch, first, count, len(payload) - _RUN.size)
            else:
                live = self.index.find(queue, epoch, first)
                self._forget(live)
            self._put(live, number, offset)
        elif kind == GONE:
            for one in _RANGE.iter_unpack(payload[1:]):
                for live in self.index.take(Range(*one)):
                    if not live.left:
                        self._forget(live)
        else:
            self._read_base(payload)

    def _read_base(self, payload: bytes) -> None:
        at = 1
        while at < len(payload):
            queue, epoch, first, count, size, number, offset, bytes_ = _LIVE.unpack_from(payload, at)
            at += _LIVE.size
            live = self.index.add(queue, epoch, first, count, size)
            for begin, end in unpack_ranges(payload[at : at + bytes_]):
                live.take(begin, end)
            at += bytes_
            self._put(live, number, offset)

    def read(self, queue: bytes, epoch: int, first: int) -> bytes:
        live = self.index.find(queue, epoch, first)
        number, offset = live.place
        return self._reader(number).frame(offset, _RUN.size + live.size)[_RUN.size :]

    def _reader(self, number: int) -> SegmentFile:
        if number not in self._readers:
            self._readers[number] = SegmentFile(self._files, self._path(number), number)
        return self._readers[number]

    # -- writing -------------------------------------------------------------------------------------------

    def commit(self, runs: Sequence[Run], gone: Sequence[Range]) -> None:
        if self._failed is not None:
            raise self._failed
        try:
            self._commit(runs, gone)
        except OSError as error:
            # The kernel may have dropped what it could not write: no later sync can be believed.
            self._failed = error
            raise

    def _commit(self, runs: Sequence[Run], gone: Sequence[Range]) -> None:
        if self._size >= SEGMENT_BYTES:
            self._roll()
        change = self.index.change(runs, gone)
        pieces: list[bytes] = []
        at = self._size
        for live, run in change.added:
            pieces += self._frame([_RUN.pack(RUN, *run[:4]), run.raw])
            self._put(live, self._number, at)
            at += FRAME_HEAD_BYTES + _RUN.size + len(run.raw)
        if gone:
            pieces += self._frame([bytes([GONE]), *(_RANGE.pack(*one) for one in gone)])
        self._append(b"".join(pieces))
        for live in change.removed:
            self._forget(live)
        self._finish()

    def _finish(self) -> None:
        """Make the group durable, and then remove the files that have no live runs left."""
        if self._sync and self._file is not None:
            self._file.sync()
        self._synced = self._size
        dead = [number for number in self._sizes if number != self._number and not self._live.get(number)]
        for number in dead:
            self._files.unlink(self._path(number))
            del self._sizes[number]
            self._live.pop(number, None)
            self._readers.pop(number, None)
        if dead and self._sync:
            self._files.sync_directory(self._directory)

    def _roll(self) -> None:
        """Seal the file and begin the next with its base; durable with the next `_finish`."""
        self._seal()
        self._number += 1
        header = pack_header(LOG, self._number, self._salt)
        self._seed, self._size, self._synced = unpack_header(header).seed, 0, 0
        self._file = self._files.open_append(self._path(self._number))
        self._append(header)
        if self._sync:
            self._file.sync()
            self._files.sync_directory(self._directory)
        base = [bytes([BASE])]
        for live in self.index:
            ranges = pack_ranges(live.gone)
            base += (
                _LIVE.pack(
                    live.queue, live.epoch, live.first, live.count, live.size, *live.place, len(ranges)
                ),
                ranges,
            )
        self._append(b"".join(self._frame(base)))
        self._clean()

    def _clean(self) -> None:
        """Move the live runs of the emptiest file here, if more than half of what is stored is dead."""
        old = [number for number in self._sizes if number != self._number]
        live = {number: sum(one.size for one in self._live.get(number, {}).values()) for number in old}
        if sum(live.values()) * 2 >= sum(self._sizes[number] for number in old):
            return
        emptiest = min((number for number in old if live[number]), key=lambda n: live[n], default=None)
        if emptiest is None:
            return
        for one in list(self._live[emptiest].values()):
            raw = self.read(one.queue, one.epoch, one.first)
            frame = self._frame([_RUN.pack(MOVED, one.queue, one.epoch, one.first, one.count), raw])
            self._forget(one)
            self._put(one, self._number, self._size)
            self._append(b"".join(frame))

    def close(self) -> None:
        self._seal()

    def _seal(self) -> None:
        if self._file is not None:
            self._file.write(pack_seal(Position(1, self._n), self._seed))
            if self._sync:
                self._file.sync()
            self._file.close()
            self._file = None

    def _frame(self, payload: list[bytes]) -> list[bytes]:
        self._n += 1
        return pack_frame(Position(1, self._n), payload, self._synced, self._seed)

    def _append(self, data: bytes) -> None:
        if self._file is None:
            raise ValueError("not recovered yet")
        self._file.write(data)
        self._size += len(data)
        self._sizes[self._number] = self._size

    def _put(self, live: Live, number: int, offset: int) -> None:
        live.place = number, offset
        self._live.setdefault(number, {})[offset] = live

    def _forget(self, live: Live) -> None:
        number, offset = live.place
        del self._live[number][offset]

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:016d}.segment"


def open_store(directory: str, *, sync: bool) -> SegmentsEngine:
    return SegmentsEngine(directory, sync)
