"""What a copy of a node is, on disk: its manifest, its files, and what the store in it holds.

Role: shared by `take`, which makes one, and `restore`, which makes a data directory of it; both
are called by `cli/backup.py`. A copy is a folder:

    manifest.json           where it comes from, what it holds, and size and SHA-256 of every file
    store/*.segment         the segments that count, as `broker.store` reads them
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from broker.store.errors import StoreError
from broker.store.files import FileLayer, RealFiles
from understudy.shared.file_errors import named

FORMAT = 1
MANIFEST = "manifest.json"
STORE = "store"
PIECE = 8 << 20
"""Bytes copied, and synced, at once: a sync of more would hold up the syncs of a broker on the same disk."""

SPARE = 256 << 20
"""Bytes that a copy leaves free on the broker's own disk: with less it pauses publishers."""

Progress = Callable[[int], None]
"""Told by how many bytes one is further."""


class BackupFailed(Exception):
    """It could not be done, or it would lose something. `str()` is one line that names the file."""


class BackupMisuse(BackupFailed):
    """The request makes no sense: it names the wrong folder."""


_Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class CopiedFile(_Part):
    name: Annotated[str, StringConstraints(pattern=r"^\d{16}\.segment$")]
    """In `store`."""
    size: _Count
    """In bytes."""
    sha256: _Hex


class CopiedQueue(_Part):
    name: str
    uuid: str
    messages: _Count


class Manifest(_Part):
    """All that is said of a copy."""

    version: str
    """Of the program that took it."""
    taken_at: str
    """ISO 8601, UTC: when it was begun. All that was confirmed before is in it."""
    node_name: str
    node_id: str
    incarnation: int
    cluster_id: str | None
    epoch: Annotated[int, Field(ge=0, lt=1 << 62)]
    """No message in it is of a later one."""
    in_sync_record: dict[str, Any] | None
    """As the node had it."""
    stale: bool
    """The node was not in its record, and may have lacked confirmed messages."""
    exchanges: _Count
    """Besides those that every broker has."""
    bindings: _Count
    queues: list[CopiedQueue]
    files: list[CopiedFile]

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def save_manifest(manifest: Manifest, folder: Path) -> None:
    """Durable on return. OSError."""
    body = manifest.model_dump()
    text = json.dumps({"format": FORMAT, "checksum": _checksum(body), "body": body}, indent=1)
    files = RealFiles()
    file = files.open_append(str(folder / MANIFEST))
    try:
        file.write(text.encode() + b"\n")
        file.sync()
    finally:
        file.close()
    files.sync_directory(str(folder))


def load_manifest(copy: Path) -> Manifest:
    """Raises BackupMisuse if there is none, BackupFailed if it has been changed or damaged."""
    path = copy / MANIFEST
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise BackupMisuse(f"{copy} is not a copy: it has no {MANIFEST}") from None
    except OSError as error:
        raise BackupFailed(f"cannot read {path}: {reason(error)}") from None
    try:
        document = json.loads(raw)
        version, checksum, body = document["format"], document["checksum"], document["body"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BackupFailed(f"{path} is damaged: it is not what a backup writes") from None
    if version != FORMAT:
        raise BackupFailed(
            f"{path} has format {version}, and this version reads {FORMAT} only: use the one that wrote it"
        )
    if checksum != _checksum(body):
        raise BackupFailed(f"{path} is damaged: its checksum does not match")
    try:
        return Manifest.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BackupFailed(f"{path} is damaged: {where}: {first['msg']}") from None


def _checksum(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def copy_file(files: FileLayer, source: str, target: Path, size: int, progress: Progress) -> str:
    """The first `size` bytes of `source` into a new file, durable but for its name; their SHA-256.

    Raises OSError; BackupFailed if there are not so many.
    """
    digest = hashlib.sha256()
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    try:
        at = 0
        while at < size:
            try:
                piece = files.read(source, at, min(PIECE, size - at))
            except OSError as error:
                raise BackupFailed(f"cannot read {source}: {reason(error)}") from error
            if not piece:
                raise BackupFailed(f"{source} has become shorter: {at} instead of {size} bytes; try again")
            digest.update(piece)
            rest = memoryview(piece)
            with named(target):
                while rest:
                    rest = rest[os.write(fd, rest) :]
                os.fdatasync(fd)
            at += len(piece)
            progress(len(piece))
        with named(target):
            os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # what is read back comes from the disk
    finally:
        os.close(fd)
    return digest.hexdigest()


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_apart(one: Path, other: Path) -> None:
    """Neither may lie within the other: a copy would go with what it is a copy of."""
    if one == other:
        raise BackupMisuse(f"{one} is given twice")
    if one in other.parents:
        raise BackupMisuse(f"{other} lies within {one}")
    if other in one.parents:
        raise BackupMisuse(f"{one} lies within {other}")


def check_space(folder: Path, size: int, broker: Path | None = None) -> None:
    """A disk that fills up stops the brokers on it, so nothing is begun that cannot end. OSError.

    `broker`: a data directory in use; on its disk SPARE is left.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    found = os.statvfs(there)
    free = found.f_bavail * found.f_frsize
    if free < size:
        raise BackupFailed(f"no space for {folder}: it needs {size:,} bytes, and {there} has {free:,}")
    if broker is not None and there.stat().st_dev == broker.stat().st_dev and free < size + SPARE:
        raise BackupFailed(
            f"no space for {folder}: it needs {size:,} bytes of {free:,}, and {SPARE:,} must be left to the "
            f"broker, whose disk it is; name a folder on another disk"
        )


def reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


@contextmanager
def one_line(what: str) -> Iterator[None]:
    """Turns an OSError raised within into BackupFailed: `what` and why, or the file and why."""
    try:
        yield
    except StoreError as error:
        raise BackupFailed(str(error)) from error
    except OSError as error:
        where = f"{what}: {error.filename}" if error.filename else what
        hint = ": raise the limit of open files (ulimit -n)" if error.errno == errno.EMFILE else ""
        raise BackupFailed(f"{where}: {reason(error)}{hint}") from error
