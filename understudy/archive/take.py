"""Makes an archive of a node, with its messages, from its data directory, while the node runs or not.

Role: `take`, called by `cli/backup.py` on the node's machine. Needs neither the node's help nor its lock, and
writes nothing into the data directory. The archive is written under another name and renamed when it is
complete.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from broker.model.history.record_codec import CorruptRecord
from broker.store.errors import StoreCorrupt
from broker.store.files import RealFiles
from broker.store.node_files import RecordFile
from ha.core.errors import LinkError
from ha.core.record.in_sync_record import Incarnation, record_from_json
from understudy import __version__
from understudy.archive.contents import Contents, Miscounted, read_back
from understudy.archive.manifest import (
    MANIFEST,
    STORE,
    BackupFailed,
    BackupMisuse,
    CopiedFile,
    Manifest,
    Progress,
    check_apart,
    check_space,
    copy_file,
    one_line,
    reason,
    save_manifest,
    sha256_of,
)
from understudy.archive.pinned_segments import HeldFiles, Segment, hold_segments, raise_limit
from understudy.shared.file_errors import of_file
from understudy.shared.folders import in_the_way

Bar = Callable[[str, int], AbstractContextManager[Progress]]
"""Makes a progress bar from a label and the total number of bytes."""

_ATTEMPTS = 20
_OURS = re.compile(r"\d{16}\.segment")


class _Standing(NamedTuple):
    """What the files of a node say about its identity and its in-sync record."""

    name: str
    node_id: str
    incarnation: int
    cluster_id: str | None
    epoch: int
    record: dict[str, Any] | None


def take(data_dir: Path, out: Path, *, stale: bool, bar: Bar) -> Manifest:
    """Copy the node in `data_dir` to `out`, which is absent or empty. Returns the manifest.

    `stale`: also copy a node that may lack confirmed messages. Raises BackupMisuse or BackupFailed; `out` is
    then unchanged.
    """
    data_dir, out = Path(os.path.realpath(data_dir)), Path(os.path.realpath(out))
    taken_at = datetime.now(UTC)
    _check_folders(data_dir, out)
    raise_limit()
    with closing(HeldFiles()) as files:
        standing, segments = _held(files, data_dir, stale=stale)
        with one_line(f"cannot write the copy {out}"):
            check_space(out, sum(segment.size for segment in segments), data_dir)
            RealFiles().make_directory(str(out.parent))
            with _unfinished(out) as folder:
                manifest = _copy(files, segments, standing, folder, taken_at, data_dir, bar)
                save_manifest(manifest, folder)
                _publish(folder, out)
    return manifest


def _check_folders(data_dir: Path, out: Path) -> None:
    check_apart(data_dir, out)
    if not data_dir.is_dir():
        fault = in_the_way(data_dir)
        why = of_file(fault) if fault else "there is no such folder"
        raise BackupMisuse(f"{data_dir} is not a data directory: {why}")
    if out.is_mount():
        raise BackupMisuse(f"{out} is a mount point and cannot be replaced: name a folder in it")
    if out.exists() and not out.is_dir():
        raise BackupMisuse(f"{out} is not a folder")
    if (fault := in_the_way(out)) is not None:
        raise BackupMisuse(of_file(fault))
    with one_line(f"cannot read {out}"):
        if out.exists() and any(out.iterdir()):
            raise BackupMisuse(f"{out} is not empty; nothing was written")


# -- the source ----------------------------------------------------------------------------------------------


def _held(files: HeldFiles, data_dir: Path, *, stale: bool) -> tuple[_Standing, list[Segment]]:
    """Hold the live segments. The node's state must be the same before and after.

    A node that catches up marks itself before it drops anything, so the comparison also finds a mark that
    came and went.
    """
    store = data_dir / STORE
    standing = _standing(data_dir)
    for _ in range(_ATTEMPTS):
        _judge(standing, data_dir, stale=stale)
        if not store.is_dir():
            raise BackupFailed(
                f"{data_dir} holds no {STORE}: nothing of this node is on disk (broker.durable = false)"
            )
        with one_line(f"cannot read {store}"):
            try:
                segments = hold_segments(files, str(store))
            except CorruptRecord as error:
                raise BackupFailed(f"{store} is damaged: {error}") from error
        before, standing = standing, _standing(data_dir)
        if standing == before:
            return standing, segments
    raise BackupFailed(f"the in-sync record in {data_dir} keeps changing: try again")


def _standing(data_dir: Path) -> _Standing:
    files, directory = RealFiles(), str(data_dir)
    with one_line(f"cannot read {data_dir}"):
        node = RecordFile(files, directory, "node.json").load()
        record = RecordFile(files, directory, "insync.json").load()
    if node is None:
        raise BackupMisuse(f"{data_dir} is not a data directory: it has no node.json")
    try:
        return _Standing(
            str(node["name"]), str(node["node_id"]), int(node["incarnation"]), node["cluster_id"],
            int(node["epoch"]), record,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        raise BackupFailed(f"{data_dir}/node.json is damaged: a field is missing or unknown") from None


def _judge(standing: _Standing, data_dir: Path, *, stale: bool) -> None:
    """Refuse a node whose copy lacks confirmed messages, or may lack them."""
    if standing.record is not None and standing.record.get("incomplete"):
        raise BackupFailed(
            f"{standing.name} is catching up, or was stopped while catching up ({data_dir}/insync.json says "
            f"incomplete): its copy would be incomplete; try again when it is ready, or copy another node"
        )
    if _is_stale(standing, data_dir) and not stale:
        raise BackupFailed(
            f"{standing.name} is not in its own in-sync record ({data_dir}/insync.json): it may lack "
            f"confirmed messages; try again when it is ready, copy another node, or use --stale"
        )


def _is_stale(standing: _Standing, data_dir: Path) -> bool:
    if standing.record is None:  # not in a pair, or not yet
        return standing.cluster_id is not None
    try:
        record = record_from_json(standing.record)
    except LinkError as error:
        raise BackupFailed(f"{data_dir}/insync.json is damaged: {error}") from None
    return Incarnation(standing.node_id, standing.incarnation) not in {record.owner, *record.in_sync}


# -- copying -------------------------------------------------------------------------------------------------


def _copy(
    files: HeldFiles, segments: list[Segment], standing: _Standing, folder: Path, taken_at: datetime,
    data_dir: Path, bar: Bar,
) -> Manifest:  # fmt: skip
    store = folder / STORE
    store.mkdir(mode=0o750)
    size = sum(segment.size for segment in segments)
    sums = {}
    with bar("copying", size) as progress:
        for segment in reversed(segments):  # the newest first: a start of the node cuts its tail
            sums[segment.name] = copy_file(files, segment.path, store / segment.name, segment.size, progress)
    with bar("reading back", size) as progress:
        contents = _verified(store, data_dir, progress)
    newest = segments[-1].name
    sums[newest] = sha256_of(store / newest)  # reading it back cut its tail and sealed it
    return _manifest(store, sums, standing, contents, taken_at, stale=_is_stale(standing, data_dir))


def _verified(store: Path, data_dir: Path, progress: Progress) -> Contents:
    try:
        return read_back(str(store), progress)
    except Miscounted as error:
        raise BackupFailed(f"{data_dir / STORE} is damaged: {error}; no copy was made") from error
    except StoreCorrupt as error:
        damaged = data_dir / STORE / os.path.basename(error.path)
        raise BackupFailed(
            f"{damaged} is damaged at offset {error.offset}, or was copied wrongly; no copy was made"
        ) from error


def _manifest(
    store: Path, sums: dict[str, str], standing: _Standing, contents: Contents, taken_at: datetime, *,
    stale: bool,
) -> Manifest:  # fmt: skip
    found = [
        CopiedFile(name=name, size=(store / name).stat().st_size, sha256=sums[name])
        for name in sorted(os.listdir(store))
    ]
    return Manifest(
        version=__version__, taken_at=taken_at.isoformat(timespec="seconds"), node_name=standing.name,
        node_id=standing.node_id, incarnation=standing.incarnation, cluster_id=standing.cluster_id,
        epoch=max(standing.epoch, contents.epoch), in_sync_record=standing.record, stale=stale,
        exchanges=contents.exchanges, bindings=contents.bindings, queues=contents.queues, files=found,
    )  # fmt: skip


# -- the unfinished folder -----------------------------------------------------------------------------------


@contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    """Yield the folder that becomes `out`. On exit it is removed with its contents, unless it was renamed.

    The folder is locked while it is written. An unlocked one was left by a killed process.
    """
    folder = out.with_name(f"{out.name}.partial")
    made = not folder.exists()
    try:
        folder.mkdir(mode=0o750, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except BaseException:
        if made and folder.exists():
            folder.rmdir()
        raise
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupFailed(f"another backup is writing {folder}") from None
        if not folder.exists() or not os.path.samestat(os.fstat(lock), folder.stat()):
            raise BackupFailed(f"another backup has just written {out}")
        try:
            _empty(folder)
            yield folder
        finally:
            if folder.exists():
                _empty(folder)
                folder.rmdir()
    finally:
        os.close(lock)


def _empty(folder: Path) -> None:
    """Remove what a backup writes. Raises BackupFailed if anything else is there."""
    there = set(os.listdir(folder))
    store = folder / STORE
    segments = os.listdir(store) if STORE in there else []
    if there - {STORE, MANIFEST} or not all(_OURS.fullmatch(name) for name in segments):
        raise BackupFailed(f"{folder} holds files that no backup writes; remove it, or name another folder")
    if STORE in there:
        shutil.rmtree(store)
    (folder / MANIFEST).unlink(missing_ok=True)


def _publish(folder: Path, out: Path) -> None:
    """Rename `folder` to `out`. Its file contents are durable already; the names become durable here."""
    files = RealFiles()
    files.sync_directory(str(folder / STORE))
    files.sync_directory(str(folder))
    try:
        os.rename(folder, out)
    except OSError as error:
        raise BackupFailed(
            f"cannot rename the finished copy to {out}: {reason(error)}; nothing was changed"
        ) from None
    files.sync_directory(str(out.parent))
