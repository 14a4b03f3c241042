"""Bad input to `understudy reconcile`: the right exit status and one sentence for each, never a stack trace.

Cases without Spark are tested one by one. Cases with Spark are put into one folder together, because each
must be reported whatever else is wrong. `make soak-ledgers` also tests each alone.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyspark")

import spark.reconcile.job
import spark.session
from tests.spark.histories.generate import HOUR_US, History, Plan
from tests.spark.histories.ledgers import Ledgers
from understudy.cli.reconcile import reconcile_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Spoil = Callable[[Path], None]


def run(*arguments: object) -> Result:
    """Run the command in this process."""
    done = CliRunner().invoke(reconcile_command, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output + done.stderr
    return done


def one_line(done: Result, status: int, words: str) -> None:
    assert (done.exit_code, done.stdout) == (status, "") and words in done.stderr, done.output
    assert done.stderr.count("\n") == 1


@pytest.fixture
def warm(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Make the command use the suite's session, and leave it open."""
    monkeypatch.setattr(session, "stop", lambda: None)
    monkeypatch.setattr(spark.session, "open_session", lambda *_, **__: session)
    return session


def answer_to(folder: Path, status: int) -> dict[str, Any]:
    done = run(folder, "--format", "json")
    assert done.exit_code == status, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def ledgers(folder: Path, skew_us: dict[str, int] | None = None, seed: int = 4) -> Path:
    """A proven history of two brokers with a crash, one file for each process."""
    history = History(Plan(seed, 150, 2, 2, 2, 2, ("crash",), "small"))
    history.ledgers.skew_us |= skew_us or {}
    whole = random.Random(seed)
    whole.randint = lambda a, b: a  # type: ignore[method-assign]
    return history.ledgers.write(folder, whole)


# -- without Spark


def test_an_empty_directory(tmp_path: Path) -> None:
    one_line(run(tmp_path), 2, "no *.ledger.jsonl below")


def test_a_directory_of_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "ledger.jsonl").write_text("{}\n")
    one_line(run(tmp_path), 2, "no *.ledger.jsonl below")


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    one_line(run(tmp_path / "gone"), 2, "no such folder")


def test_a_foreign_file_instead_of_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("nothing")
    one_line(run(file), 2, "no *.ledger.jsonl below")


def test_no_folder_at_all() -> None:
    one_line(run(), 3, "Missing argument")


def test_the_module_prints_the_same_errors_as_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, status in ((tmp_path, 2), (tmp_path / "gone", 2)):
        assert spark.reconcile.job.main([str(folder)]) == status
        told = capsys.readouterr()
        assert told.out == "" and told.err.count("\n") == 1


# -- with Spark: each spoils proven ledgers


def of_another_version(folder: Path) -> None:
    ledger = folder / "p1-1-0.ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"v": 2,', '"v": 3,'))


def of_two_clusters(folder: Path) -> None:
    stranger = Ledgers()
    for kind, more in (("open", {"name": "broker", "reason": "beef"}), ("seal", {})):
        stranger.note(("z", 1), 1_700_000_000_000_000, 0, kind, **more)
    stranger.write(folder, random.Random(1))


def with_a_sequence_lost(folder: Path) -> None:
    """The consumer restarted with its old incarnation, and counts from 0 again."""
    lines = (folder / "c0-1-0.ledger.jsonl").read_text().splitlines(keepends=True)
    (folder / "c0-1-1.ledger.jsonl").write_text("".join(lines[:1]))


def torn_in_the_middle(folder: Path) -> None:
    ledger = folder / "p0-1-0.ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    lines.insert(5, lines[5][:20] + "\n")
    ledger.write_text("".join(lines))


def parquet_without_footer(folder: Path) -> None:
    (folder / "c1-1-1.ledger.parquet").write_bytes(b"PAR1" + bytes(range(200)))


def an_empty_ledger(folder: Path) -> None:
    (folder / "c1-1-2.ledger.jsonl").touch()


BAD: dict[str, tuple[Spoil, str]] = {
    "schema": (of_another_version, "have schema version 3"),
    "clusters": (of_two_clusters, "ledgers of 2 clusters are mixed: beef, c1a5"),
    "sequence": (with_a_sequence_lost, "the ledger of c0 (incarnation 1) numbers records 0..0 twice"),
    "torn": (torn_in_the_middle, "a line of p0-1-0.ledger.jsonl cannot be read"),
    "footer": (parquet_without_footer, "c1-1-1.ledger.parquet cannot be read"),
    "empty": (an_empty_ledger, "c1-1-2.ledger.jsonl is empty"),
}


@pytest.mark.system
def test_each_of_several_faults_is_named(warm: SparkSession, tmp_path: Path) -> None:
    ledgers(tmp_path)
    for spoil, _ in BAD.values():
        spoil(tmp_path)
    answer = answer_to(tmp_path, 2)
    for name, (_, sentence) in BAD.items():
        assert [text for text in answer["missing"] if sentence in text and "\n" not in text], (
            name,
            answer["missing"],
        )
    assert not [f for f in answer["findings"] if f["severity"] == "violation"]


@pytest.mark.soak
@pytest.mark.parametrize("name", BAD)
def test_each_fault_alone_prevents_a_proof(warm: SparkSession, tmp_path: Path, name: str) -> None:
    spoil, sentence = BAD[name]
    spoil(ledgers(tmp_path))
    answer = answer_to(tmp_path, 2)
    assert [text for text in answer["missing"] if sentence in text], answer["missing"]
    assert sentence in answer["sentence"] or len(answer["missing"]) > 1


@pytest.mark.soak
def test_clocks_hours_apart_are_reported_without_a_finding(warm: SparkSession, tmp_path: Path) -> None:
    """One node's clock is two hours ahead, and a producer's three hours behind."""
    ledgers(tmp_path, {"b": 2 * HOUR_US, "p0": -3 * HOUR_US})
    answer = answer_to(tmp_path, 0)
    assert [f for f in answer["findings"] if f["severity"] != "allowed"] == []
    told = [clock["sentence"] for clock in answer["clocks"] if clock["sentence"]]
    assert any("b" in text and "2 h" in text for text in told), answer["clocks"]
    assert any("p0" in text for text in told), answer["clocks"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_ledger_without_read_permission(warm: SparkSession, tmp_path: Path) -> None:
    ledgers(tmp_path)
    (tmp_path / "p0-1-0.ledger.jsonl").chmod(0)
    done = run(tmp_path)
    assert done.exit_code in (2, 3) and "p0-1-0.ledger.jsonl" in done.output + done.stderr
