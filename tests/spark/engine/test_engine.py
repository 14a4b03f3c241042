"""The verdict on a real engine: `understudy reconcile` on a standalone cluster and on Spark Connect, with a
worker that is killed meanwhile. `make test-spark-cluster` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.spark.generate import Pair, Shape
from spark.session import find_java
from tests.spark.engine.standalone import STARTS, Engine, Worker, until

pytestmark = pytest.mark.soak

IDS = int(os.environ.get("SPARK_CLUSTER_IDS") or 20_000_000)
ENDS = 1800.0
"""Seconds that a run may take, on two cores shared with others."""


@dataclass(slots=True)
class Run:
    """The result of one `understudy reconcile`."""

    status: int
    errors: str
    answer: dict[str, Any] = field(default_factory=dict)
    stages: int = 0
    """Number of stages of which the second worker had tasks."""


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair through a failover, as range rows, without a loss."""
    folder = tmp_path_factory.mktemp("history") / "ledgers"
    Pair(folder, IDS, Shape(), seed=8).run()
    return folder


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine(tmp_path_factory.mktemp("engine") / "spark", find_java()) as made:
        yield made


def reconcile(
    engine: Engine, master: str, folder: Path, meanwhile: Callable[[Callable[[], bool]], None] | None = None
) -> Run:
    """Run the command as an operator does. `meanwhile` is called with a function that returns whether the run
    is over."""
    code = "from understudy.cli.main import main; main()"
    command = [sys.executable, "-c", code, "reconcile", str(folder), "--master", master, "--format", "json"]
    process = subprocess.Popen(
        command, env=engine.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said: list[str] = ["", ""]

    def read() -> None:
        said[:] = process.communicate()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        if meanwhile is not None:
            meanwhile(lambda: process.poll() is not None)
        reader.join(ENDS)
        assert process.poll() is not None, "it does not come to its end"
    finally:
        if process.poll() is None:
            process.kill()
        reader.join(STARTS)
    return Run(process.returncode, said[1], json.loads(said[0]) if said[0] else {})


def lost_in_the_middle(
    engine: Engine, worker: Worker, undisturbed: Run
) -> Callable[[Callable[[], bool]], None]:
    """Kill a worker with its executors, once it has had half as many stages as in the undisturbed run."""
    enough = worker.stages() + undisturbed.stages // 2

    def meanwhile(over: Callable[[], bool]) -> None:
        until(lambda: over() or worker.stages() >= enough, lambda: "tasks on the worker", ENDS)
        assert not over(), "it was over before the worker could be killed"
        worker.kill()
        engine.workers.remove(worker)

    return meanwhile


@pytest.fixture(scope="module")
def undisturbed(engine: Engine, history: Path) -> Run:
    run = reconcile(engine, engine.master, history)
    run.stages = engine.workers[-1].stages()
    return run


def test_nothing_of_the_project_is_on_the_workers(engine: Engine, tmp_path: Path) -> None:
    """Thus the other tests hold for workers that only have PySpark, pyarrow and numpy."""
    asked = [engine.environment["PYSPARK_PYTHON"], "-c", "import pyspark, pyarrow, numpy; import spark"]
    done = subprocess.run(asked, env=engine.environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.strip().endswith("No module named 'spark'"), done.stderr


def test_the_verdict_of_a_standalone_cluster(undisturbed: Run) -> None:
    assert undisturbed.status == 0, undisturbed.errors[-3000:]
    assert undisturbed.answer["verdict"] == "proven"
    assert undisturbed.answer["totals"]["confirmed"] > 0.99 * IDS, "it makes about as many as it is asked for"
    assert undisturbed.stages >= 4, "each worker has had its part"


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(
    engine: Engine, history: Path, undisturbed: Run
) -> None:
    worker = engine.workers[-1]
    run = reconcile(engine, engine.master, history, lost_in_the_middle(engine, worker, undisturbed))
    assert run.status == 0, run.errors[-3000:]
    until(lambda: engine.alive() == 1, lambda: f"the master to miss the worker: {engine.state()}")
    assert run.answer == undisturbed.answer


def test_spark_connect_and_a_worker_that_is_killed_in_the_middle(
    engine: Engine, history: Path, undisturbed: Run
) -> None:
    worker = engine.start_worker()
    run = reconcile(engine, engine.connect(), history, lost_in_the_middle(engine, worker, undisturbed))
    assert run.status == 0, run.errors[-3000:]
    assert "Lost executor" in engine.connect_log(), "Spark has noticed it"
    assert run.answer == undisturbed.answer
