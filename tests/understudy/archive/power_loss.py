"""Disks that may be found after a power failure, at any step of an operation on the real file system.

`watched(root, look)` runs beside real calls of `os` below `root` and keeps two pictures: the current state,
and the synced state. `fsync` of a file syncs its contents; `fsync` of a directory syncs the names in it.
After each call `look` gets disks that may be found then, each in a new folder. Their contents are the synced
ones. Their names are the synced ones, all current ones, or for each directory either of the two: a file
system may write names before contents, and one directory before another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

CALLS = ("open", "close", "write", "ftruncate", "fsync", "fdatasync", "mkdir", "rename", "replace", "unlink",
         "rmdir")  # fmt: skip
_KINDS = ("synced", "all", "mixed")


@dataclass(eq=False)
class File:
    synced: bytes = b""


@dataclass(eq=False)
class Folder:
    now: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)


Node = File | Folder


class Disk:
    """The folders and files below `root`. `root` itself always exists."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = _read(root)
        self.open: dict[int, Node] = {}

    def find(self, path: Any, dir_fd: int | None = None) -> tuple[Folder, str] | None:
        """The folder that contains `path`, and the name there. None if `path` is not below `root`."""
        if dir_fd is not None:
            folder = self.open.get(dir_fd)
            return (folder, os.fspath(path)) if isinstance(folder, Folder) else None
        try:
            parts = Path(os.path.abspath(path)).relative_to(self.root).parts
        except (ValueError, TypeError):
            return None
        at: Node = self.top
        for part in parts[:-1]:
            if not isinstance(at, Folder) or part not in at.now:
                return None
            at = at.now[part]
        return (at, parts[-1]) if parts and isinstance(at, Folder) else None

    def did(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        """Take note of a call that has succeeded."""
        if name in ("fsync", "fdatasync", "close"):
            self._by_number(name, arguments[0])
        elif name in ("rename", "replace"):
            source, target = self.find(arguments[0]), self.find(arguments[1])
            if source and target:
                target[0].now[target[1]] = source[0].now.pop(source[1])
        elif name in ("open", "mkdir", "unlink", "rmdir"):
            self._by_path(name, arguments[0], named.get("dir_fd"), result)

    def _by_number(self, name: str, number: int) -> None:
        node = self.open.get(number)
        if name == "close":
            self.open.pop(number, None)
        elif isinstance(node, File):
            node.synced = Path(f"/proc/self/fd/{number}").read_bytes()
        elif node is not None and name == "fsync":
            node.synced = dict(node.now)

    def _by_path(self, name: str, path: Any, dir_fd: int | None, result: Any) -> None:
        if os.path.abspath(path) == str(self.root) and name == "open":
            self.open[result] = self.top
            return
        found = self.find(path, dir_fd)
        if found is None:
            return
        folder, last = found
        if name == "mkdir":
            folder.now[last] = Folder()
        elif name == "open":
            self.open[result] = folder.now.setdefault(last, File())
        else:
            del folder.now[last]

    def make(self, target: Path, kind: str, random: Random) -> None:
        """Make a disk that may be found if the power failed now."""
        _make(self.top, target, lambda: kind == "all" or (kind == "mixed" and random.random() < 0.5))


def _read(path: Path) -> Folder:
    """A folder as it is. Everything in it counts as synced."""
    folder = Folder()
    for each in path.iterdir():
        folder.now[each.name] = _read(each) if each.is_dir() else File(each.read_bytes())
    folder.synced = dict(folder.now)
    return folder


def _make(folder: Folder, target: Path, ahead: Callable[[], bool]) -> None:
    target.mkdir()
    for name, node in (folder.now if ahead() else folder.synced).items():
        if isinstance(node, Folder):
            _make(node, target / name, ahead)
        else:
            (target / name).write_bytes(node.synced)


@contextmanager
def watched(root: Path, scratch: Path, look: Callable[[Path, str], None], random: Random) -> Iterator[Disk]:
    """Call `look(folder, when)` after each call that changes something. Each `folder` is a new one in
    `scratch`."""
    disk, made = Disk(root), 0
    real = {name: getattr(os, name) for name in CALLS}

    def watching(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal made
            result = real[name](*arguments, **named)
            with mock.patch.multiple(os, **real):
                disk.did(name, arguments, named, result)
                if name != "close":
                    for kind in _KINDS:
                        made += 1
                        folder = scratch / f"{made}"
                        disk.make(folder, kind, random)
                        look(folder, f"after call {made // len(_KINDS)}, {name}, of names: {kind}")
            return result

        return call

    with mock.patch.multiple(os, **{name: watching(name) for name in CALLS}):
        yield disk
