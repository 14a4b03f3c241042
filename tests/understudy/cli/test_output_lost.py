"""Output that nobody reads any more, or that cannot be written: never the exit code of a finding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark.watch.checkpoint import Checkpoint
from tests.understudy.serving import PATIENCE, serving
from understudy.ledger.writer import LedgerWriter

FULL = "cannot write the output: No space left on device\n"

_JUDGED = """
import sys
import spark.reconcile.job
totals = dict.fromkeys("published confirmed received lost duplicated in_doubt".split(), 0)
answer = {"verdict": "violated", "sentence": "Lost.", "totals": totals, "outage_ms": None, "queues": []}
answer |= {"findings": [], "missing": [], "clocks": []}
spark.reconcile.job.reconcile_folders = lambda *_, **__: answer
"""
_UNDERSTUDY = _JUDGED + "from understudy.__main__ import main; sys.argv[0] = 'understudy'; main()"
_SPARK = _JUDGED + "spark.reconcile.job.program()"
_BROKEN = """
import sys
import spark.reconcile.job
def broken(*_, **__):
    raise {error}
spark.reconcile.job.reconcile_folders = broken
"""


@contextmanager
def _nobody() -> Iterator[int]:
    """A pipe whose reader went away."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@contextmanager
def _full() -> Iterator[int]:
    with open("/dev/full", "wb") as full:
        yield full.fileno()


def _run(out: int, *command: str, patience: float = PATIENCE) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, text=True,
        timeout=patience,
    )  # fmt: skip
    return done.returncode, done.stderr


def _both(who: str, *command: str, env_unbuffered: bool = False) -> None:
    before = ["-u"] if env_unbuffered else []
    with _nobody() as out:
        assert _run(out, *before, *command) == (141, "")
    with _full() as out:
        assert _run(out, *before, *command) == (3, f"{who}: {FULL}")


@pytest.fixture
def ledgers(tmp_path: Path) -> Path:
    LedgerWriter(str(tmp_path / "ledgers"), "p", "producer", incarnation=1).close()
    return tmp_path / "ledgers"


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["reconcile", "--help"], ["ledger", "check"]]
)
def test_a_command_whose_output_is_lost(arguments: list[str], unbuffered: bool, ledgers: Path) -> None:
    folders = [str(ledgers)] if arguments == ["ledger", "check"] else []
    _both("understudy", "-m", "understudy", *arguments, *folders, env_unbuffered=unbuffered)


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_verdict_that_nobody_hears_is_none(form: str, ledgers: Path) -> None:
    arguments = ["-c", _UNDERSTUDY, "reconcile", str(ledgers), "--format", form]
    with open(os.devnull, "wb") as out:
        assert _run(out.fileno(), *arguments)[0] == 1, "violated"
    _both("understudy", *arguments)


def test_a_verdict_of_the_job_alone_that_nobody_hears_is_none(ledgers: Path) -> None:
    with open(os.devnull, "wb") as out:
        assert _run(out.fileno(), "-c", _SPARK, str(ledgers))[0] == 1, "violated"
    _both("reconcile", "-c", _SPARK, str(ledgers))
    _both("reconcile", "-m", "spark.reconcile", "--help")


@pytest.mark.system
def test_the_job_itself_under_a_reader_that_goes_away(ledgers: Path) -> None:
    pytest.importorskip("pyspark")
    with _nobody() as out:
        assert _run(out, "-m", "spark.reconcile", str(ledgers), patience=300)[0] == 141


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("OSError(5, 'Input/output error', '/ledgers/p')", "/ledgers/p: Input/output error\n"),
        ("MemoryError()", "MemoryError\n"),
    ],
)
def test_a_job_that_breaks_down_has_found_nothing(error: str, said: str, ledgers: Path) -> None:
    prepared = _BROKEN.format(error=error)
    begun = prepared + _UNDERSTUDY.removeprefix(_JUDGED), prepared + _SPARK.removeprefix(_JUDGED)
    for code, arguments in zip(begun, (["reconcile", str(ledgers)], [str(ledgers)]), strict=True):
        with open(os.devnull, "wb") as out:
            status, told = _run(out.fileno(), "-c", code, *arguments)
        assert status == 3
        assert told.endswith(said)
        assert (told.count("\n") == 1) == said.startswith("/"), told


def test_alarms_that_nobody_hears_are_told_at_the_next_start(tmp_path: Path, ledgers: Path) -> None:
    kept = tmp_path / "kept"
    alarm = {"n": 1, "ts_us": 0, "severity": "loss", "kind": "lost", "sentence": "Lost.", "key": "k"}
    checkpoint = Checkpoint(kept)
    checkpoint.journal.append([alarm])
    checkpoint.close()
    _both("understudy", "-m", "understudy", "watch", "--once", str(ledgers), "--checkpoint", str(kept))
    assert not (kept / "printed").exists(), "told"


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_node_is_asked_for_nobody(form: str, tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        for command in ("status", "query"):
            _both("understudy", "-m", "understudy", command, "-b", str(node.amqp), "--format", form)
        assert node.stop() == 0


def test_an_error_that_nobody_hears_keeps_its_code(ledgers: Path) -> None:
    for out in (_nobody, _full):
        with out() as err:
            done = subprocess.run(
                [sys.executable, "-m", "understudy", "reconcile", str(ledgers / "gone")],
                stdout=subprocess.PIPE, stderr=err, timeout=PATIENCE,
            )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, b"")


def test_a_log_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    """Standard error of a broker, in a file on a disk that was full for a while."""
    code = (
        "import os, sys; from spark.streams import prepare; prepare()\n"
        "print('lost', file=sys.stderr)\n"
        "os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 2)\n"
        "print('kept', file=sys.stderr)\n"
    )
    with _full() as err:
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "log")], stderr=err, check=True)
    assert (tmp_path / "log").read_text() == "kept\n"


def test_output_that_is_read_is_as_ever(ledgers: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "understudy", "ledger", "check", str(ledgers), "--format", "json"],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["ledgers"][0]["writer"] == "p"
