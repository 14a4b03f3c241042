"""An archive becomes the data directory of a new node, or nothing that starts."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from broker.store.errors import StoreUnusable
from broker.store.files import RealFiles
from broker.store.node_files import NodeFiles
from tests.understudy.archive.disk_steps import ending, killed_at, without_syncs
from tests.understudy.archive.stored_node import EPOCH, StoredNode, contents, held_in
from tests.understudy.archive.test_take import quiet
from understudy.archive.manifest import BackupFailed, BackupMisuse, Progress, _checksum
from understudy.archive.restore import restore
from understudy.archive.take import take


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """An archive of a node of a pair, with several segments. The node's own directory is gone."""
    with closing(StoredNode(tmp_path / "old")) as node:
        node.work(40)
        take(node.folder, tmp_path / "copy", stale=False, bar=quiet)
        held = node.held
    shutil.rmtree(tmp_path / "old")
    assert held_in(tmp_path / "copy") == held
    yield tmp_path / "copy"


def started(folder: Path) -> NodeFiles:
    return NodeFiles.open(RealFiles(), str(folder), "anything")


def test_a_restored_node_is_a_new_one_with_the_old_epochs_and_messages(copy: Path, tmp_path: Path) -> None:
    before = contents(copy)
    data = tmp_path / "deep" / "data"
    manifest = restore(copy, data, "phoenix", bar=quiet)
    assert contents(copy) == before
    assert sorted(os.listdir(data)) == ["lock", "node.json", "store"]
    assert sorted(os.listdir(data / "store")) == sorted(file.name for file in manifest.files)
    document = json.loads((data / "node.json").read_text())["body"]
    assert document["name"] == "phoenix" and document["node_id"] != manifest.node_id
    files = started(data)
    assert files.epoch == manifest.epoch == EPOCH
    assert (files.identity.cluster_id, files.identity.incarnation) == (None, 1)
    assert files.identity.node_id == document["node_id"] and 1 <= files.identity.number <= 65535
    assert files.record.load() is None
    files.close()
    assert held_in(data) == held_in(copy) and len(held_in(data)) == manifest.messages > 0


def test_a_restored_node_goes_on_and_can_be_copied(copy: Path, tmp_path: Path) -> None:
    restore(copy, tmp_path / "data", None, bar=quiet)
    held = held_in(copy)
    with closing(StoredNode(tmp_path / "data", cluster=False, epoch=2 * EPOCH)) as node:
        node.top = 1000
        node.publish(3)
        manifest = take(node.folder, tmp_path / "second", stale=False, bar=quiet)
    assert held_in(tmp_path / "second") == [*held, 1001, 1002, 1003]
    assert manifest.messages == len(held) + 3


def test_a_disk_of_its_own_counts_as_empty(copy: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "lost+found").mkdir(parents=True)
    restore(copy, data, None, bar=quiet)
    assert sorted(os.listdir(data)) == ["lock", "lost+found", "node.json", "store"]


# -- bad input


def refused(copy: Path, data: Path, match: str) -> None:
    """`restore` refuses in one line, and leaves everything unchanged."""
    there, before = data.exists(), contents(copy.parent)
    with pytest.raises(BackupFailed, match=match) as caught:
        restore(copy, data, None, bar=quiet)
    assert "\n" not in str(caught.value)
    assert data.exists() == there and contents(copy.parent) == before


def test_folders_that_make_no_sense(copy: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").write_text("mine")
    for source, data, match in (
        (tmp_path / "nowhere", tmp_path / "data", "nowhere is not an archive: no such folder"),
        (full, tmp_path / "data", "full is not an archive"),
        (full / "x", tmp_path / "data", "x is not an archive"),
        (copy, full, "full is not empty; nothing was changed"),
        (copy, full / "x", "x is not a folder"),
        (copy, copy / "data", "data lies within .*copy"),
        (copy, tmp_path, "copy lies within"),
        (copy, copy, "is both source and target"),
    ):
        with pytest.raises(BackupMisuse):
            restore(source, data, None, bar=quiet)
        refused(source, data, match)


def test_the_directory_of_a_node_is_never_overwritten(copy: Path, tmp_path: Path) -> None:
    with closing(StoredNode(tmp_path / "data")) as node:
        node.work(5)
        refused(copy, node.folder, "data is not empty")
    (tmp_path / "data" / "node.json").unlink()  # this may be the only copy of some messages
    refused(copy, tmp_path / "data", "data is not empty")
    shutil.rmtree(tmp_path / "data" / "store")
    (tmp_path / "data" / "insync.json").unlink()
    (tmp_path / "data" / "store").write_text("mine")
    refused(copy, tmp_path / "data", "data is not empty")


def test_a_manifest_that_is_cut_or_changed_at_any_byte(copy: Path, tmp_path: Path) -> None:
    path = copy / "manifest.json"
    raw = path.read_bytes()
    for at in range(0, len(raw) - 1, 7):
        for damaged in (raw[:at], raw[:at] + bytes([raw[at] ^ 2]) + raw[at + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(BackupFailed, match=r"manifest\.json (is damaged|has format)"):
                restore(copy, tmp_path / "data", None, bar=quiet)
    assert not (tmp_path / "data").exists()


def rewritten(copy: Path, change: Callable[[dict[str, object]], object]) -> None:
    """The manifest with changed fields and a valid checksum, as another person or version writes it."""
    path = copy / "manifest.json"
    document = json.loads(path.read_bytes())
    change(document["body"])
    document["checksum"] = _checksum(document["body"])
    path.write_text(json.dumps(document))


def test_a_manifest_that_says_what_cannot_be(copy: Path, tmp_path: Path) -> None:
    whole = (copy / "manifest.json").read_bytes()
    changes: list[tuple[Callable[[dict[str, object]], object], str]] = [
        (lambda body: body.update(epoch="9"), "epoch"),
        (lambda body: body.update(epoch=-1), "epoch"),
        (lambda body: body.pop("files"), "files"),
        (
            lambda body: body.update(files=[{"name": "../x", "size": 1, "sha256": "0" * 64}]),
            "files.0.name",
        ),
        (lambda body: body.update(queues=[{"name": "q", "uuid": "", "messages": -1}]), "queues.0.messages"),
    ]
    for change, where in changes:
        rewritten(copy, change)
        refused(copy, tmp_path / "data", rf"manifest\.json is damaged: {where}")
        (copy / "manifest.json").write_bytes(whole)


def test_a_copy_of_a_later_format(copy: Path, tmp_path: Path) -> None:
    path = copy / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"format": 2}))
    refused(copy, tmp_path / "data", r"manifest\.json has format 2, and this version reads 1 only")


def test_a_segment_of_a_later_format(copy: Path, tmp_path: Path) -> None:
    path = max((copy / "store").iterdir())
    head = bytearray(path.read_bytes())
    head[8] = 9
    head[32:36] = zlib.crc32(head[:32]).to_bytes(4, "little")
    path.write_bytes(head)
    refused(copy, tmp_path / "data", f"{path.name} has format 9")


def test_a_file_that_is_missing_cut_or_changed(copy: Path, tmp_path: Path) -> None:
    for path in sorted((copy / "store").iterdir()):
        whole = path.read_bytes()
        path.unlink()
        refused(copy, tmp_path / "data", f"{path.name} is missing")
        path.write_bytes(whole[:-1])
        refused(copy, tmp_path / "data", f"{path.name} is damaged: it has .* bytes instead of")
        for at in range(0, len(whole), 97):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(BackupFailed, match=f"{path.name} (is damaged|has format)"):
                restore(copy, tmp_path / "data", None, bar=quiet)
            assert not (tmp_path / "data").exists()
        path.write_bytes(whole)
    restore(copy, tmp_path / "data", None, bar=quiet)


def test_no_space(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    refused(copy, tmp_path / "data", r"no space for .*data: it needs [0-9,]+ bytes, and .* has 0")


# -- interrupted


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left"), OSError(errno.EACCES, "Permission denied")],
)
@pytest.mark.parametrize("there", [False, True])
def test_an_end_at_any_step_leaves_nothing_or_a_node(
    copy: Path, tmp_path: Path, error: BaseException, there: bool
) -> None:
    data = tmp_path / "data"

    def stop() -> None:
        raise error

    for at in range(1000):
        if there:
            data.mkdir()
        with ending(at, stop) as calls:
            try:
                restore(copy, data, None, bar=quiet)
            except KeyboardInterrupt:
                pass
            except BackupFailed as failed:
                assert re.search("(?i)no space left|permission denied", str(failed))
                assert "\n" not in str(failed) and "/" in str(failed)
        if not (data / "node.json").exists():
            assert data.exists() == there and (not there or not os.listdir(data)), calls
        else:
            started(data).close()
            assert held_in(data) == held_in(copy)
            if len(calls) <= at:
                break
        shutil.rmtree(data, ignore_errors=True)
    assert at > 20


def test_a_kill_at_any_step_leaves_nothing_that_starts_with_less(copy: Path, tmp_path: Path) -> None:
    data, at, interrupted = tmp_path / "data", 0, 0
    while killed_at(at, lambda: restore(copy, data, None, bar=quiet)):
        at += 1
        left = set(os.listdir(data)) if data.exists() else set()
        if "node.json" not in left:
            if "store" in left:
                with pytest.raises(StoreUnusable, match=r"no node\.json"):
                    started(data)
                interrupted += 1
            restore(copy, data, None, bar=quiet)
        started(data).close()
        assert held_in(data) == held_in(copy)
        shutil.rmtree(data)
    assert at > 20 and interrupted > 10


def test_a_broker_and_a_restore_do_not_share_a_directory(copy: Path, tmp_path: Path) -> None:
    def meanwhile(what: str, total: int) -> nullcontext[Progress]:
        with pytest.raises(BackupFailed, match=f"data is in use by process {os.getpid()}"):
            restore(copy, tmp_path / "data", None, bar=quiet)
        return quiet(what, total)

    restore(copy, tmp_path / "data", None, bar=meanwhile)
    started(tmp_path / "data").close()
