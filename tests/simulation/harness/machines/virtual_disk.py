"""A disk in memory that forgets what was not synced: the store's `FileLayer` for simulations and crash tests.

One `VirtualDisk` is one machine's disk and page cache. It outlives the node that runs on it:

    kill()                the process ended: locks are free, open files dead; all that was written remains
    power_loss()          the machine ended: only what was synced is left
    power_loss(random)    the same, but of the unsynced some survives: a part of the writes, torn at any byte
                          or with pages out of order, and some of the creations, renames and removals
    damage(path, offset)  the medium lies: a byte is not what was written

Faults: `crash_at` names the file operation (counted in `operations`) at which `Crash` is raised, after a
random or no part of it was done; `failing` names operations ("write", "sync", ...) that raise OSError; `room`
bounds bytes. Time does not pass here; whoever wants a slow sync drives the store by hand
(`broker.store.sync.ManualSync`).
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable
from random import Random

from broker.store.files import AppendFile, HeldLock

PAGE = 512
SPARE = ".segment.new"
"""Ending of the name of a file that nothing depends on until it is renamed: the store copies what is
scattered into it to give space back, and gives the copy up where there is no room for it."""


class Crash(BaseException):
    """The machine ends at this very operation. Not an Exception: nothing may handle it."""


class Inode:
    """One file: what is read (`data`) and what is on the medium (`synced`)."""

    __slots__ = ("data", "rewritten", "synced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = bytearray()
        self.rewritten = False
        """`data` was cut since the last sync, so that it does not merely go on where `synced` ends."""

    def sync(self) -> None:
        if self.rewritten:
            self.synced = bytearray(self.data)
            self.rewritten = False
        else:
            self.synced += self.data[len(self.synced) :]

    def forget(self, random: Random | None) -> None:
        """What is left of it when the power goes."""
        left = bytearray(self.synced)
        if random is not None:
            choice = random.randrange(4)
            if choice == 0:
                left = bytearray(self.data)
            elif choice == 1 and not self.rewritten:
                left = self.data[: random.randint(len(self.synced), len(self.data))]
            elif choice == 2 and not self.rewritten:
                left = bytearray(self.data)
                for start in range(len(self.synced), len(left), PAGE):
                    if random.random() < 0.5:
                        end = min(start + PAGE, len(left))
                        left[start:end] = bytes(end - start)
        self.data = left
        self.synced = bytearray(left)
        self.rewritten = False


NameChange = tuple[str, Inode | None]
"""A path and what it names from now on, None for nothing."""
Change = tuple[NameChange, ...]
"""What one operation does to names: on the medium as a whole or not at all."""


class VirtualDisk:
    """See the module. Not thread safe."""

    def __init__(self, *, room: int | None = None) -> None:
        self.operations = 0
        """How many operations that change something were begun."""
        self.crash_at: int | None = None
        self.spared: Callable[[], bool] | None = None
        """While it says so, the crash at `crash_at` waits for a later operation."""
        self.crash_random: Random | None = None
        """With it, the operation crashed at may be done in part; without it, not at all."""
        self.failing: dict[str, int] = {}
        """Operation name -> errno that it raises from now on."""
        self.room = room
        """Bytes that may still be written; None for no bound."""
        self.read_only = False
        self.failures = 0
        """Writes, syncs and other changes that raised OSError since the process began, but for want of room
        of a spare copy.
        """
        self.life = 0
        self.damaged: set[str] = set()
        """Files that are not what was written."""
        self._now: dict[str, Inode] = {}
        self._kept: dict[str, Inode] = {}
        self._unsynced: list[Change] = []
        """Changes of names since the last sync of their directory, in order."""
        self._directories = {"/", "."}
        self._locks: dict[str, str] = {}

    # -- what the machine does -----------------------------------------------------------------------------

    def kill(self) -> None:
        """The process is gone, the machine is not: everything written is in the page cache."""
        self._locks.clear()
        self.life += 1
        self.failures = 0
        self.crash_at = self.spared = None

    def power_loss(self, random: Random | None = None) -> None:
        """The machine is gone. See the module for what survives."""
        self.kill()
        if random is not None and random.random() < 0.75:
            for change in self._unsynced[: random.randint(0, len(self._unsynced))]:
                self._place(self._kept, change)
        self._unsynced.clear()
        self._now = dict(self._kept)
        for inode in {id(i): i for i in self._now.values()}.values():
            inode.forget(random)

    def damage(self, path: str, offset: int, flip: int = 0xFF) -> None:
        """Change one byte, in the cache and on the medium."""
        inode = self._inode(path)
        inode.data[offset] ^= flip
        self.damaged.add(path)
        if offset < len(inode.synced):
            inode.synced[offset] ^= flip

    def cut(self, path: str, size: int) -> None:
        """Shorten a file, in the cache and on the medium."""
        inode = self._inode(path)
        del inode.data[size:]
        del inode.synced[size:]

    def contents(self) -> dict[str, bytes]:
        """Path -> bytes, as read now."""
        return {path: bytes(inode.data) for path, inode in sorted(self._now.items())}

    def place(self, path: str, data: bytes) -> None:
        """Put a file there, durably, as something else on the machine might have."""
        inode = Inode()
        inode.data += data
        inode.sync()
        self._directories.add(posixpath.dirname(path))
        self._now[path] = self._kept[path] = inode

    # -- FileLayer -----------------------------------------------------------------------------------------

    def make_directory(self, path: str) -> None:
        if path in self._directories:
            return
        self._begin("make_directory")
        while path and path not in self._directories:
            self._directories.add(path)
            path = posixpath.dirname(path)

    def list(self, directory: str) -> list[str]:
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        prefix = f"{directory}/"
        below = [*self._now, *self._directories]
        return sorted({path[len(prefix) :].split("/")[0] for path in below if path.startswith(prefix)} - {""})

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        self._check("read")
        data = self._inode(path).data
        return bytes(data[offset:] if length < 0 else data[offset : offset + length])

    def open_append(self, path: str) -> AppendFile:
        inode = self._now.get(path)
        if inode is None:
            self._begin("open")
            if posixpath.dirname(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            inode = Inode()
            self._rename((path, inode))
        elif self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return VirtualFile(self, inode)

    def replace(self, source: str, target: str) -> None:
        inode = self._inode(source)
        self._begin("replace")
        self._rename((target, inode), (source, None))

    def unlink(self, path: str) -> None:
        self._inode(path)
        self._begin("unlink")
        self._rename((path, None))

    def sync_directory(self, path: str) -> None:
        self._begin("sync_directory")
        later = []
        for change in self._unsynced:
            if posixpath.dirname(change[0][0]) == path:
                self._place(self._kept, change)
            else:
                later.append(change)
        self._unsynced = later

    def free(self, path: str) -> int:
        return 1 << 40 if self.room is None else self.room

    def lock(self, path: str, note: str) -> HeldLock | str:
        self._check("lock")
        if path in self._locks:
            return self._locks[path]
        if self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        self._locks[path] = note
        return VirtualLock(self, path)

    # -- inside --------------------------------------------------------------------------------------------

    def unlock(self, path: str, life: int) -> None:
        if life == self.life:
            self._locks.pop(path, None)

    def append_to(self, inode: Inode, data: bytes) -> None:
        """A write by an open file."""
        done = len(data)
        if self._crashes_here():
            done = self.crash_random.randint(0, done) if self.crash_random is not None else 0
            inode.data += data[:done]
            raise Crash("write")
        self._check("write")
        if self.room is not None:
            done = min(done, self.room)
            self.room -= done
        inode.data += data[:done]
        if done < len(data):
            self.failures += not any(i is inode and path.endswith(SPARE) for path, i in self._now.items())
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def change(self, operation: str) -> None:
        """An open file begins another operation."""
        self._begin(operation)

    def _crashes_here(self) -> bool:
        self.operations += 1
        due = self.crash_at is not None and self.operations > self.crash_at
        return due and not (self.spared is not None and self.spared())

    def _begin(self, operation: str) -> None:
        if self._crashes_here():
            raise Crash(operation)
        self._check(operation)
        if self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def _check(self, operation: str) -> None:
        code = self.failing.get(operation)
        if code is not None:
            self.failures += operation not in ("read", "lock")
            raise OSError(code, os.strerror(code))

    def _inode(self, path: str) -> Inode:
        inode = self._now.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return inode

    def _rename(self, *change: NameChange) -> None:
        self._place(self._now, change)
        self._unsynced.append(change)

    @staticmethod
    def _place(names: dict[str, Inode], change: Change) -> None:
        for path, inode in change:
            if inode is None:
                names.pop(path, None)
            else:
                names[path] = inode


class VirtualFile:
    """An open file; dead after its process was killed."""

    __slots__ = ("_disk", "_inode", "_life")

    def __init__(self, disk: VirtualDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._life = disk.life

    def write(self, data: bytes) -> None:
        self._alive()
        self._disk.append_to(self._inode, data)

    def sync(self) -> None:
        self._alive()
        self._disk.change("sync")
        self._inode.sync()

    @property
    def descriptor(self) -> int:
        return -1

    def truncate(self, size: int) -> None:
        self._alive()
        self._disk.change("truncate")
        del self._inode.data[size:]
        self._inode.rewritten = True

    def size(self) -> int:
        return len(self._inode.data)

    def close(self) -> None:
        """Nothing is buffered here."""

    def _alive(self) -> None:
        if self._life != self._disk.life:
            raise OSError(errno.EBADF, "this file's process was killed")


class VirtualLock:
    """A lock that dies with its process."""

    __slots__ = ("_disk", "_life", "_path")

    def __init__(self, disk: VirtualDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._life = disk.life

    def release(self) -> None:
        self._disk.unlock(self._path, self._life)
