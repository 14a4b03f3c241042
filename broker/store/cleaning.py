"""Frees disk space: copies the live messages of mostly dead segments into one new segment, piece by piece.

A `Cleaning` is one such copy. The broker's thread plans it from the index (`choose`). The store's sync thread
works on it between two groups (`step`). It is over when the broker's thread has updated the index
(`LiveIndex.moved`). The source segments stay until a base no longer counts them, so a crash at any point
loses nothing.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from broker.model.history.record_codec import encode_record
from broker.model.values import Position
from broker.store.files import AppendFile
from broker.store.live_index import LiveIndex, LiveRanges
from broker.store.live_runs import live_copies, runs_of
from broker.store.segment_format import COPY, pack_frame, pack_header, pack_seal, unpack_header
from broker.store.segment_log import SegmentLog
from broker.store.segment_reader import End

_PIECE = 1 << 20
"""Bytes copied between two groups of batches."""

_SMALL = 8
"""A segment is small below 1/_SMALL of the usual size. More than _SMALL small segments are merged."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


def choose(index: LiveIndex, current: int, segment_bytes: int) -> list[int]:
    """The segments worth copying, those with the fewest live bytes first. Empty while no more is dead than
    live.

    A copy takes at most one segment's worth of live bytes.
    """
    uses = {n: use for n, use in index.segments.items() if n != current and use.live}
    dead = sum(use.size - use.live_bytes for use in uses.values())
    live = sum(use.live_bytes for use in uses.values())
    small = [n for n, use in uses.items() if use.size < segment_bytes // _SMALL]
    wasteful = dead > live + 4 * segment_bytes
    candidates = [n for n, use in uses.items() if wasteful and use.live_bytes * 2 < use.size]
    if len(small) > _SMALL:
        candidates = sorted({*candidates, *small})
    candidates.sort(key=lambda n: uses[n].live_bytes / max(uses[n].size, 1))
    chosen: list[int] = []
    room = segment_bytes
    for number in candidates:
        room -= uses[number].live_bytes
        if room < 0 and chosen:
            break
        chosen.append(number)
    return chosen if len(chosen) > 1 or (chosen and wasteful) else []


class Cleaning:
    """One copy. `done`: the new file is complete and durable, with `size` bytes. `given_up`: the disk had no
    space for it."""

    def __init__(self, log: SegmentLog, number: int, position: Position, live: dict[int, LiveRanges]) -> None:
        """`live`: the live ranges of each source segment at the time of planning."""
        self.number = number
        self.segments = frozenset(live)
        self.done = self.given_up = False
        self.size = 0
        self._log = log
        self._position = position
        self._live = live
        self._work = self._copy()

    @property
    def over(self) -> bool:
        return self.done or self.given_up

    def step(self) -> bool:
        """Copy one piece. Returns False when nothing is left. Raises StoreCorrupt or OSError, both final."""
        try:
            next(self._work)
        except StopIteration:
            self.done = not self.given_up
            return False
        return True

    def _copy(self) -> Iterator[None]:
        path = self._log.reader.path(self.number)
        fresh = f"{path}.new"
        header = pack_header(COPY, self.number, self._log.salt)
        try:
            file = self._log.files.open_append(fresh)
            try:
                yield from self._write(file, header)
            finally:
                file.close()
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self.given_up = True
            with contextlib.suppress(OSError):
                self._log.files.unlink(fresh)
            return
        self._log.files.replace(fresh, path)
        self._log.files.sync_directory(self._log.directory)

    def _write(self, file: AppendFile, header: bytes) -> Iterator[None]:
        seed = unpack_header(header).seed
        pieces, gathered = [header], len(header)
        for frame in self._frames(seed):
            pieces += frame
            gathered += sum(map(len, frame))
            if gathered >= _PIECE:
                file.write(b"".join(pieces))
                file.sync()
                self.size += gathered
                pieces, gathered = [], 0
                yield
        pieces.append(pack_seal(self._position, seed))
        file.write(b"".join(pieces))
        file.sync()
        self.size = file.size()

    def _frames(self, seed: int) -> Iterator[list[bytes]]:
        reader = self._log.reader
        for number, live in sorted(self._live.items()):
            header = reader.header(number)
            for found in reader.batches(number, header, open_end=False):
                if isinstance(found, End):
                    continue
                records = [
                    encode_record(copy) for run in runs_of(found.payload) for copy in live_copies(run, live)
                ]
                if records:
                    yield pack_frame(self._position, records, 0, seed)
