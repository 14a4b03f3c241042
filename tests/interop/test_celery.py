"""Celery with a real worker process: retries, chords, and a worker that goes on after a failover."""

from __future__ import annotations

import importlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.server.live import Live
from tests.failover.nodes.pair import Pair

pytest.importorskip("celery")

ROOT = Path(__file__).parents[2]
TASKS = "tests.interop.celery_tasks"
ONCE = "tests.interop.celery_once"
PATIENCE = 60.0


@contextmanager
def worker(folder: Path, broker: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Celery worker process on `broker`; gives the tasks, which this process sends to the same broker."""
    (folder / "results").mkdir()
    monkeypatch.setenv("INTEROP_BROKER", broker)
    monkeypatch.setenv("INTEROP_RESULTS", f"file://{folder / 'results'}")
    sys.modules.pop(TASKS, None)
    tasks = importlib.import_module(TASKS)
    arguments = ["-A", TASKS, "worker", "--pool", "threads", "--concurrency", "2", "--loglevel", "WARNING"]
    with (folder / "worker.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", *arguments],
            cwd=ROOT,
            env=dict(os.environ),
            stdout=log,
            stderr=log,
        )
    try:
        assert tasks.add.delay(1, 2).get(timeout=PATIENCE) == 3
        yield tasks
        assert process.poll() is None, (folder / "worker.log").read_text()[-2000:]
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        tasks.app.close()
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_worker_runs_retries_chords_and_answers_control(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with worker(tmp_path, live.url, monkeypatch) as tasks:
        assert tasks.third_time_lucky.delay().get(timeout=PATIENCE) == 2
        from celery import chord, group

        assert chord(tasks.add.s(n, n) for n in range(5))(tasks.total.s()).get(timeout=PATIENCE) == 20
        assert group(tasks.add.s(n, 1) for n in range(3))().get(timeout=PATIENCE) == [1, 2, 3]
        assert tasks.app.control.inspect(timeout=5).ping()
        later = [tasks.add.apply_async((n, 0), countdown=3600) for n in range(20)]
        assert tasks.add.delay(3, 4).get(timeout=PATIENCE) == 7, "tasks with a countdown block nobody"
        assert len(later) == 20


def test_the_settings_for_django_are_the_same() -> None:
    from celery import Celery

    from tests.interop.celery_tasks import settings_of

    plain, django = settings_of(0), settings_of(1)
    assert {key.removeprefix("CELERY_").lower(): value for key, value in django.items()} == plain
    app = Celery("django")
    app.config_from_object(SimpleNamespace(**django), namespace="CELERY")
    assert {key: getattr(app.conf, key) for key in plain} == plain


def test_a_worker_goes_on_after_a_failover_and_no_task_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pair(tmp_path) as pair:
        pair.whole()
        both = ";".join(f"amqp://guest:guest@{pair.addresses[name]}//" for name in ("left", "right"))
        with worker(tmp_path, both, monkeypatch) as tasks:
            refused: list[str] = []

            def fail_over() -> None:
                time.sleep(0.5)
                pair.kill("left")
                code, _, err = pair.command("promote", "right")
                if code:
                    refused.append(err)

            operator = threading.Thread(target=fail_over)
            operator.start()
            sent: list[Any] = []
            until, after = time.monotonic() + PATIENCE, 0
            while after < 50 and time.monotonic() < until:
                sent.append(tasks.add.delay(len(sent), 1))
                after += not operator.is_alive()
            operator.join()
            assert not refused
            assert after == 50
            assert [result.get(timeout=PATIENCE) for result in sent] == list(range(1, len(sent) + 1))


@pytest.mark.system
def test_a_task_that_has_run_sees_it_when_it_comes_again(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of the pool dies between the commit and the ack."""
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("CREATE TABLE bookings (name TEXT)")
    monkeypatch.setenv("INTEROP_BROKER", live.url)
    monkeypatch.setenv("INTEROP_RESULTS", f"file://{tmp_path}")
    tasks = importlib.import_module(ONCE)
    command = [sys.executable, "-m", "celery", "-A", ONCE, "worker", "--concurrency", "1"]
    with (tmp_path / "worker.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=log, stderr=log
        )
    try:
        for order in ("one", "two"):
            tasks.book.delay(order).get(timeout=PATIENCE)
    finally:
        tasks.app.close()
        process.terminate()
        process.wait(PATIENCE)
    assert (tmp_path / "died").exists()
    assert database.execute("SELECT name FROM bookings").fetchall() == [("one",), ("two",)]
    assert "WorkerLostError" in (tmp_path / "worker.log").read_text()
