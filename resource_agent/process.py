"""The broker's process: its identity, whether it lives, and how it ends. Linux: everything is read in /proc.

A process is identified by its id and its start time, so that a later process with the same id is not taken
for it.
"""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple

from resource_agent.decision import Process

_POLL = 0.02
"""Seconds between two looks at a process that is to end."""


class Running(NamedTuple):
    """One process life."""

    pid: int
    start: int
    """In ticks of the clock since the machine was booted."""

    def look(self) -> Process:
        found = _stat(self.pid)
        if found is None or found[1] != self.start:
            return Process.ABSENT
        if found[0] in "TX":
            return Process.FROZEN if found[0] == "T" else Process.ABSENT
        # A leader that has ended may have threads that have not: they would hold its sockets.
        if found[0] == "Z" and len(_threads(self.pid)) <= 1:
            return Process.ABSENT
        return Process.DOOMED if _is_killed(self.pid) else Process.ALIVE

    @property
    def gone(self) -> bool:
        return self.look() is Process.ABSENT

    def age(self) -> float:
        """Seconds since its start."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.start / os.sysconf("SC_CLK_TCK")

    def send(self, number: signal.Signals) -> None:
        """Send a signal. PermissionError if the process belongs to another user."""
        if not self.gone:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def kill_group(self) -> None:
        """Kill it and its children: it leads a session of its own."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def ends_by(self, deadline: float) -> bool:
        """Wait for its end, until that time of the monotonic clock."""
        while not self.gone:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL)
        return True


def running(pid: int) -> Running | None:
    """The process that has this id now."""
    found = _stat(pid)
    return None if found is None or found[0] in "ZX" else Running(pid, found[1])


def end(process: Running, *, deadline: float, patience: float, last: float) -> str | None:
    """SIGTERM, then SIGKILL after `patience` seconds. None once it is certainly gone; else what is wrong, at
    the `deadline`, or `last` seconds after SIGKILL."""
    try:
        if process.look() is not Process.FROZEN and patience > 0:
            process.send(signal.SIGTERM)
            if process.ends_by(min(deadline, time.monotonic() + patience)):
                return None
        process.send(signal.SIGKILL)
        if not process.gone:
            process.kill_group()
    except PermissionError:
        return f"process {process.pid} may not be ended by this user"
    if process.ends_by(min(deadline, time.monotonic() + last)):
        return None
    return f"process {process.pid} was killed, and does not end: it waits in the kernel, perhaps for a disk"


def _stat(pid: int) -> tuple[str, int] | None:
    """The state and the start time."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _is_killed(pid: int) -> bool:
    """Is a SIGKILL pending?"""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = [line.split() for line in file if line.startswith((b"SigPnd:", b"ShdPnd:"))]
        return any(int(mask, 16) >> (signal.SIGKILL - 1) & 1 for _name, mask in lines)
    except (OSError, ValueError):
        return False


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
