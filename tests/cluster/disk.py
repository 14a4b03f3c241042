"""A machine's data disk: an ext4 file system in a file, which can be full, and can hang.

Owner: the `Site`. A disk that hangs is a frozen file system: whoever writes waits, uninterruptibly, as for a
path that is lost; reading goes on. Its machine's power cut ends the waiting, as it does in life.
"""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

from tests.cluster.engine import MARK

SIZE = 1 << 30
"""Bytes; sparse."""


class Disk:
    def __init__(self, folder: Path, name: str, mark: str = MARK) -> None:
        """`mark`: what the lab's left-overs are known by, and unmounted at its next start."""
        self._image = folder / f"{name}.disk"
        self.mount = folder / f"{mark}{name}"
        self._frozen = False

    def make(self, size: int = SIZE) -> None:
        with self._image.open("wb") as image:
            image.truncate(size)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "nodiscard", str(self._image))
        self.mount.mkdir()
        _run("mount", "-o", "loop,noatime", str(self._image), str(self.mount))

    def remove(self) -> None:
        """The contents are gone; what is to be kept is copied before."""
        self.power_cut()
        if os.path.ismount(self.mount):
            _run("umount", str(self.mount))
        self._image.unlink(missing_ok=True)

    def hang(self) -> None:
        _run("fsfreeze", "--freeze", str(self.mount))
        self._frozen = True

    def go_on(self) -> None:
        if self._frozen:
            _run("fsfreeze", "--unfreeze", str(self.mount))
            self._frozen = False

    power_cut = go_on

    def fill(self) -> None:
        """Take all room that there is."""
        free = os.statvfs(self.mount)
        take, taken = free.f_bavail * free.f_frsize, 0
        with (self.mount / "filler").open("wb") as filler:
            while take >= free.f_frsize:
                try:
                    os.posix_fallocate(filler.fileno(), taken, take)
                    taken += take
                except OSError as error:
                    assert error.errno == errno.ENOSPC, error
                    take //= 2

    def give_room(self) -> None:
        (self.mount / "filler").unlink(missing_ok=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
