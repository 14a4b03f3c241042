"""An archive on disk: its manifest and its files, and the checks before a copy is written.

Role: shared by `take`, which makes an archive, and `restore`, which makes a data directory from one.
`cli/backup.py` calls both. An archive is a folder:

    manifest.json           origin and contents, and size and SHA-256 of every file
    store/*.segment         the live segments, as `broker.store` reads them
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
"""Bytes copied and synced at once. A larger sync would delay the syncs of a broker on the same disk."""

SPARE = 256 << 20
"""Bytes that stay free on the broker's own disk: with less, the broker pauses publishers."""

Progress = Callable[[int], None]
"""Called with the number of bytes processed since the last call."""


class BackupFailed(Exception):
    """The command cannot finish, or would lose something. `str()` is one line that names the file."""


class BackupMisuse(BackupFailed):
    """The request is invalid: it names the wrong folder."""


_Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class CopiedFile(_Part):
    name: Annotated[str, StringConstraints(pattern=r"^\d{16}\.segment$")]
    """Name in `store`."""
    size: _Count
    """In bytes."""
    sha256: _Hex


class CopiedQueue(_Part):
    name: str
    uuid: str
    messages: _Count


class Manifest(_Part):
    """The origin and the contents of an archive."""

    version: str
    """Version of the program that made the archive."""
    taken_at: str
    """Start of the backup, ISO 8601, UTC. Unless `stale`, everything confirmed before is in the archive."""
    node_name: str
    node_id: str
    incarnation: int
    cluster_id: str | None
    epoch: Annotated[int, Field(ge=0, lt=1 << 62)]
    """No message in the archive has a later epoch."""
    in_sync_record: dict[str, Any] | None
    """The in-sync record that the node had on disk."""
    stale: bool
    """The node was not in its in-sync record, so it may have lacked confirmed messages."""
    exchanges: _Count
    """Number of exchanges, without the built-in ones."""
    bindings: _Count
    queues: list[CopiedQueue]
    files: list[CopiedFile]

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)

    @property
    def size(self) -> int:
        """Total size of all files, in bytes."""
        return sum(file.size for file in self.files)


def save_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest. It is durable on return. Raises OSError."""
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
    """Read the manifest. Raises BackupMisuse if there is none, BackupFailed if it was changed or damaged."""
    path = copy / MANIFEST
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        lacks = f"it has no {MANIFEST}" if copy.is_dir() else "no such folder"
        raise BackupMisuse(f"{copy} is not an archive: {lacks}") from None
    except OSError as error:
        raise BackupFailed(f"cannot read {path}: {reason(error)}") from None
    try:
        document = json.loads(raw)
        version, checksum, body = document["format"], document["checksum"], document["body"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BackupFailed(f"{path} is damaged: it is not a manifest") from None
    if version != FORMAT:
        raise BackupFailed(
            f"{path} has format {version}, and this version reads {FORMAT} only: use the version that wrote "
            f"it"
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
    """Copy the first `size` bytes of `source` to a new file. Returns their SHA-256. The contents are durable
    on return; the name is not.

    Raises OSError, and BackupFailed if `source` cannot be read or is shorter.
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
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # the check then reads the disk, not the cache
    finally:
        os.close(fd)
    return digest.hexdigest()


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_apart(one: Path, other: Path) -> None:
    """Raise BackupMisuse if one folder is the other or lies within it: the copy would be lost together with
    the original."""
    if one == other:
        raise BackupMisuse(f"{one} is both source and target")
    if one in other.parents:
        raise BackupMisuse(f"{other} lies within {one}")
    if other in one.parents:
        raise BackupMisuse(f"{one} lies within {other}")


def check_space(folder: Path, size: int, broker: Path | None = None) -> None:
    """Check the free space before anything is written, because a full disk stops the brokers on it. Raises
    BackupFailed and OSError.

    `broker`: a data directory in use. SPARE bytes stay free on its disk.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    found = os.statvfs(there)
    free = found.f_bavail * found.f_frsize
    if free < size:
        raise BackupFailed(f"no space for {folder}: it needs {size:,} bytes, and {there} has {free:,}")
    if broker is not None and there.stat().st_dev == broker.stat().st_dev and free < size + SPARE:
        raise BackupFailed(
            f"no space for {folder}: it needs {size:,} bytes of {free:,}, and {SPARE:,} must stay free for "
            f"the broker on this disk; name a folder on another disk"
        )


def reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


@contextmanager
def one_line(what: str) -> Iterator[None]:
    """Turn an OSError within the block into BackupFailed: one line with `what`, the file and the reason. A
    StoreError keeps its own line."""
    try:
        yield
    except StoreError as error:
        raise BackupFailed(str(error)) from error
    except OSError as error:
        where = f"{what}: {error.filename}" if error.filename else what
        hint = ": raise the limit of open files (ulimit -n)" if error.errno == errno.EMFILE else ""
        raise BackupFailed(f"{where}: {reason(error)}{hint}") from error
