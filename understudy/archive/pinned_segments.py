"""Opens the live segments of a store while its node runs, so that they can be copied.

Role: `hold_segments`, called by `take`. Sealed segments never change, but the node removes them when a newer
base no longer needs them. An open file stays readable after its name is gone. All live segments are therefore
opened first, within milliseconds, and copied from the open files. Nothing is written into the data directory,
and a killed run leaves nothing in it. The node is not asked, and no lock is taken.
"""

from __future__ import annotations

import os
import re
import resource
from typing import NamedTuple

from broker.store.base_codec import decode_base
from broker.store.errors import StoreCorrupt
from broker.store.files import RealFiles
from broker.store.segment_format import COPY
from broker.store.segment_reader import SegmentReader, Torn
from understudy.archive.manifest import BackupFailed

_NAME = re.compile(r"(\d{16})\.segment")
_ATTEMPTS = 1000
"""All attempts fail only if the node begins a segment during each of them, within milliseconds."""


class Segment(NamedTuple):
    name: str
    path: str
    size: int
    """Bytes to copy. For the newest segment: its size when all segments were open."""


class HeldFiles(RealFiles):
    """The files of the system, read through open descriptors. Call `hold` for a path before any
    other method."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def hold(self, path: str) -> None:
        """Open `path`, so that it stays readable after its name is gone. Raises FileNotFoundError and
        OSError."""
        if path not in self._held:
            self._held[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def keep(self, paths: set[str]) -> None:
        """Close all other files."""
        for path in self._held.keys() - paths:
            os.close(self._held.pop(path))

    def close(self) -> None:
        self.keep(set())

    def size(self, path: str) -> int:
        return os.fstat(self._held[path]).st_size

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        left = self.size(path) - offset if length < 0 else length
        pieces = []
        while left > 0 and (piece := os.pread(self._held[path], left, offset)):
            pieces.append(piece)
            offset, left = offset + len(piece), left - len(piece)
        return b"".join(pieces)


def raise_limit() -> None:
    """Raise the limit of open files as far as allowed. A store of 100 GiB has three thousand files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # opening one file too many then fails
        pass


def hold_segments(files: HeldFiles, directory: str) -> list[Segment]:
    """Hold all live segments of the store in `directory`. Returns them, the newest last.

    They contain everything that was synced before the call. If the node changes the set of segments in the
    meantime, the attempt is repeated. A segment that is missing or damaged in two attempts, with the same set
    of segments, is really so. Raises StoreError, BackupFailed and OSError.
    """
    before: tuple[list[int], str] | None = None
    for _ in range(_ATTEMPTS):
        numbers = sorted(int(m[1]) for name in files.list(directory) if (m := _NAME.fullmatch(name)))
        if not numbers:
            raise BackupFailed(f"{directory} holds no segments: nothing of this node is on disk")
        try:
            return _attempt(files, SegmentReader(files, directory), numbers)
        except FileNotFoundError as error:
            if before == (numbers, str(error)):
                raise BackupFailed(f"{directory} is damaged: {error.filename} is missing") from None
            before = (numbers, str(error))
        except StoreCorrupt as error:
            if before == (numbers, str(error)):
                raise
            before = (numbers, str(error))
    raise BackupFailed(f"{directory} changes faster than it can be read: increase broker.segment_size")


def _attempt(files: HeldFiles, reader: SegmentReader, numbers: list[int]) -> list[Segment]:
    counted: set[str] = set()
    try:
        newest, older = _newest(files, reader, numbers)
        paths = [reader.path(number) for number in [*older, newest]]
        counted.add(paths[-1])
        for path in paths:
            files.hold(path)
            counted.add(path)
    finally:
        # Live files stay open for the next attempt. The number of another segment may be used again.
        files.keep(counted)
    return [Segment(os.path.basename(path), path, files.size(path)) for path in paths]


def _newest(files: HeldFiles, reader: SegmentReader, numbers: list[int]) -> tuple[int, list[int]]:
    """The newest log segment, and the older segments that its base needs.

    A segment that is being created holds nothing synced; the segment before it is then the newest.
    """
    being_created = False
    for number in reversed(numbers):
        files.hold(reader.path(number))
        try:
            header = reader.header(number, newest=number == numbers[-1])
            if header.kind == COPY:
                continue
            if header.version == 1:  # has no bases: all may be live
                return number, [n for n in numbers if n < number]
            base = reader.base(number, header)
        except Torn:
            if being_created:
                raise StoreCorrupt(reader.path(number), 0, "its base is not what was written") from None
            being_created = True
            continue
        index, _ = decode_base(base.payload)
        return number, sorted(index.live_segments())
    raise StoreCorrupt(os.path.dirname(reader.path(0)), 0, "no log segment is complete")
