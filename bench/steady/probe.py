"""Asks a broker's event loop again and again, and attributes each wait: a process beside the load.

The question is basic.qos on a connection that does nothing else. Its answer waits for no disk and no backup,
so it is late only if the loop did not come round. A wait spans up to two turns of the loop.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path

from bench.brokers import HOST
from bench.steady.histogram import Wait
from bench.wire import Wire

EVERY = 0.002
"""Seconds between two questions."""
_PATIENCE = 60.0


class Probe:
    """Made by `bench.hostile.watch.Watch` in its process."""

    def __init__(self, port: int, pid: int) -> None:
        self._wire = Wire.open(HOST, port, user="guest", password="guest", timeout=_PATIENCE)
        tasks = Path(f"/proc/{pid}/task")
        self._loop = tasks / str(pid) / "schedstat"
        self._others = [task / "schedstat" for task in tasks.iterdir() if task.name != str(pid)]
        self._mine = Path("/proc/thread-self/schedstat")
        self._began = self._due = time.monotonic()
        self._waits: list[Wait] = []

    def look(self) -> None:
        self._due = max(self._due + EVERY, time.monotonic() - EVERY)
        time.sleep(max(0.0, self._due - time.monotonic()))
        before = self._accounts()
        asked = time.monotonic()
        self._wire.call(1, 60, 10, struct.pack(">IHB", 0, 0, 0))
        ms = (time.monotonic() - asked) * 1000
        ran, lacked, others_ran, others_lacked, late = (
            now - then for now, then in zip(self._accounts(), before, strict=True)
        )
        self._waits.append(Wait(asked - self._began, ms, lacked, ran, others_ran, others_lacked, late))

    def lap(self) -> list[Wait]:
        waits, self._waits = self._waits, []
        return waits

    def _accounts(self) -> tuple[float, float, float, float, float]:
        """CPU time and lack of cores of the loop and of the other threads, and lack of the probe."""
        ran, lacked = _account(self._loop)
        others = [_account(path) for path in self._others]
        late = _account(self._mine)[1]
        return ran, lacked, sum(one for one, _ in others), sum(one for _, one in others), late


def _account(path: Path) -> tuple[float, float]:
    """Milliseconds that a thread ran, and that it was ready to run without a core."""
    ran, lacked = path.read_text().split()[:2]
    return int(ran) / 1e6, int(lacked) / 1e6
