"""The CPU time of a running process, from its own account in /proc."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_ns(pid: int) -> int:
    """CPU time of all the process's threads so far, in nanoseconds.

    The scheduler's account of each thread where the kernel keeps one, else user and system time in ticks.
    Raises FileNotFoundError for a process that is gone.
    """
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    except (FileNotFoundError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Resident memory in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
