"""A kill of the driver at any step: each batch counts once, and the journal has each alarm once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark.watch import query
from spark.watch.checkpoint import Checkpoint, CheckpointError, Cursor
from spark.watch.judge import Limits
from spark.watch.query import Watch
from tests.spark.watch.history import Stage
from tests.spark.watch.test_judge import Scene, pair


class Batch:
    """Stands for a DataFrame, as far as the watch uses it."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def toArrow(self) -> Batch:
        return self

    def to_pylist(self) -> list[dict[str, Any]]:
        return self._rows


class Killed(BaseException):
    pass


def batches_of(scene: Scene) -> list[Batch]:
    """The rows of every batch that the scene's judge has seen."""
    return [Batch(rows) for rows in scene.stage.shown]


def a_loss() -> Scene:
    scene = pair()
    made = {"prod": "p.1.1/1", "first": 1, "last": 4}
    scene.say("p", "confirmed", **made)
    scene.say("a", "unrouted", prod="p.1.1/1", first=1, last=2)
    assert scene.beat("a", "b", "p", "c") == ["unplaced"]
    assert scene.beat("a", "p", "c", batches=20) == ["silent"]
    return scene


def run(
    folder: Path, batches: list[Batch], die: tuple[int, str] | None, patch: pytest.MonkeyPatch
) -> list[Any]:
    """One life of the driver: takes batches from the last one that Spark marked as done, until it is killed.

    `die`: the batch, and the step of `Checkpoint`, before which it is killed.
    """
    checkpoint = Checkpoint(folder)
    try:
        watch = Watch([], checkpoint, Limits(), [])
        noted = folder / "noted"
        for number in range(int(noted.read_text()) if noted.exists() else 0, len(batches)):
            with patch.context() as patched:
                if die is not None and number == die[0]:
                    step = die[1]
                    of = checkpoint.journal if step == "append" else checkpoint
                    if step != "note":
                        patched.setattr(of, step, _killed)
                watch._batch(batches[number], number)  # type: ignore[arg-type]
            if die == (number, "note"):
                raise Killed
            noted.write_text(str(number + 1))
    finally:
        checkpoint.close()
    return [json.loads(line) for line in (folder / "alarms.jsonl").read_text().splitlines()]


def _killed(*_: Any, **__: Any) -> None:
    raise Killed


@pytest.mark.parametrize("step", ["save", "append", "note"])
def test_a_kill_at_any_step_of_any_batch_changes_nothing(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)  # the process is killed, not the machine: no need to sync
    batches = batches_of(a_loss())
    whole = run(tmp_path / "whole", batches, None, monkeypatch)
    assert [line["kind"] for line in whole] == ["unplaced", "silent"]
    for number in range(len(batches)):
        folder = tmp_path / f"killed-{number}"
        with pytest.raises(Killed):
            run(folder, batches, (number, step), monkeypatch)
        again = run(folder, batches, None, monkeypatch)
        for line in (*whole, *again):
            line.pop("key", None)
        assert again == whole


def test_a_torn_line_of_the_journal_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = batches_of(a_loss())
    folder = tmp_path / "c"
    whole = run(folder, batches, None, monkeypatch)
    journal = folder / "alarms.jsonl"
    journal.write_bytes(journal.read_bytes()[:-5])
    newest = sorted((folder / "state").glob("*.json"))[-1]
    saved = json.loads(newest.read_text())
    saved["alarms"] = [whole[-1]]
    newest.write_text(json.dumps(saved))
    assert run(folder, batches, None, monkeypatch) == whole


def test_a_checkpoint_has_one_owner(tmp_path: Path) -> None:
    first = Checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="another watch uses"):
        Checkpoint(tmp_path)
    first.close()
    second = Checkpoint(tmp_path)
    assert second.watch == first.watch
    second.close()


def test_a_checkpoint_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    watch = Watch([], checkpoint, Limits(), [])
    with pytest.raises(CheckpointError, match="not whole"):
        watch._batch(Batch([]), 7)  # type: ignore[arg-type]
    checkpoint.save(3, {"judge": {"form": 99}, "alarms": []})
    with pytest.raises(CheckpointError, match="cannot be used"):
        Watch([], checkpoint, Limits(), [])
    checkpoint.close()


def test_a_cursor_remembers(tmp_path: Path) -> None:
    Cursor(tmp_path / "n").move(7)
    assert Cursor(tmp_path / "n").n == 7


def test_options_of_spark_name_only_loopback() -> None:
    assert {value for key, value in query.CONFIG.items() if "host" in key or "bind" in key} == {"127.0.0.1"}


def test_the_stage_shows_what_a_source_would(tmp_path: Path) -> None:
    """Rows of the stage have the same columns as rows of the stream."""
    from spark.watch.lines import ROW

    stage = Stage(1)
    stage.batch({})
    assert set(stage.shown[0][0]) == set(ROW.names)
