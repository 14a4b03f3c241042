"""`understudy backup` and `understudy restore`: what they say, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

import pytest

from tests.understudy.archive.disk_steps import without_syncs
from tests.understudy.archive.stored_node import StoredNode, held_in
from tests.understudy.cli.test_main import understudy
from understudy.archive.manifest import CopiedQueue, Manifest, Progress
from understudy.cli.backup import _tell

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredNode]:
    without_syncs(monkeypatch)
    with closing(StoredNode(tmp_path / "data")) as made:
        made.work(40)
        yield made


def test_there_and_back_for_people(capsys: Capture, node: StoredNode, tmp_path: Path) -> None:
    out, new = tmp_path / "a copy", tmp_path / "new"
    code, said, err = understudy(capsys, "backup", str(node.folder), str(out))
    assert (code, err) == (0, "")
    assert said.startswith(f"archive of left in {out}\n") and f"{len(node.held)}" in said
    assert f"understudy restore '{out}' DATA_DIR" in said
    code, said, err = understudy(capsys, "restore", str(out), str(new), "--name", "phoenix")
    assert (code, err) == (0, "")
    assert f"understudy serve --data-dir {new} --name phoenix" in said
    assert held_in(new) == node.held


def test_there_and_back_for_programs(capsys: Capture, node: StoredNode, tmp_path: Path) -> None:
    out, new = tmp_path / "copy", tmp_path / "new"
    code, said, err = understudy(capsys, "backup", str(node.folder), str(out), "--format", "json")
    told = json.loads(said)
    assert (code, err, told["copy"], told["messages"]) == (0, "", str(out), len(node.held))
    assert told["bytes"] == sum(path.stat().st_size for path in (out / "store").iterdir())
    code, said, err = understudy(capsys, "restore", str(out), str(new), "--format", "json")
    told = json.loads(said)
    assert (code, err, told["name"], told["messages"]) == (0, "", "left", len(node.held))
    assert told["queues"] == [{"name": "71" * 16, "uuid": "71" * 16, "messages": len(node.held)}]


def test_of_ten_thousand_queues_the_fullest_are_shown(capsys: Capture) -> None:
    queues = [CopiedQueue(name=f"q{n}", uuid=f"{n:032x}", messages=n) for n in range(10_000)]
    manifest = Manifest(
        version="1", taken_at="now", node_name="left", node_id="x", incarnation=1, cluster_id=None, epoch=1,
        in_sync_record=None, stale=False, exchanges=0, bindings=0, queues=queues, files=[],
    )  # fmt: skip
    _tell(manifest, "table", {}, "a copy")
    said = capsys.readouterr().out
    assert "q9950" in said and "q9999" in said and "q9949" not in said
    assert f"{sum(range(10_000)):,}" in said
    assert "and 9,950 more queues with no more messages; --format json has all" in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("backup", "{}/nowhere", "{}/copy"), 2, "no such folder"),
        (("backup", "{}/data", "{}/data/copy"), 2, "lies within"),
        (("backup", "{}/data"), 2, "OUT"),
        (("restore", "{}/data", "{}/new"), 2, "is not an archive"),
        (("restore", "{}/data", "{}/new", "--name", ""), 2, "--name: '' is not a broker name"),
        (("restore", "{}/data", "{}/new", "--name", "a\nb"), 2, "--name: 'a\\nb' is not a broker name"),
    ],
)
def test_what_is_wrong_is_one_line(
    capsys: Capture, node: StoredNode, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    found = understudy(capsys, *(argument.format(tmp_path) for argument in arguments))
    assert found[:2] == (code, "")
    assert said in found[2] and found[2].startswith("understudy: ") and found[2].count("\n") == 1
    assert os.listdir(tmp_path) == ["data"]


def test_a_refusal_is_one_line_and_a_stale_copy_says_so(
    capsys: Capture, node: StoredNode, tmp_path: Path
) -> None:
    node.save_record()
    out = tmp_path / "copy"
    code, said, err = understudy(capsys, "backup", str(node.folder), str(out))
    assert (code, said, err.count("\n")) == (1, "", 1)
    assert "left is not in its own in-sync record" in err and "--stale" in err and not out.exists()
    for arguments in (("backup", str(node.folder), str(out), "--stale"), ("restore", str(out), f"{out}2")):
        code, said, err = understudy(capsys, *arguments)
        assert code == 0
        assert err == "understudy: the node was not in sync: the archive may lack confirmed messages\n"


def test_damage_is_one_line(capsys: Capture, node: StoredNode, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    assert understudy(capsys, "backup", str(node.folder), str(out))[0] == 0
    path = min((out / "store").iterdir())
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    code, said, err = understudy(capsys, "restore", str(out), str(tmp_path / "new"))
    assert (code, said) == (1, "")
    assert err.startswith(f"understudy: {path} is damaged: ") and err.endswith("(archive-failed)\n")


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_sigterm_tidies_up(
    capsys: Capture, node: StoredNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    places = {"backup": (node.folder, tmp_path / "out"), "restore": (tmp_path / "copy", tmp_path / "out")}
    assert understudy(capsys, "backup", str(node.folder), str(tmp_path / "copy"))[0] == 0
    before = signal.getsignal(signal.SIGTERM)

    def bar(what: str, total: int) -> AbstractContextManager[Progress]:
        os.kill(os.getpid(), signal.SIGTERM)
        return nullcontext(lambda amount: None)

    monkeypatch.setattr("understudy.cli.backup._bar", bar)
    with pytest.raises(SystemExit) as ended:
        understudy(capsys, command, *map(str, places[command]))
    assert ended.value.code == 128 + signal.SIGTERM
    assert sorted(os.listdir(tmp_path)) == ["copy", "data"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_too_many_segments_for_one_process(node: StoredNode, tmp_path: Path) -> None:
    node.work(400, keep=1)
    assert len(node.segments) > 30
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (25, 25))\n"
        "from understudy.cli.main import main\n"
        "main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "backup", str(node.folder), str(tmp_path / "copy")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "Too many open files: raise the limit of open files (ulimit -n)" in done.stderr
    assert os.listdir(tmp_path) == ["data"]
