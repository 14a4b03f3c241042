"""Tests whether the disk answers. The resource agent asks; the node itself never does.

Role: each `look` starts a write and sync of a few bytes in the data directory, on its own thread, unless one
is under way. It reports how long the current write has taken. So the event loop is never blocked, and a
hanging disk is noticed even if nobody publishes. Owner: the control socket.
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
"""A full disk does answer. Publishers are paused before, and the store stops the node if it cannot write."""


class DiskProbe:
    """Probes one data directory. Call `look` on the event loop. At most one thread runs at a time."""

    def __init__(
        self, directory: Path, clock: Callable[[], float],
        busy_since: Callable[[], float | None] = lambda: None,
    ) -> None:  # fmt: skip
        """`busy_since`: time since which the store has waited for the disk; None if it does not wait."""
        self._path = directory / FILE
        self._clock = clock
        self._busy_since = busy_since
        self._began: float | None = None
        self._latency: float | None = None
        self._failed: str | None = None

    def look(self) -> dict[str, Any]:
        """`stalled_for`: seconds since the start of the oldest write under way. `latency`: seconds that the
        last probe took; None before the first has ended. `failed`: the error of the last probe, or None."""
        now = self._clock()
        latency, failed = (
            self._latency,
            self._failed,
        )  # read before the next probe starts, which may end at once
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
