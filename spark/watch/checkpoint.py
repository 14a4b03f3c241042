"""Files that survive a kill of the driver, beside Spark's own checkpoint: the state after each batch, and the
alarms.

A batch has three steps. One rename stores its state together with its alarms. Then the alarms are appended to
the journal, which knows the number of its last alarm. Then Spark marks the batch as done. If the driver is
killed anywhere in between, Spark repeats the batch with the same rows, and steps already done are skipped. So
nothing is counted twice, and the journal has each alarm exactly once.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

JOURNAL = "alarms.jsonl"
KEPT = 3
"""Number of states kept."""


class CheckpointError(Exception):
    """The checkpoint cannot be used. The text is one line for the operator."""


class Checkpoint:
    """A folder that belongs to one watch.

    Raises CheckpointError if another watch uses it, or if it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._states = folder / "state"
        try:
            self._states.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise CheckpointError(
                f"cannot use checkpoint {folder}: {_in_the_way(folder) or error.strerror}"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise CheckpointError(f"another watch uses checkpoint {folder}") from None
        self.watch = self._identity()
        self.journal = Journal(folder / JOURNAL)

    @property
    def stream(self) -> Path:
        """The folder of Spark's own checkpoint."""
        return self.folder / "stream"

    def close(self) -> None:
        self.journal.close()
        os.close(self._lock)

    def _identity(self) -> str:
        path = self.folder / "watch"
        if not path.exists():
            write_whole(path, uuid.uuid4().hex[:12].encode())
        try:
            return path.read_text().strip()
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot read {path}: {_why(error)}") from error

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """Number of the last saved batch, and its state; None for a new checkpoint."""
        found = sorted(self._states.glob("*.json"))
        if not found:
            return None
        try:
            return int(found[-1].stem), json.loads(found[-1].read_bytes())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{found[-1]} cannot be read: {error}") from error

    def save(self, batch: int, state: dict[str, Any]) -> int:
        """Save the state after a batch. Returns its size in bytes."""
        data = json.dumps(state, separators=(",", ":")).encode()
        write_whole(self._states / f"{batch:012}.json", data)
        for old in sorted(self._states.glob("*.json"))[:-KEPT]:
            old.unlink()
        return len(data)


class Journal:
    """The log of alarms: each alarm once, one JSON line each, in order of `n`. The other sinks read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise CheckpointError(f"cannot write {path}: {_why(error)}") from error
        self.last = 0
        size = 0
        for line, end in self._lines():
            self.last, size = line["n"], end
        if size < os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, size)  # half a line, left by a kill; its alarm is raised again

    def _lines(self) -> Iterator[tuple[dict[str, Any], int]]:
        end = 0
        with open(self.path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                end += len(line)
                try:
                    yield json.loads(line), end
                except ValueError as error:
                    raise CheckpointError(
                        f"{self.path}: the line that ends at byte {end} is not an alarm"
                    ) from error

    def after(self, n: int) -> list[dict[str, Any]]:
        return [line for line, _ in self._lines() if line["n"] > n]

    def append(self, alarms: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Append the alarms that are not in the journal yet, and return those. They are on disk on return."""
        new = [alarm for alarm in alarms if alarm["n"] > self.last]
        if new:
            try:
                _write(self._fd, "".join(json.dumps(alarm) + "\n" for alarm in new).encode())
            except OSError as error:
                raise CheckpointError(f"cannot write {self.path}: {_why(error)}") from error
            self.last = new[-1]["n"]
        return new

    def close(self) -> None:
        os.close(self._fd)


class Cursor:
    """The number of the last alarm that one sink has finished with."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.n = int(path.read_text()) if path.exists() else 0
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot read {path}: {_why(error)}") from error

    def move(self, n: int) -> None:
        write_whole(self._path, b"%d\n" % n)
        self.n = n


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically, and sync it to disk. Raises CheckpointError."""
    fresh = path.with_name(path.name + ".new")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            _write(fd, data)
        finally:
            os.close(fd)
        os.replace(fresh, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {_why(error)}") from error


def _write(fd: int, data: bytes) -> None:
    """Write all of `data`, and sync it to disk."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.fsync(fd)


def _why(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _in_the_way(folder: Path) -> str | None:
    """A dangling symbolic link in the path, in words. The kernel only reports "File exists" for it."""
    for each in (folder, *folder.parents):
        try:
            each.stat()
        except FileNotFoundError:
            if each.is_symlink():
                return f"{each} is a symbolic link to {os.readlink(each)}, which does not exist"
        except OSError:
            return None
    return None
