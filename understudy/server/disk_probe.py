"""Does the disk still answer? Asked by whoever watches the node, never by the node itself.

Role: each `look` starts, unless one is under way, a write and sync of a few bytes in the data directory, on a
thread of its own, and tells how long the present one has taken so far. So the event loop answers at once,
and a disk that hangs is seen although nobody publishes. Owner: the control socket.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE = "disk-probe"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""A full disk answers; publishers are paused before, and the store ends the node when it cannot write."""


class DiskProbe:
    """One data directory. `look` on the event loop, at most one thread at a time."""

    def __init__(
        self, directory: Path, clock: Callable[[], float],
        busy_since: Callable[[], float | None] = lambda: None,
    ) -> None:  # fmt: skip
        """`busy_since`: since when the store has waited for the disk; None while it does not."""
        self._path = directory / FILE
        self._clock = clock
        self._busy_since = busy_since
        self._began: float | None = None
        self._latency: float | None = None
        self._failed: str | None = None

    def look(self) -> dict[str, Any]:
        """`stalled_for`: seconds for which the oldest write has been under way; `latency`: seconds that the
        last one took, None before the first; `failed`: what the disk said to it instead, if it refused.
        """
        now = self._clock()
        latency, failed = self._latency, self._failed  # before the next write, which may be quick
        if self._began is None:
            self._began = now
            threading.Thread(target=self._probe, args=(now,), name="disk-probe", daemon=True).start()
        began = [at for at in (self._began, self._busy_since()) if at is not None]
        stalled = max((now - at for at in began), default=0.0)
        return {"stalled_for": max(0.0, stalled), "latency": latency, "failed": failed}

    def _probe(self, began: float) -> None:
        try:
            self._failed = self._write()
        finally:
            self._latency = self._clock() - began
            self._began = None

    def _write(self) -> str | None:
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, b"probe\n", 0)
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            if error.errno in _NO_ROOM:
                return None
            return f"cannot write {self._path}: {error.strerror or error}"
        return None
