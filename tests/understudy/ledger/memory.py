"""A ledger in memory for tests: files that can refuse writes, and a clock that counts its readings."""

from __future__ import annotations

import errno
import json
import os
from typing import Any

ENOSPC = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class MemoryFile:
    def __init__(self, folder: MemoryFolder, path: str) -> None:
        self._folder = folder
        self._path = path

    def write(self, data: bytes) -> int:
        folder = self._folder
        folder.writes += 1
        taken = len(data)
        if folder.most is not None:
            taken = min(taken, folder.most)
        if folder.room is not None:
            if folder.room == 0:
                raise ENOSPC
            taken = min(taken, folder.room)
            folder.room -= taken
        folder.files[self._path] += data[:taken]
        return taken

    def close(self) -> None:
        if self._folder.close_fails:
            raise ENOSPC


class MemoryFolder:
    """A folder in memory. `room` is the number of free bytes (None: no limit). One write takes at most `most`
    bytes (None: all)."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.room: int | None = None
        self.most: int | None = None
        self.open_fails = False
        self.close_fails = False
        self.writes = 0
        self.now = 1_000_000

    def open(self, path: str) -> MemoryFile:
        if self.open_fails:
            raise ENOSPC
        assert path not in self.files
        self.files[path] = b""
        return MemoryFile(self, path)

    def clock(self) -> int:
        self.now += 1
        return self.now

    def rows(self) -> list[dict[str, Any]]:
        """All complete lines as records, in order."""
        found = []
        for data in self.files.values():
            for line in data.split(b"\n"):
                try:
                    found.append(json.loads(line))
                except ValueError:
                    pass
        return found
