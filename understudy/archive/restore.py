"""Makes the data directory of a new node from an archive that `take` made.

Role: `restore`, called by `cli/backup.py`. The node has an id of its own and no cluster, so no record about
its predecessor applies to it. It keeps the epoch of the archive, so the ids of the archived messages stay in
the past.

`store` is written first and `node.json` last. A broker refuses a directory that has one without the other, so
an interrupted restore leaves nothing that starts.
"""

from __future__ import annotations

import os
import re
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from broker.store.errors import StoreCorrupt
from broker.store.files import HeldLock, RealFiles
from broker.store.node_files import NodeIdentity, RecordFile
from broker.store.segment_reader import SegmentReader
from understudy.archive.manifest import (
    STORE,
    BackupFailed,
    BackupMisuse,
    Manifest,
    Progress,
    check_apart,
    check_space,
    copy_file,
    load_manifest,
    one_line,
)
from understudy.archive.take import Bar
from understudy.shared.file_errors import of_file
from understudy.shared.folders import in_the_way

_LOCK = "lock"
_UNFINISHED = "restoring"
"""Mark in `store` while a restore writes it."""
_NOTHING = {_LOCK, "node.json.new", "lost+found"}
"""Names that a free directory may hold: the broker ignores them, too."""
_OURS = re.compile(r"\d{16}\.segment|restoring")


def restore(copy: Path, data_dir: Path, name: str | None, *, bar: Bar) -> Manifest:
    """Make `data_dir`, which is absent or empty, from the archive `copy`. Returns the manifest.

    `name`: name of the node, if it changes. Raises BackupMisuse or BackupFailed; `data_dir` is then
    unchanged.
    """
    copy, data_dir = Path(os.path.realpath(copy)), Path(os.path.realpath(data_dir))
    check_apart(copy, data_dir)
    manifest = load_manifest(copy)
    with one_line(f"cannot read {copy}"):
        _check_files(copy, manifest)
    with one_line(f"cannot write {data_dir}"):
        _check_empty(data_dir)
        check_space(data_dir, manifest.size)
        with _unfinished(data_dir) as store, bar("restoring", manifest.size) as progress:
            _fill(copy, store, manifest, progress)
            _found(data_dir, name or manifest.node_name, manifest.epoch)
    return manifest


def _check_files(copy: Path, manifest: Manifest) -> None:
    """Check the archive's files without reading them whole. Raises StoreError, BackupFailed and OSError."""
    files, reader = RealFiles(), SegmentReader(RealFiles(), str(copy / STORE))
    for file in manifest.files:
        path = copy / STORE / file.name
        try:
            size = files.size(str(path))
        except (FileNotFoundError, NotADirectoryError):
            raise BackupFailed(f"{path} is missing; nothing was restored") from None
        if path.is_dir():
            raise BackupFailed(f"{path} is a folder, not a file of a copy; nothing was restored")
        if size != file.size:
            raise BackupFailed(
                f"{path} is damaged: it has {size:,} bytes instead of {file.size:,}; nothing was restored"
            )
        try:
            reader.header(int(file.name[:16]))
        except StoreCorrupt:
            raise BackupFailed(f"{path} is damaged: its header is invalid; nothing was restored") from None


def _check_empty(data_dir: Path) -> None:
    if data_dir.exists() and not data_dir.is_dir():
        raise BackupMisuse(f"{data_dir} is not a folder")
    if (fault := in_the_way(data_dir)) is not None:
        raise BackupMisuse(of_file(fault))
    there = set(os.listdir(data_dir)) if data_dir.exists() else set()
    if there - _NOTHING and not _is_interrupted(data_dir):
        raise BackupMisuse(f"{data_dir} is not empty; nothing was changed")


def _is_interrupted(data_dir: Path) -> bool:
    """Does it hold an earlier restore that did not finish, and nothing else?"""
    if set(os.listdir(data_dir)) - _NOTHING != {STORE}:
        return False
    try:
        names = os.listdir(data_dir / STORE)
    except NotADirectoryError:
        return False
    return not names or (_UNFINISHED in names and all(_OURS.fullmatch(name) for name in names))


@contextmanager
def _unfinished(data_dir: Path) -> Iterator[Path]:
    """Yield the `store` of `data_dir`, empty and marked, in a locked directory.

    If the block ends before the directory belongs to a node, everything is removed.
    """
    files = RealFiles()
    ours = {path for path in (data_dir, data_dir / _LOCK) if not path.exists()}
    try:
        files.make_directory(str(data_dir))
        lock = files.lock(str(data_dir / _LOCK), str(os.getpid()))
    except BaseException:
        _remove(data_dir, ours)
        raise
    if isinstance(lock, str):
        raise BackupFailed(f"{data_dir} is in use by process {lock}; nothing was changed")
    store = data_dir / STORE
    try:
        _check_empty(data_dir)  # again, now under the lock
        _remove_store(store)
        store.mkdir(mode=0o750)
        files.open_append(str(store / _UNFINISHED)).close()
        files.sync_directory(str(store))
        files.sync_directory(str(data_dir))
        yield store
        (store / _UNFINISHED).unlink()
        files.sync_directory(str(store))
    finally:
        _leave(data_dir, lock, ours)


def _leave(data_dir: Path, lock: HeldLock, ours: set[Path]) -> None:
    """Release the lock. If the directory has not become that of a node, first remove the unfinished store and
    the paths in `ours`."""
    try:
        if not (data_dir / "node.json").exists():
            if _is_interrupted(data_dir):
                _remove_store(data_dir / STORE)
            (data_dir / "node.json.new").unlink(missing_ok=True)
            _remove(data_dir, ours)
    finally:
        lock.release()


def _remove_store(store: Path) -> None:
    """Remove the store of an interrupted restore. Its mark is removed last, so the store stays
    recognizable."""
    if store.exists():
        for name in sorted(os.listdir(store)):
            (store / name).unlink()
        store.rmdir()


def _remove(data_dir: Path, ours: set[Path]) -> None:
    if data_dir / _LOCK in ours:
        (data_dir / _LOCK).unlink(missing_ok=True)
    if data_dir in ours and data_dir.exists():
        data_dir.rmdir()


def _fill(copy: Path, store: Path, manifest: Manifest, progress: Progress) -> None:
    files = RealFiles()
    for file in manifest.files:
        path = copy / STORE / file.name
        if copy_file(files, str(path), store / file.name, file.size, progress) != file.sha256:
            raise BackupFailed(f"{path} is damaged: its SHA-256 does not match; nothing was restored")
    files.sync_directory(str(store))


def _found(data_dir: Path, name: str, epoch: int) -> None:
    """Write the identity of a node that was never started. From now on the directory belongs to the node."""
    node_id = uuid.uuid4().hex
    number = 1 + zlib.crc32(node_id.encode()) % 65535
    identity = NodeIdentity(node_id, name, None, 0, number)
    RecordFile(RealFiles(), str(data_dir), "node.json").save(asdict(identity) | {"epoch": epoch})
