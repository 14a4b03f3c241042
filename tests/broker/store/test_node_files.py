"""Identity, incarnation, epoch and in-sync set across restarts; and unusable directories."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.store.errors import StoreCorrupt, StoreError, StoreLocked, StoreMisuse, StoreUnusable
from broker.store.files import RealFiles
from broker.store.node_files import NodeFiles, RecordFile
from tests.simulation.harness.machines.virtual_disk import VirtualDisk

ID = "0123456789abcdef" * 2


def opened(disk: VirtualDisk, name: str = "a", number: int | None = None) -> NodeFiles:
    return NodeFiles.open(disk, "/data", name, number=number, new_id=lambda: ID)


def test_a_new_node_gets_an_identity_that_it_keeps() -> None:
    disk = VirtualDisk()
    first = opened(disk)
    assert first.identity.node_id == ID
    assert (first.identity.incarnation, first.identity.cluster_id, first.epoch) == (1, None, 0)
    assert 1 <= first.identity.number <= 65535
    first.set_cluster("c")
    first.raise_epoch(65537)
    first.raise_epoch(5)
    disk.power_loss()
    second = NodeFiles.open(disk, "/data", "renamed", new_id=lambda: "f" * 32)
    assert second.identity.node_id == ID
    assert second.identity.name == "renamed"
    assert second.identity.cluster_id == "c"
    assert second.identity.number == first.identity.number
    assert (second.identity.incarnation, second.epoch) == (2, 65537)


def test_a_node_without_the_store_that_it_had_is_refused() -> None:
    """It could be promoted as if it were complete. Before its first epoch it has nothing to lose."""
    for epoch in (0, 65537):
        disk = VirtualDisk()
        opened(disk).raise_epoch(epoch)
        disk.unlink("/data/store/owner.json")
        disk.sync_directory("/data/store")
        disk.kill()
        if not epoch:
            assert opened(disk).identity.incarnation == 2
            continue
        with pytest.raises(StoreUnusable, match=r"/data/store is gone or empty.*mounted.*join as a new one"):
            opened(disk)
        disk.place("/data/store/00000001.segment", b"")
        assert opened(disk).identity.incarnation == 2, "of a time before stores said whose they are"


def test_the_number_may_be_given() -> None:
    disk = VirtualDisk()
    assert opened(disk, number=2).identity.number == 2
    disk.kill()
    assert opened(disk, number=3).identity.number == 3
    disk.kill()
    assert opened(disk).identity.number == 3


def test_a_node_does_not_change_its_cluster() -> None:
    node = opened(VirtualDisk())
    node.set_cluster("c")
    node.set_cluster("c")
    with pytest.raises(StoreMisuse, match="belongs to cluster c"):
        node.set_cluster("d")


def test_the_record_is_kept() -> None:
    disk = VirtualDisk()
    node = opened(disk)
    assert node.record.load() is None
    node.record.save({"epoch": 1, "in_sync": [["ab", 3]], "owner": "é"})
    node.record.save({"epoch": 2, "in_sync": [], "owner": "é"})
    disk.power_loss()
    assert opened(disk).record.load() == {"epoch": 2, "in_sync": [], "owner": "é"}


@pytest.mark.parametrize("flip", [0x01, 0x20, 0xFF])
@pytest.mark.parametrize("name", ["node.json", "insync.json", "store/owner.json"])
def test_a_file_damaged_at_any_byte_is_refused_by_name(name: str, flip: int) -> None:
    whole = VirtualDisk()
    node = opened(whole)
    node.record.save({"epoch": 1, "owner": "abc"})
    node.close()
    path = f"/data/{name}"
    for offset in range(whole.size(path)):
        disk = copy.deepcopy(whole)
        disk.damage(path, offset, flip)
        with pytest.raises(StoreError, match=path):
            opened(disk).record.load()


def test_the_remedy_for_a_damaged_owner_file_works() -> None:
    disk = VirtualDisk()
    opened(disk).close()
    disk.damage("/data/store/owner.json", 30)
    with pytest.raises(StoreCorrupt, match="remove the file: the next start writes it anew"):
        opened(disk)
    disk.unlink("/data/store/owner.json")
    opened(disk).close()
    assert disk.read("/data/store/owner.json")


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b"null", b'{"format":1,"checksum":"x","body":3}', b"[" * 10**5]
)
def test_a_file_that_is_not_ours_is_refused(raw: bytes) -> None:
    disk = VirtualDisk()
    disk.make_directory("/data")
    disk.place("/data/r.json", raw)
    with pytest.raises(StoreCorrupt, match=r"/data/r\.json"):
        RecordFile(disk, "/data", "r.json").load()


def test_an_identity_with_missing_fields_is_refused() -> None:
    disk = VirtualDisk()
    disk.make_directory("/data")
    RecordFile(disk, "/data", "node.json").save({"epoch": 1, "name": "a"})
    with pytest.raises(StoreCorrupt, match="field"):
        opened(disk)


@pytest.mark.parametrize(("field", "value"), [
    ("incarnation", "3"), ("incarnation", None), ("incarnation", -1), ("incarnation", True),
    ("incarnation", 2**70),
    ("epoch", float("inf")), ("epoch", -5), ("epoch", 1.5), ("epoch", 2**63), ("epoch", "7"),
    ("number", 0), ("number", 70_000), ("number", 1.5), ("number", None),
    ("node_id", ""), ("node_id", 5), ("name", None), ("cluster_id", 3),
])  # fmt: skip
def test_an_identity_with_invalid_fields_is_refused_unchanged(field: str, value: object) -> None:
    """With a number above 65535, an epoch could be another node's."""
    disk = VirtualDisk()
    opened(disk).close()
    node = RecordFile(disk, "/data", "node.json")
    node.save({**(node.load() or {}), field: value})
    before = disk.contents()
    with pytest.raises(
        StoreCorrupt, match=rf"^/data/node\.json is damaged at offset 0: {field} cannot be that"
    ):
        opened(disk)
    assert disk.contents() == before


def test_an_unreadable_record_is_refused_before_any_change() -> None:
    disk = VirtualDisk()
    opened(disk).close()
    disk.place("/data/insync.json", b"{}")
    before = disk.contents()
    with pytest.raises(StoreCorrupt, match=r"/data/insync\.json.*nothing was changed"):
        opened(disk)
    assert disk.contents() == before


@pytest.mark.parametrize("left", ["insync.json", "store/0000000000000001.segment"])
def test_data_without_an_identity_is_refused(left: str) -> None:
    disk = VirtualDisk()
    disk.make_directory("/data/store")
    disk.place(f"/data/{left}", b"x")
    with pytest.raises(StoreUnusable, match=r"no node\.json"):
        opened(disk)


def test_another_nodes_store_is_refused_and_an_unowned_one_adopted() -> None:
    disk = VirtualDisk()
    opened(disk).close()
    mine = disk.read("/data/store/owner.json")
    RecordFile(disk, "/data/store", "owner.json").save({"node_id": "f" * 32})
    before = disk.contents()
    with pytest.raises(
        StoreUnusable, match=rf"/data/store is the store of node f{{32}}, .* of node {ID}: "
    ) as told:
        opened(disk)
    assert "\n" not in str(told.value) and disk.contents() == before
    disk.unlink("/data/store/owner.json")
    assert opened(disk).identity.incarnation == 2
    assert disk.read("/data/store/owner.json") == mine


def test_foreign_files_do_no_harm() -> None:
    disk = VirtualDisk()
    disk.make_directory("/data")
    disk.place("/data/holiday.jpg", b"jpg")
    disk.place("/data/node.json.new", b"half")
    opened(disk).close()
    assert disk.read("/data/holiday.jpg") == b"jpg"


def test_two_processes_do_not_share_a_directory() -> None:
    disk = VirtualDisk()
    node = opened(disk)
    with pytest.raises(StoreLocked, match="/data is in use by process"):
        opened(disk)
    node.close()
    assert opened(disk).identity.incarnation == 2


def test_a_refused_start_does_not_keep_the_lock() -> None:
    disk = VirtualDisk()
    opened(disk).close()
    disk.failing["sync"] = 5
    with pytest.raises(StoreUnusable):
        opened(disk)
    disk.failing.clear()
    opened(disk)


def test_a_read_only_directory_is_one_clear_line() -> None:
    used = VirtualDisk()
    opened(used).close()
    for disk in (VirtualDisk(), used):
        disk.read_only = True
        with pytest.raises(StoreUnusable, match=r"/data.*Read-only") as caught:
            opened(disk)
        assert "\n" not in str(caught.value)


def test_a_save_that_fails_leaves_the_old_one() -> None:
    disk = VirtualDisk()
    node = opened(disk)
    node.record.save({"epoch": 1})
    for operation in ("write", "sync", "replace"):
        disk.failing = {operation: 28}
        with pytest.raises(StoreUnusable, match=r"insync\.json: No space"):
            node.record.save({"epoch": 2})
        with pytest.raises(StoreUnusable):
            node.raise_epoch(9)
        assert node.epoch == 0
        disk.failing = {}
        assert node.record.load() == {"epoch": 1}
    node.record.save({"epoch": 3})
    assert node.record.load() == {"epoch": 3}


# -- the kernel's own files ----------------------------------------------------------------------------------


def real(directory: Path) -> NodeFiles:
    return NodeFiles.open(RealFiles(), str(directory), "a")


def test_a_real_directory(tmp_path: Path) -> None:
    directory = tmp_path / "one" / "two"
    node = real(directory)
    node.raise_epoch(7)
    node.record.save({"x": 1})
    with pytest.raises(StoreLocked, match=r"in use by process [0-9]+"):
        real(directory)
    node.close()
    again = real(directory)
    assert (again.identity.incarnation, again.epoch) == (2, 7)
    assert again.identity.node_id == node.identity.node_id
    assert again.record.load() == {"x": 1}
    assert sorted(p.name for p in directory.iterdir()) == ["insync.json", "lock", "node.json", "store"]
    again.close()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from broker.store.files import RealFiles\n"
        "from broker.store.node_files import NodeFiles\n"
        "node = NodeFiles.open(RealFiles(), sys.argv[1], 'a'); print('open', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == b"open\n"
        with pytest.raises(StoreLocked, match=f"in use by process {child.pid}"):
            real(tmp_path)
    finally:
        child.kill()
        child.communicate()
    assert real(tmp_path).identity.incarnation == 2


def in_a_file(path: Path) -> str:
    (path / "file").write_text("x")
    return str(path / "file" / "data")


def a_file(path: Path) -> str:
    (path / "file").write_text("x")
    return str(path / "file")


@pytest.mark.parametrize("where", [in_a_file, a_file, lambda path: "/proc/nowhere/data"])
def test_a_real_place_that_cannot_hold_data(tmp_path: Path, where: Callable[[Path], str]) -> None:
    path = where(tmp_path)
    with pytest.raises(StoreUnusable, match=path) as caught:
        NodeFiles.open(RealFiles(), path, "a")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["insync.json", "node.json"])
def test_a_link_to_nothing_is_not_taken_for_a_file_that_never_was(tmp_path: Path, name: str) -> None:
    """A node that wrongly believes to have no record could be promoted as the first primary ever."""
    directory = str(tmp_path / "data")
    node = NodeFiles.open(RealFiles(), directory, "a")
    node.record.save({"epoch": 1})
    node.close()
    path = tmp_path / "data" / name
    path.rename(tmp_path / name)
    path.symlink_to(tmp_path / "elsewhere" / name)

    def files() -> list[tuple[str, bytes]]:
        there = [p for p in path.parent.iterdir() if p.is_file() and p.name != "lock"]
        return sorted((p.name, p.read_bytes()) for p in there)

    before = files()
    with pytest.raises(StoreUnusable, match=rf"^{path} is a link to nothing: put back what it leads to; or"):
        NodeFiles.open(RealFiles(), directory, "a")
    assert files() == before
    path.unlink()
    (tmp_path / name).rename(path)
    NodeFiles.open(RealFiles(), directory, "a").close()


def test_a_damaged_only_copy_should_not_be_moved_away() -> None:
    """A standalone broker has no peer to fetch from."""
    told = str(StoreCorrupt("/data/insync.json", 0, "its checksum does not match"))
    assert told.endswith(
        "nothing was changed; if another node holds everything, move this data directory away and start the "
        "node with an empty one; otherwise restore an archive"
    )
