"""Finds the ledger files, and decides how far each may be read. Offsets end at line ends, so a batch can be
repeated exactly.

This is the planning half of the stream source; it never parses a record. A ledger only grows, so a place in
it is a number of bytes. Files are identified by name. `head`, a checksum of the first bytes, tells a
continued copy (rsync replaces the file) from a different file with the same name.
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
"""Forms to which a rotated file may be compacted."""
HEAD = 256
BLOCK = 1 << 16
WHOLE = -1
"""Offset of a compacted file, which is read once and whole."""

_PART = re.compile(r"^(.*-\d+)-(\d+)(?:\.pruned)?$")

Place = list[int]
"""[head, offset, generation, size]: the checksum (0 while the file has fewer bytes than HEAD), bytes read,
how often another file replaced this one, and the size when last seen. A compacted file: [0, WHOLE, 1 if it
must be read, 0].
"""
Offset = dict[str, Any]
"""`files`: {path: Place}. `now`: when the files were checked, in microseconds since 1970. `behind`: bytes
left for later batches.
"""


@dataclass(slots=True, frozen=True)
class Stretch:
    """A piece of a file to read. `end` is WHOLE for a compacted file."""

    path: str
    start: int
    end: int
    fresh: bool = False
    """Whether nothing of this file was read before."""
    replaced: bool = False
    """Whether another file replaced one that was already read."""
    torn: bool = False
    """Whether an incomplete line follows: the writer was in the middle of a write."""


def origin() -> Offset:
    return {"files": {}, "now": 0, "behind": 0}


def look(folders: Iterable[str], before: Offset, now: int, most: int) -> Offset:
    """The offset after `before`, at most about `most` bytes further. Drops files that vanished."""
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
    """How far to read a file, and how many bytes of whole lines lie beyond."""
    head, offset, generation, _ = place
    with open(path, "rb") as file:
        if size < offset or (offset and _head(file, min(HEAD, offset)) != head):
            offset, generation = 0, generation + 1
        end = _line_end(file, offset, min(size, offset + most))
        unread = _line_end(file, end, size) - end if offset + most < size else 0
        if unread and end == offset and most >= BLOCK:
            end, unread = end + unread, 0  # a line longer than a batch: take it whole, or reading stalls
        return [_head(file, min(HEAD, end)), end, generation, size], unread


def _was_read(lines: str, known: dict[str, Place]) -> bool:
    """Whether a file was read to its end and rotated before it was compacted: it is not read again."""
    place = known.get(lines)
    k, ledger = _order(lines)
    following = f"{ledger}-{k + 1}{LINES}"
    return place is not None and place[1] == place[3] and following in known


def stretches(before: Offset, after: Offset) -> list[Stretch]:
    """The stretches to read between two offsets."""
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
    """The path without the suffixes that name the form of the ledger."""
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
    """Sort key: earlier parts of ledgers come first, because later parts depend on them."""
    found = _PART.match(stem(path))
    return (int(found[2]), found[1]) if found else (0, path)


def _head(file: Any, size: int) -> int:
    return zlib.crc32(os.pread(file.fileno(), size, 0)) if size == HEAD else 0


def _line_end(file: Any, start: int, end: int) -> int:
    """End of the last whole line within start..end; `start` if there is none."""
    while end > start:
        begin = max(start, end - BLOCK)
        at = os.pread(file.fileno(), end - begin, begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return start
