"""Making an archive: complete and consistent while segments come and go, or none at all."""

from __future__ import annotations

import errno
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from random import Random

import pytest

from broker.model.values import Position
from broker.store.segment_format import COPY, HEADER_BYTES, LOG, pack_frame, pack_header, unpack_header
from tests.broker.store import test_version_1 as version_1
from tests.broker.store.batches import QUEUE
from tests.understudy.archive.disk_steps import ending, killed_at, without_syncs
from tests.understudy.archive.stored_node import StoredNode, contents, held_in
from understudy.archive import pinned_segments
from understudy.archive.manifest import BackupFailed, BackupMisuse, Manifest, Progress, load_manifest
from understudy.archive.pinned_segments import HeldFiles
from understudy.archive.take import take


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The power does not fail here, and thousands of syncs would take minutes."""
    without_syncs(monkeypatch)


def quiet(what: str, total: int) -> nullcontext[Progress]:
    return nullcontext(lambda amount: None)


def taken(node: StoredNode, out: Path, *, stale: bool = False) -> Manifest:
    return take(node.folder, out, stale=stale, bar=quiet)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StoredNode]:
    with closing(StoredNode(tmp_path / "data")) as made:
        made.work(200)
        yield made


@pytest.fixture
def small(tmp_path: Path) -> Iterator[StoredNode]:
    """A small node, for tests that try every step."""
    with closing(StoredNode(tmp_path / "data")) as made:
        made.work(30)
        yield made


def test_a_copy_of_a_running_node_holds_what_it_holds(node: StoredNode, tmp_path: Path) -> None:
    before = contents(node.folder)
    out = tmp_path / "deep" / "copy"
    manifest = taken(node, out)
    assert contents(node.folder) == before
    assert held_in(out) == node.held
    assert manifest == load_manifest(out)
    assert [(queue.name, queue.messages) for queue in manifest.queues] == [("71" * 16, len(node.held))]
    assert (manifest.node_name, manifest.epoch, manifest.stale) == ("left", 65539, False)
    assert manifest.in_sync_record is not None and manifest.cluster_id == "c"
    names = sorted(path.name for path in out.iterdir())
    assert names == ["manifest.json", "store"]
    assert sorted(file.name for file in manifest.files) == sorted(os.listdir(out / "store"))
    assert len(manifest.files) > 2
    node.work(50)
    assert held_in(node.folder) == node.held  # the broker starts without problems


def test_a_copy_of_a_stopped_node(node: StoredNode, tmp_path: Path) -> None:
    node.close()
    (tmp_path / "copy").mkdir()
    taken(node, tmp_path / "copy")
    assert held_in(tmp_path / "copy") == node.held


def test_messages_that_the_store_has_put_together_are_there(node: StoredNode, tmp_path: Path) -> None:
    def put_together() -> set[str]:
        live = {f"{number:016d}.segment" for number in node.store.index.live_segments()}
        return {
            p.name for p in node.segments if p.name in live and unpack_header(p.read_bytes()).kind == COPY
        }

    for _ in range(1000):
        node.work(5)
        if put_together():
            break
    node.work(50)  # the newest base needs it
    manifest = taken(node, tmp_path / "copy")
    assert put_together() and put_together() <= {file.name for file in manifest.files}
    assert held_in(tmp_path / "copy") == node.held


def test_a_stopped_node_that_an_earlier_version_has_left(node: StoredNode, tmp_path: Path) -> None:
    node.close()
    old = Path(version_1.__file__).parent / "version_1" / "store"
    shutil.rmtree(node.folder / "store")
    shutil.copytree(old, node.folder / "store")
    manifest = taken(node, tmp_path / "copy")
    assert contents(node.folder / "store") == contents(old)
    assert {(queue.name, queue.messages) for queue in manifest.queues} == {("orders", 31), ("other", 2)}


def test_a_torn_tail_is_cut_and_unsynced_writes_may_be_kept(node: StoredNode, tmp_path: Path) -> None:
    newest = node.segments[-1]
    with open(newest, "ab") as file:
        file.write(newest.read_bytes()[HEADER_BYTES : HEADER_BYTES + 50])
    taken(node, tmp_path / "copy")
    assert held_in(tmp_path / "copy") == node.held


def test_a_segment_that_is_being_created_does_not_count_yet(node: StoredNode, tmp_path: Path) -> None:
    number = int(node.segments[-1].name[:16]) + 1
    header = pack_header(LOG, number, 7)
    base = b"".join(pack_frame(Position(1, 1), [b"b" * 40], len(header), unpack_header(header).seed))
    fresh = node.folder / "store" / f"{number:016d}.segment"
    for size in range(len(header) + len(base)):
        fresh.write_bytes((header + base)[:size])
        taken(node, tmp_path / f"copy{size}")
        assert held_in(tmp_path / f"copy{size}") == node.held


def test_what_does_not_count_is_not_copied(node: StoredNode, tmp_path: Path) -> None:
    store = node.folder / "store"
    number = int(node.segments[-1].name[:16]) + 1
    (store / f"{number:016d}.segment").write_bytes(pack_header(COPY, number, 7))
    (store / f"{number + 1:016d}.segment.new").write_bytes(b"half")
    (store / "owner.json").write_bytes(b"{}")
    manifest = taken(node, tmp_path / "copy")
    names = {file.name for file in manifest.files}
    assert f"{number:016d}.segment" not in names and "owner.json" not in names
    assert set(os.listdir(tmp_path / "copy" / "store")) == names


class Racing(HeldFiles):
    """The node works on each time before a file is held."""

    node: StoredNode
    random: Random
    vanished = 0

    def hold(self, path: str) -> None:
        if self.random.random() < 0.6:
            self.node.work(self.random.choice((1, 10, 60)), keep=self.random.choice((3, 1000)))
            for sequence in self.random.sample(self.node.held, min(5, len(self.node.held))):
                self.node.consume(sequence)
        try:
            super().hold(path)
        except FileNotFoundError:
            Racing.vanished += 1
            raise


def test_segments_that_come_and_go_meanwhile(
    node: StoredNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("understudy.archive.take.HeldFiles", Racing)
    monkeypatch.setattr(Racing, "node", node, raising=False)
    monkeypatch.setattr(Racing, "random", Random(seed), raising=False)
    monkeypatch.setattr(Racing, "vanished", 0)
    for number in range(100):
        begun = len(node.states) - 1
        manifest = taken(node, tmp_path / f"copy{number}")
        found = frozenset(held_in(tmp_path / f"copy{number}"))
        assert found in node.states[begun:], f"seed {seed}: it was held at no time since {begun}"
        assert manifest.messages == len(found)
        if Racing.vanished >= 3 and number >= 10:
            break
    assert Racing.vanished >= 3


class Fleeing(HeldFiles):
    """The node is always faster."""

    node: StoredNode

    def hold(self, path: str) -> None:
        if path in self._held:
            return
        before = self.node.segments
        while self.node.segments == before:
            self.node.publish(12)
        raise FileNotFoundError(2, "No such file or directory", path)


def test_a_node_that_is_always_faster_ends_in_a_sentence(
    node: StoredNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.archive.take.HeldFiles", Fleeing)
    monkeypatch.setattr(Fleeing, "node", node, raising=False)
    monkeypatch.setattr(pinned_segments, "_ATTEMPTS", 5)
    with pytest.raises(BackupFailed, match="changes faster than it can be read"):
        taken(node, tmp_path / "copy")
    assert os.listdir(tmp_path) == ["data"]


# -- the state of the node


def test_a_node_that_catches_up_is_refused(node: StoredNode, tmp_path: Path) -> None:
    node.save_record(in_sync=True, incomplete=True)
    for stale in (False, True):
        with pytest.raises(BackupFailed, match="left is catching up"):
            taken(node, tmp_path / "copy", stale=stale)
    assert os.listdir(tmp_path) == ["data"]


def test_a_backup_in_sync_is_as_good_as_its_primary(node: StoredNode, tmp_path: Path) -> None:
    node.save_record(in_sync=True)
    assert not taken(node, tmp_path / "copy").stale


def test_a_node_that_is_not_in_its_record_is_refused_unless_stale(node: StoredNode, tmp_path: Path) -> None:
    node.save_record()
    with pytest.raises(BackupFailed, match="not in its own in-sync record"):
        taken(node, tmp_path / "copy")
    assert os.listdir(tmp_path) == ["data"]
    assert taken(node, tmp_path / "copy", stale=True).stale
    assert load_manifest(tmp_path / "copy").stale


def test_an_earlier_life_in_the_record_does_not_count(node: StoredNode, tmp_path: Path) -> None:
    node.close()
    again = StoredNode(node.folder, cluster=False)
    with closing(again), pytest.raises(BackupFailed, match="not in its own in-sync record"):
        taken(again, tmp_path / "copy")


def test_a_standalone_node_has_no_record(tmp_path: Path) -> None:
    with closing(StoredNode(tmp_path / "data", cluster=False)) as node:
        node.work(20)
        manifest = taken(node, tmp_path / "copy")
    assert manifest.in_sync_record is None and not manifest.stale
    assert held_in(tmp_path / "copy") == node.held


class Marking(HeldFiles):
    """The node begins to catch up while its files are opened."""

    node: StoredNode

    def hold(self, path: str) -> None:
        super().hold(path)
        self.node.save_record(in_sync=True, incomplete=True)


def test_a_node_that_begins_to_catch_up_meanwhile_is_refused(
    node: StoredNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.archive.take.HeldFiles", Marking)
    monkeypatch.setattr(Marking, "node", node, raising=False)
    with pytest.raises(BackupFailed, match="left is catching up"):
        taken(node, tmp_path / "copy")


# -- bad input


def refused(data: Path, out: Path, match: str) -> str:
    """`take` refuses in one line, and leaves everything unchanged."""
    top = data.parent
    before = contents(top)
    with pytest.raises(BackupFailed, match=match) as caught:
        take(data, out, stale=False, bar=quiet)
    assert "\n" not in str(caught.value)
    assert contents(top) == before
    assert not out.with_name(out.name + ".partial").exists()
    return str(caught.value)


def test_folders_that_make_no_sense(node: StoredNode, tmp_path: Path) -> None:
    data, full = node.folder, tmp_path / "full"
    full.mkdir()
    (full / "x").write_text("mine")
    for source, out, match in (
        (tmp_path / "nowhere", tmp_path / "copy", "nowhere is not a data directory: there is no such folder"),
        (full, tmp_path / "copy", r"full is not a data directory: it has no node\.json"),
        (data / "node.json", tmp_path / "copy", r"node\.json is not a data directory"),
        (data, full, "full is not empty"),
        (data, full / "x", "x is not a folder"),
        (data, data / "copy", "copy lies within .*data"),
        (data, tmp_path, "data lies within"),
        (data, data, "is both source and target"),
        (data, Path("/proc"), "/proc is a mount point"),
    ):
        with pytest.raises(BackupMisuse):
            take(source, out, stale=False, bar=quiet)
        refused(source, out, match)


def test_a_node_with_nothing_on_disk(node: StoredNode, tmp_path: Path) -> None:
    store = node.folder / "store"
    store.rename(tmp_path / "elsewhere")
    refused(node.folder, tmp_path / "copy", "holds no store: nothing of this node is on disk")
    store.mkdir()
    refused(node.folder, tmp_path / "copy", "holds no segments")


@pytest.mark.parametrize("name", ["node.json", "insync.json"])
def test_a_damaged_node_file(node: StoredNode, tmp_path: Path, name: str) -> None:
    path = node.folder / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    refused(node.folder, tmp_path / "copy", f"data/{name} is damaged")


def test_a_flipped_byte_in_what_counts_is_found(small: StoredNode, tmp_path: Path) -> None:
    counted = [file.name for file in taken(small, tmp_path / "whole").files]
    for name in counted:
        path = small.folder / "store" / name
        whole = path.read_bytes()
        for at in (5, len(whole) // 2, len(whole) - 60):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            if name != counted[-1] or at < 100:
                refused(small.folder, tmp_path / "copy", f"data/store/{name} is damaged at offset")
        path.write_bytes(whole)
    path = small.folder / "store" / counted[0]
    path.rename(tmp_path / "elsewhere")
    said = refused(small.folder, tmp_path / "copy", "is damaged: ")
    assert f"{path} is missing" in said


def test_a_base_that_counts_on_what_is_not_there(node: StoredNode, tmp_path: Path) -> None:
    index = node.store.index
    index.add(min(index.live_segments()), QUEUE, node.epoch, 9001, 9003)
    node.store.roll(node.base)
    node.driver.run()
    held = len(node.held)
    refused(node.folder, tmp_path / "copy", f"holds {held} messages of queue .*, but counts {held + 3}")


def test_the_store_of_a_later_version(node: StoredNode, tmp_path: Path) -> None:
    head = bytearray(node.segments[-1].read_bytes())
    head[8] = 9
    head[32:36] = zlib.crc32(head[:32]).to_bytes(4, "little")
    node.segments[-1].write_bytes(head)
    refused(node.folder, tmp_path / "copy", "has format 9")


def test_no_space_is_seen_before_anything_is_written(
    node: StoredNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def free(blocks: int) -> None:
        found = os.statvfs_result((4096, 4096, 1 << 20, blocks, blocks, 0, 0, 0, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda path: found)

    free(0)
    refused(node.folder, tmp_path / "copy", r"no space for .*copy: it needs [0-9,]+ bytes, and .* has 0")
    free((256 << 20) // 4096)
    refused(node.folder, tmp_path / "copy", r"268,435,456 must stay free for the broker on this disk")
    free((257 << 20) // 4096)
    taken(node, tmp_path / "copy")


# -- interrupted


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left"), OSError(errno.EACCES, "Permission denied")],
)
def test_an_end_at_any_step_leaves_nothing_or_the_whole(
    small: StoredNode, tmp_path: Path, error: BaseException
) -> None:
    before = contents(small.folder)
    out = tmp_path / "copy"

    def stop() -> None:
        raise error

    for at in range(1000):
        with ending(at, stop) as calls:
            try:
                taken(small, out)
            except KeyboardInterrupt:
                pass
            except BackupFailed as failed:
                assert re.search("(?i)no space left|permission denied", str(failed))
                assert "\n" not in str(failed) and "/" in str(failed)
        assert contents(small.folder) == before
        assert set(os.listdir(tmp_path)) <= {"data", "copy"}, calls
        if out.exists():
            assert load_manifest(out) and held_in(out) == small.held
            if len(calls) <= at:
                break
            shutil.rmtree(out)
    assert at > 20


def test_a_kill_at_any_step_leaves_nothing_that_passes_for_a_copy(small: StoredNode, tmp_path: Path) -> None:
    before = contents(small.folder)
    out, at, left = tmp_path / "copy", 0, 0
    while killed_at(at, lambda: taken(small, out)):
        assert contents(small.folder) == before
        left += (tmp_path / "copy.partial").exists()
        if not out.exists():
            taken(small, out)
        assert sorted(os.listdir(tmp_path)) == ["copy", "data"]
        assert load_manifest(out) and held_in(out) == small.held
        shutil.rmtree(out)
        at += 1
    assert at > 20 and left > 10


def test_two_at_once_and_what_is_not_ours(node: StoredNode, tmp_path: Path) -> None:
    out, partial = tmp_path / "copy", tmp_path / "copy.partial"

    def another(what: str, total: int) -> nullcontext[Progress]:
        with pytest.raises(BackupFailed, match=r"another backup is writing .*copy\.partial"):
            taken(node, out)
        return quiet(what, total)

    take(node.folder, out, stale=False, bar=another)
    assert held_in(out) == node.held
    shutil.rmtree(out)
    partial.mkdir()
    (partial / "thesis.txt").write_text("mine")
    with pytest.raises(BackupFailed, match=r"copy\.partial holds files that no backup writes"):
        taken(node, out)
    assert (partial / "thesis.txt").read_text() == "mine"


def test_out_that_fills_meanwhile_is_not_overwritten(node: StoredNode, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    out.mkdir()

    def fill(what: str, total: int) -> nullcontext[Progress]:
        (out / "x").write_text("mine")
        return quiet(what, total)

    with pytest.raises(BackupFailed, match="cannot rename the finished copy"):
        take(node.folder, out, stale=False, bar=fill)
    assert contents(out) == {"x": b"mine"}
    assert sorted(os.listdir(tmp_path)) == ["copy", "data"]
