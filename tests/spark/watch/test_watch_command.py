"""The whole command on ledgers of real writers: each loss is alarmed once, even if the driver is killed."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from spark.watch.checkpoint import Checkpoint
from spark.watch.judge import Limits
from spark.watch.query import Watch
from tests.spark.watch.history import QUEUE
from understudy.cli.watch import _status, watch
from understudy.ledger.writer import LedgerWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT = 300
EPOCH = 65537


class Site:
    """A primary, a producer and a consumer, whose ledgers grow in a thread."""

    def __init__(self, folder: Path) -> None:
        self.broker = LedgerWriter(str(folder), "a", "broker", incarnation=1, cluster="c1")
        self.producer = LedgerWriter(str(folder), "p", "producer", incarnation=1)
        self.consumer = LedgerWriter(str(folder), "c", "consumer", incarnation=1)
        self.broker.view = EPOCH
        self.broker.record("promote", peer="", reason="bootstrap")
        self.broker.record("definition", queue=QUEUE, name="orders")
        self.next = 1
        self._lose: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.lost: list[int] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def lose(self, count: int) -> None:
        """In the next batch, confirm `count` messages that were never enqueued."""
        self._lose.put(count)

    def wait(self, count: int) -> None:
        """Wait until `count` messages are lost."""
        deadline = time.monotonic() + WAIT
        while len(self.lost) < count:
            assert time.monotonic() < deadline
            self._ended.wait(0.01)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        for writer in (self.broker, self.producer, self.consumer):
            writer.close()

    def _write(self) -> None:
        while not self._ended.wait(0.05):
            first, last = self.next, self.next + 99
            self.next = last + 1
            lost = 0 if self._lose.empty() else self._lose.get()
            where: dict[str, Any] = {"queue": QUEUE, "epoch": EPOCH, "first": first, "last": last - lost}
            self.broker.record("enqueue", **where, prod="p.1.1/1", pfirst=first, n=first)
            self.broker.flush()
            self.producer.record("confirmed", prod="p.1.1/1", first=first, last=last)
            self.producer.flush()
            self.lost += range(last - lost + 1, last + 1)
            for kind in ("received", "acked"):
                self.consumer.record(kind, **where)
            self.consumer.flush()
            self.broker.record("dequeue", **where, reason="acked")


class Running:
    """The command in its own process."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "understudy", "watch", *arguments], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: list[dict[str, Any]] = []
        self._grew = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._grew:
                self.lines.append(json.loads(line))
                self._grew.notify_all()

    def wait(self, count: int) -> None:
        with self._grew:
            assert self._grew.wait_for(lambda: len(self.lines) >= count, WAIT), "no alarm"

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(WAIT)
        self._thread.join()
        return code


def numbers(lines: list[dict[str, Any]]) -> list[int]:
    return [n for line in lines for first, last in line["ranges"] for n in range(first, last + 1)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    pytest.importorskip("pyspark")
    made = Site(tmp_path / "ledgers")
    yield made
    if not made._ended.is_set():
        made.end()


class Kept:
    """A sink that keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def emit(self, lines: list[dict[str, Any]]) -> None:
        self.lines += lines


@pytest.mark.system
def test_losses_are_alarmed_once_across_a_kill_of_the_driver(
    site: Site, tmp_path: Path, session: SparkSession
) -> None:
    folder = tmp_path / "ledgers"
    first = Running(str(folder), "--format", "json", "--heartbeat", "60s")
    site.lose(3)
    first.wait(1)
    site.lose(5)
    site.wait(8)
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    site.lose(7)
    checkpoint, kept = Checkpoint(tmp_path / "ledgers.watch"), Kept()
    again = Watch([folder], checkpoint, Limits(heartbeat=60), [kept], told=lambda _: done())

    def done() -> None:
        site.wait(15)
        if sorted(numbers(first.lines) + numbers(kept.lines)) == site.lost or time.monotonic() > deadline:
            again.stop()

    deadline = time.monotonic() + WAIT
    again.run(session=session)
    journal = checkpoint.journal.after(0)
    checkpoint.close()
    assert sorted(numbers(journal)) == sorted(numbers(first.lines) + numbers(kept.lines)) == site.lost
    assert {line["kind"] for line in journal} == {"unplaced"}
    assert len({line["key"] for line in journal}) == len(journal)


@pytest.mark.soak
def test_the_command_continues_after_a_kill_and_ends_cleanly(site: Site, tmp_path: Path) -> None:
    arguments = (str(tmp_path / "ledgers"), "--format", "json", "--heartbeat", "60s")
    first = Running(*arguments)
    site.lose(3)
    first.wait(1)
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    site.lose(7)
    second = Running(*arguments)
    second.wait(1)
    code = second.end(signal.SIGTERM)
    assert second.process.stderr is not None
    assert (code, second.process.stderr.read()) == (0, "")
    assert sorted(numbers(first.lines + second.lines)) == site.lost


def judged_once(folder: Path, session: SparkSession) -> Watch:
    checkpoint = Checkpoint(folder.with_name("ledgers.watch"))
    try:
        run = Watch([folder], checkpoint, Limits(grace=0.1), [], once=True)
        run.run(session=session)
    finally:
        checkpoint.close()
    return run


@pytest.mark.system
def test_once_judges_the_ledgers_and_the_next_run_continues(
    site: Site, tmp_path: Path, session: SparkSession
) -> None:
    folder = tmp_path / "ledgers"
    site.lose(4)
    site.wait(4)
    site.end()
    assert judged_once(folder, session).losses == 1
    assert judged_once(folder, session).losses == 0
    more = LedgerWriter(str(folder), "p", "producer", incarnation=2)
    more.record("confirmed", prod="p.1.1/1", first=site.next, last=site.next)
    more.close()
    assert judged_once(folder, session).losses == 1


@pytest.mark.soak
@pytest.mark.parametrize(
    ("roles", "code", "sentence"),
    [
        ((), 2, "nothing to judge: no ledger below {} (exit code 2)"),
        (("broker", "consumer"), 2, "nothing to judge: no ledger of a producer below {} (exit code 2)"),
        (("broker", "producer"), 0, ""),
    ],
)
def test_once_reports_missing_ledgers(
    roles: tuple[str, ...], code: int, sentence: str, tmp_path: Path, session: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = tmp_path / "ledgers"
    folder.mkdir()
    for role in roles:
        LedgerWriter(str(folder), role, role, incarnation=1).close()
    for _ in range(2):  # the second run knows it from the checkpoint
        assert _status(judged_once(folder, session), (folder,)) == code
        said = capsys.readouterr().err
        assert said == (f"understudy watch: {sentence.format(folder)}\n" if sentence else "")


def test_once_stopped_early_reports_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = Checkpoint(tmp_path / "watch")
    run = Watch([tmp_path], checkpoint, Limits(), [], once=True)
    run.stop()
    assert _status(run, (tmp_path,), losses=1) == 1, "printed now, found by an earlier run"
    assert _status(run, (tmp_path,)) == 2
    assert capsys.readouterr().err == "understudy watch: stopped before everything was judged (exit code 2)\n"
    checkpoint.close()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Missing argument"),
        ([".", "--retention", "soon"], "is not a duration"),
        ([".", "--webhook", "mailto:me"], "is not an http or https URL"),
        ([".", "--checkpoint", "/proc/no"], "cannot use checkpoint"),
        ([".", "--format", "xml"], "is not one of"),
        ([".", "--nonsense"], "No such option"),
    ],
)
def test_wrong_usage_ends_with_3_and_a_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("understudy.cli.watch._hold_signals", lambda: None)
    done = CliRunner().invoke(watch, arguments)
    assert done.exit_code == 3
    assert sentence in done.stderr and done.stderr.count("\n") == 1


def test_without_pyspark_no_folder_is_left(tmp_path: Path) -> None:
    ledgers = tmp_path / "ledgers"
    ledgers.mkdir()
    program = "import sys; sys.modules['pyspark'] = None; from understudy.cli.main import main; main()"
    command = [sys.executable, "-c", program, "watch", str(ledgers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 3 and "PySpark is not installed" in done.stderr
    assert list(tmp_path.iterdir()) == [ledgers]
