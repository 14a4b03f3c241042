"""The file operations that the store and the node files use.

All disk access goes through `FileLayer`. `RealFiles` uses the kernel; a simulation uses a virtual disk that
loses unsynced data. Called by the segment log, the store's sync thread and the node files; holds no state.
Every method may raise OSError, which the callers turn into a sentence.
"""

from __future__ import annotations

import fcntl
import os
from typing import Protocol

from understudy.shared.file_errors import named
from understudy.shared.folders import make_folders


class AppendFile(Protocol):
    """A file open for appending. Not thread safe: one owner at a time."""

    def write(self, data: bytes) -> None:
        """Append all of `data`. On OSError an unknown part of it may be in the file."""

    def sync(self) -> None:
        """Block until all written data is on the medium. After an OSError the state of the file is
        unknown."""

    @property
    def descriptor(self) -> int:
        """The kernel's, to sync it in another way than `sync`; -1 if there is none."""

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes; durable only after `sync`."""

    def size(self) -> int:
        """The current length in bytes."""

    def close(self) -> None: ...


class HeldLock(Protocol):
    """An exclusive lock that ends with `release` or with the process."""

    def release(self) -> None: ...


class FileLayer(Protocol):
    """The operations of a disk. Paths are strings with `/`."""

    def make_directory(self, path: str) -> None:
        """Create a directory with its parents; durable on return. No error if it exists."""

    def list(self, directory: str) -> list[str]:
        """Names (not paths) in `directory`, sorted."""

    def size(self, path: str) -> int:
        """Length in bytes. Raises FileNotFoundError if there is no such file."""

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        """`length` bytes from `offset` (fewer at the end of the file), or the whole rest."""

    def open_append(self, path: str) -> AppendFile:
        """Open a file, or create it empty. A new name is durable only after `sync_directory`."""

    def replace(self, source: str, target: str) -> None:
        """Rename over `target` atomically; durable only after `sync_directory`."""

    def unlink(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in `path` durable."""

    def free(self, path: str) -> int:
        """Octets that may still be written to the disk of `path`."""

    def lock(self, path: str, note: str) -> HeldLock | str:
        """Lock the file and write `note` into it. If another process holds the lock, return its note."""


class RealAppendFile:
    """An O_APPEND descriptor. Writes go straight to the kernel, without a buffer."""

    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def write(self, data: bytes) -> None:
        written = os.write(self._fd, data)
        if written < len(data):
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def sync(self) -> None:
        os.fdatasync(self._fd)

    @property
    def descriptor(self) -> int:
        return self._fd

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        os.close(self._fd)


class RealLock:
    """A flock on a file that is never removed: after a removal two processes could lock two files of one
    name."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealFiles:
    """The kernel's files."""

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_directory(parent)
        make_folders(path, 0o750)
        self.sync_directory(parent)

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        with open(path, "rb", buffering=0) as file:
            if offset:
                file.seek(offset)
            if length < 0:
                return file.readall()
            pieces, left = [], length
            while left and (piece := file.read(left)):
                pieces.append(piece)
                left -= len(piece)
            return b"".join(pieces)

    def open_append(self, path: str) -> AppendFile:
        return RealAppendFile(path)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def lock(self, path: str, note: str) -> HeldLock | str:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 200).decode(errors="replace").strip()
            os.close(fd)
            return holder or "another process"
        except OSError:
            os.close(fd)
            raise
        try:
            with named(path):
                os.ftruncate(fd, 0)
                os.write(fd, note.encode() + b"\n")
        except OSError:
            os.close(fd)
            raise
        return RealLock(fd)
