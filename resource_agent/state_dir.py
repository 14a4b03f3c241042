"""What the agent remembers from one invocation to the next: a directory that a reboot empties.

    <state_dir>/<resource>/pid         process id and time of start
                          /answered    it has answered over its control socket
                          /promoted    it served when it was last heard
                          /failed      it did not answer when it was last asked
                          /target      the manager is about to promote it (until when)
                          /leaving     it has stepped down before the manager has had it demoted (until when)
                          /changed     its role has just changed (until when that counts)
                          /score       the promotion score that was set last, and when
                          /notify      where a starting broker says how far it is
                          /control/    the broker's own, with its control socket

The directory is root's, so that nobody can make the agent write or signal elsewhere; `control` is the
broker's user's.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import time

from resource_agent.codes import Code
from resource_agent.parameters import Refused
from resource_agent.process import Running, running

_CREDENTIALS = struct.Struct("3i")
"""Process id, user and group of the other end of a Unix socket: the kernel's `struct ucred`."""
_MARKS = ("answered", "promoted", "failed", "target", "leaving", "changed")


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class StateDir:
    """The directory of one resource. Reading creates nothing; OSError where writing fails."""

    def __init__(self, base: str, instance: str) -> None:
        self.path = os.path.join(base, instance)
        self.control = os.path.join(self.path, "control", "socket")
        self.notify = os.path.join(self.path, "notify")

    def make(self, uid: int, gid: int) -> None:
        """Create the directory, with the broker's own directory in it. Refused if another user could change
        what the agent reads there, and so have it kill another process."""
        base = os.path.dirname(self.path)
        os.makedirs(os.path.dirname(base), exist_ok=True)
        for folder in (base, self.path):
            _make_passable(folder)
        _check_owner(base, sticky_will_do=True)
        _check_owner(self.path)
        own = os.path.dirname(self.control)
        os.makedirs(own, mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(own, uid, gid, follow_symlinks=False)

    def process(self) -> Running | None:
        """The process that was started last. If the agent was killed before it recorded the process: the one
        that listens at the control socket."""
        try:
            pid, start = self._read("pid").split()
            return Running(int(pid), int(start))
        except (OSError, ValueError):
            return self._listener()

    def _listener(self) -> Running | None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.settimeout(1.0)
                link.connect(self.control)
                found = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid, uid, _gid = _CREDENTIALS.unpack(found)
            owner = os.stat(os.path.dirname(self.control), follow_symlinks=False).st_uid
        except OSError:
            return None
        return running(pid) if uid == owner else None

    def started(self, process: Running) -> None:
        """A new life of the broker: forget what was known of the last one."""
        for mark in _MARKS:
            self.set(mark, False)
        self._write("pid", f"{process.pid} {process.start}\n")

    def stopped(self) -> None:
        """Nothing runs: forget all."""
        for name in (*_MARKS, "pid", "notify", "score", os.path.join("control", "socket")):
            self._remove(name)

    def has(self, mark: str) -> bool:
        return os.path.exists(os.path.join(self.path, mark))

    def set(self, mark: str, on: bool) -> None:
        if on != self.has(mark):
            if on:
                self._write(mark, "")
            else:
                self._remove(mark)

    def set_for(self, mark: str, seconds: float) -> None:
        """Set a mark that counts for so long."""
        self._write(mark, f"{_now() + seconds}")

    def counts(self, mark: str) -> bool:
        """Was the mark set for a time that is not over?"""
        try:
            return _now() < float(self._read(mark))
        except (OSError, ValueError):
            return False

    def scored(self, value: str) -> None:
        self._write("score", f"{_now()} {value}")

    def last_score(self) -> tuple[str, float]:
        """The score that was set last, and how many seconds ago. If none was: a value that no score has."""
        try:
            at, _, value = self._read("score").partition(" ")
            return value, _now() - float(at)
        except (OSError, ValueError):
            return "unknown", 0.0

    def _read(self, name: str) -> str:
        with open(os.path.join(self.path, name), encoding="ascii", errors="replace") as file:
            return file.read(1000)

    def _write(self, name: str, text: str) -> None:
        path = os.path.join(self.path, name)
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(text)
        os.replace(path + ".new", path)

    def _remove(self, name: str) -> None:
        try:
            os.unlink(os.path.join(self.path, name))
        except (FileNotFoundError, NotADirectoryError):
            return


def _make_passable(folder: str) -> None:
    """Let the broker's user through, whatever this process's umask is."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        return
    os.chmod(folder, 0o755)


def _check_owner(folder: str, sticky_will_do: bool = False) -> None:
    found = os.stat(folder, follow_symlinks=sticky_will_do)
    open_to_others = found.st_mode & 0o022 and not (sticky_will_do and found.st_mode & stat.S_ISVTX)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()) or open_to_others:
        raise Refused(Code.PERM, f"state_dir: {folder} is no directory that only its owner, root, may change")
