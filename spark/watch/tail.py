"""Which ledger files there are and how far each may be read: offsets that end at line ends, so that a batch
can be read again exactly as it was.

Role: the planning half of the stream source; it never parses a record. A ledger only ever grows, so a place
in it is a number of bytes. Files are known by their names; `head`, a checksum of the first bytes, tells a
copy that goes on (rsync puts a new file in the old one's place) from another file under that name.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

LINES = ".ledger.jsonl"
SEALED = (".ledger.parquet", ".ledger.jsonl.zst")
"""What a rotated file may be compacted to."""
HEAD = 256
BLOCK = 1 << 16
WHOLE = -1
"""Offset of a compacted file: it is taken once, and whole."""

_PART = re.compile(r"^(.*-\d+)-(\d+)(?:\.pruned)?$")

Place = list[int]
"""[head, offset, generation, size]: the checksum (0: fewer bytes than HEAD yet), bytes read, how often the
file was replaced by another, bytes that it had. A compacted file: [0, WHOLE, 1 if it is to be read, 0]."""
Offset = dict[str, Any]
"""files: {path: Place}; now: microseconds since 1970 at which they were looked at; behind: bytes that were
there and are left for later batches."""


@dataclass(slots=True, frozen=True)
class Stretch:
    """A piece of a file to read. `end` is WHOLE for a compacted one."""

    path: str
    start: int
    end: int
    fresh: bool = False
    """The first piece of it ever read."""
    replaced: bool = False
    """Another file has taken the place of one that was read."""
    torn: bool = False
    """There was more than whole lines: its writer was at it."""


def origin() -> Offset:
    return {"files": {}, "now": 0, "behind": 0}


def look(folders: Iterable[str], before: Offset, now: int, most: int) -> Offset:
    """The offset after `before`: about `most` bytes on, at most. Vanished files are dropped from it."""
    found = dict(_ledgers(folders))
    known: dict[str, Place] = before["files"]
    files: dict[str, Place] = {}
    behind, left = 0, most
    for path, size in sorted(found.items(), key=lambda item: _order(item[0])):
        place = known.get(path)
        if path.endswith(SEALED):
            files[path] = place or [0, WHOLE, 0 if _was_read(stem(path) + LINES, known) else 1, 0]
            continue
        if place is not None and size == place[1]:
            files[path] = [*place[:3], size]
            continue
        try:
            files[path], unread = _further(path, size, place or [0, 0, 0, 0], left)
        except OSError:
            continue
        started = place[1] if place is not None and place[2] == files[path][2] else 0
        left = max(0, left - (files[path][1] - started))
        behind += unread
    return {"files": files, "now": max(now, before["now"]), "behind": behind}


def _further(path: str, size: int, place: Place, most: int) -> tuple[Place, int]:
    """Where reading of a file may go to, and how many bytes in whole lines lie beyond that."""
    head, offset, generation, _ = place
    with open(path, "rb") as file:
        if size < offset or (offset and _head(file, min(HEAD, offset)) != head):
            offset, generation = 0, generation + 1
        end = _line_end(file, offset, min(size, offset + most))
        unread = _line_end(file, end, size) - end if offset + most < size else 0
        if unread and end == offset and most >= BLOCK:
            end, unread = end + unread, 0  # a line longer than a batch: no ledger's, and not to be stuck at
        return [_head(file, min(HEAD, end)), end, generation, size], unread


def _was_read(lines: str, known: dict[str, Place]) -> bool:
    """A file that was compacted after it had been rotated and read to its end is not read a second time."""
    place = known.get(lines)
    k, ledger = _order(lines)
    following = f"{ledger}-{k + 1}{LINES}"
    return place is not None and place[1] == place[3] and following in known


def stretches(before: Offset, after: Offset) -> list[Stretch]:
    """What is to be read between two offsets."""
    out = []
    known: dict[str, Place] = before["files"]
    for path, (_, end, generation, size) in after["files"].items():
        was = known.get(path)
        if end == WHOLE:
            if was is None and generation and stem(path) + LINES not in after["files"]:
                out.append(Stretch(path, 0, WHOLE, fresh=True))
            continue
        start = was[1] if was is not None and was[2] == generation else 0
        if end > start:
            replaced = was is not None and was[2] != generation
            out.append(Stretch(path, start, end, was is None, replaced, torn=size > end))
    return out


def stem(path: str) -> str:
    """The path without what says in which form the ledger is."""
    return path[: path.rindex(".ledger.")]


def _ledgers(folders: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Path and size of every ledger below the folders."""
    for folder in folders:
        for root, _, names in os.walk(folder):
            for name in names:
                if name.endswith((LINES, *SEALED)) and not name.startswith((".", "_")):
                    path = os.path.join(root, name)
                    try:
                        yield path, os.stat(path).st_size
                    except OSError:
                        continue


def _order(path: str) -> tuple[int, str]:
    """Earlier parts of a ledger first: its later ones mean little without them."""
    found = _PART.match(stem(path))
    return (int(found[2]), found[1]) if found else (0, path)


def _head(file: Any, size: int) -> int:
    return zlib.crc32(os.pread(file.fileno(), size, 0)) if size == HEAD else 0


def _line_end(file: Any, start: int, end: int) -> int:
    """The end of the last whole line within start..end; `start` if there is none."""
    while end > start:
        begin = max(start, end - BLOCK)
        at = os.pread(file.fileno(), end - begin, begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return start
