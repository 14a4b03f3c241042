"""CPU time and memory of this process and all below it: the driver, its JVM and its Python workers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def descendants() -> list[int]:
    """This process and every living one below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                parents[int(entry.name)] = int(fields[1])
    mine = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in mine} - mine
        if not more:
            return sorted(mine)
        mine |= more


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; [] for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_seconds() -> float:
    """User and system time of the tree so far, with that of children which ended and were waited for."""
    ticks = 0
    for pid in descendants():
        fields = _stat(pid)
        ticks += sum(map(int, fields[11:15])) if fields else 0
    return ticks / TICKS


def resident_bytes() -> int:
    """Proportional resident memory of the tree: a page that forked workers share counts once."""
    total = 0
    for pid in descendants():
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


class Peak:
    """Samples `resident_bytes` five times a second, until it is left; `most` is the greatest seen."""

    def __init__(self, interval: float = 0.2) -> None:
        self.most = 0
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.most = max(self.most, resident_bytes())

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self.most = max(self.most, resident_bytes())
