"""The power fails while an archive is made or restored: the disk then holds a complete one, or none."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from broker.store.errors import StoreUnusable
from broker.store.files import RealFiles
from broker.store.node_files import NodeFiles
from tests.understudy.archive.disk_steps import without_syncs
from tests.understudy.archive.power_loss import watched
from tests.understudy.archive.stored_node import StoredNode, held_in
from tests.understudy.archive.test_take import quiet
from understudy.archive import manifest as manifests
from understudy.archive.manifest import BackupMisuse, load_manifest
from understudy.archive.restore import restore
from understudy.archive.take import take

SEED = 20


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test itself records what counts as synced."""
    without_syncs(monkeypatch)


def made(folder: Path) -> StoredNode:
    node = StoredNode(folder)
    node.work(30)
    return node


def copies(tmp_path: Path) -> tuple[int, int]:
    """Make an archive. Of the disks that may be found on the way: how many have none, and how many a complete
    one."""
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    root.mkdir()
    scratch.mkdir()
    absent = whole = 0
    with closing(made(root / "data")) as node:

        def look(disk: Path, when: str) -> None:
            nonlocal absent, whole
            if (disk / "copy").exists():
                assert load_manifest(disk / "copy"), when
                restore(disk / "copy", disk / "again", None, bar=quiet)
                assert held_in(disk / "again") == node.held, when
                whole += 1
            else:
                absent += 1
            shutil.rmtree(disk)

        with watched(root, scratch, look, Random(SEED)) as disk:
            take(node.folder, root / "copy", stale=False, bar=quiet)
        disk.make(scratch / "at last", "synced", Random(SEED))
        assert load_manifest(scratch / "at last" / "copy")
        assert held_in(scratch / "at last" / "copy") == node.held
    return absent, whole


def test_what_is_left_of_a_copy_is_whole_or_absent(tmp_path: Path) -> None:
    absent, whole = copies(tmp_path)
    assert absent > 50 and whole > 1, (absent, whole)


@pytest.mark.parametrize(
    ("careless", "seen"), [("names", "no such folder"), ("contents", r"manifest\.json is damaged")]
)
def test_a_copy_that_was_not_synced_would_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, careless: str, seen: str
) -> None:
    """Checks the test itself."""
    if careless == "names":
        monkeypatch.setattr("understudy.archive.take._publish", lambda folder, out: folder.rename(out))
    else:
        monkeypatch.setattr("understudy.archive.take.save_manifest", _save_without_sync)
    with pytest.raises((manifests.BackupFailed, BackupMisuse), match=seen):
        copies(tmp_path)


def _save_without_sync(manifest: manifests.Manifest, folder: Path) -> None:
    real = folder.parent / "manifest"
    real.mkdir()
    manifests.save_manifest(manifest, real)
    text = (real / manifests.MANIFEST).read_bytes()
    shutil.rmtree(real)
    file = RealFiles().open_append(str(folder / manifests.MANIFEST))
    file.write(text)
    file.close()


def test_what_is_left_of_a_restore_is_a_node_or_does_not_start(tmp_path: Path) -> None:
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    root.mkdir()
    scratch.mkdir()
    with closing(made(tmp_path / "old")) as node:
        take(node.folder, tmp_path / "copy", stale=False, bar=quiet)
        held = node.held
    none = refused = whole = 0

    def look(disk: Path, when: str) -> None:
        nonlocal none, refused, whole
        data = disk / "data"
        if (data / "node.json").exists():
            NodeFiles.open(RealFiles(), str(data), "anything").close()
            assert held_in(data) == held, when
            whole += 1
        elif (data / "store").exists():
            with pytest.raises(StoreUnusable, match=r"no node\.json"):
                NodeFiles.open(RealFiles(), str(data), "anything")
            refused += 1
        else:
            none += 1
        shutil.rmtree(disk)

    with watched(root, scratch, look, Random(SEED)) as disk:
        restore(tmp_path / "copy", root / "data", None, bar=quiet)
    disk.make(scratch / "at last", "synced", Random(SEED))
    assert held_in(scratch / "at last" / "data") == held
    NodeFiles.open(RealFiles(), str(scratch / "at last" / "data"), "anything").close()
    assert none > 5 and refused > 50 and whole > 1, (none, refused, whole)
