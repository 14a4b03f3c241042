"""Takes hold of the segments that count, while the node that writes them runs.

Role: `hold_segments`, called by `take`. Sealed segments never change, but the node removes them when a
newer base counts without them. A file that is open stays readable whatever becomes of its name, so all that
count are opened first, in milliseconds, and copied from there: nothing is written into the data directory,
and a killed run leaves nothing in it. Asks nothing of the node, and takes no lock.
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
"""The node would have to begin a segment that often, each time within the milliseconds of one attempt."""


class Segment(NamedTuple):
    name: str
    path: str
    size: int
    """Bytes that count. Of the newest, what it had when all were held."""


class HeldFiles(RealFiles):
    """The kernel's files, read through open descriptors; call `hold` before anything else."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def hold(self, path: str) -> None:
        """Open `path`, so that it can be read whatever becomes of its name. FileNotFoundError, OSError."""
        if path not in self._held:
            self._held[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def keep(self, paths: set[str]) -> None:
        """Let go of all others."""
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
    """As many open files as this process may have; a store of 100 GiB has three thousand."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # then it is as it was, and the error comes with the file that is too many
        pass


def hold_segments(files: HeldFiles, directory: str) -> list[Segment]:
    """All segments of the store in `directory` that count, the newest last.

    Everything that was synced before the call is in them. If the node changes the set meanwhile, it begins
    again. A segment that is missing or wrong twice, with nothing changed in between, is really so. Raises
    StoreError, BackupFailed, OSError.
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
    raise BackupFailed(f"{directory} changes faster than it can be read: see broker.segment_size")


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
        # Numbers of what did not count may be given again; what did is kept for the next attempt.
        files.keep(counted)
    return [Segment(os.path.basename(path), path, files.size(path)) for path in paths]


def _newest(files: HeldFiles, reader: SegmentReader, numbers: list[int]) -> tuple[int, list[int]]:
    """The log segment that was written to last, and the older ones that its base counts on.

    One that is being created has nothing in it that was synced: then it is the one before.
    """
    being_created = False
    for number in reversed(numbers):
        files.hold(reader.path(number))
        try:
            header = reader.header(number, newest=number == numbers[-1])
            if header.kind == COPY:
                continue
            if header.version == 1:  # has no bases: all may count
                return number, [n for n in numbers if n < number]
            base = reader.base(number, header)
        except Torn:
            if being_created:
                raise StoreCorrupt(reader.path(number), 0, "its base is not what was written") from None
            being_created = True
            continue
        index, _ = decode_base(base.payload)
        return number, sorted(index.live_segments())
    raise StoreCorrupt(os.path.dirname(reader.path(0)), 0, "the segments that say what counts are missing")
