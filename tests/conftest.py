"""For every test: the seed that this run uses is printed, and no process may be left over at its end.

`PYTEST_SEED=N` repeats a run's random choices; without it a new seed is drawn, printed in the header, and
printed again when something failed. The processes of `pytest -n` use the seed of the one that started them;
each looks for what its own tests left over, and tells that one.

`UNDERSTUDY_TEST_NODES=FOLDER`: nodes and commands that the tests start use the compiled modules there. The
tests themselves run plain Python, whose methods they may replace.
"""

from __future__ import annotations

import gc
import os
import random
import secrets
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.workers import ByFile

RUN_MARK = "PYTEST_RUN_OF_THIS_TREE"
"""An environment variable that every process started by a test inherits, and by which leftovers are found."""

SEED = int(os.environ.get("PYTEST_SEED") or secrets.randbelow(2**31))

# Two shared cores stretch any deadline; a failing example is printed so that it can be pasted back.
set_hypothesis_home_dir(Path(__file__).parent.parent / ".hypothesis")
settings.register_profile("understudy", deadline=None, print_blob=True)
settings.load_profile("understudy")


_LEFT_OVER = "left over"
"""What a process of `pytest -n` tells at its end: lines."""
_left: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    os.environ["PYTEST_SEED"] = str(SEED)
    # Wheels of tests are plain, unless a test says otherwise.
    os.environ.setdefault("UNDERSTUDY_COMPILE", "0")
    os.environ[RUN_MARK] = f"{os.getpid()}.{SEED}"
    random.seed(SEED)
    if folder := os.environ.get("UNDERSTUDY_TEST_NODES"):
        _compile_nodes(folder, config)


def _compile_nodes(folder: str, config: pytest.Config) -> None:
    from understudy.shared.compiled_modules import Build  # now it is decided what this process itself runs

    assert Build.name == "pure"
    if not hasattr(config, "workerinput"):
        command = [sys.executable, "-c", f"from {Build.__module__} import Build; print(Build.reason)"]
        environment = os.environ | {"UNDERSTUDY_COMPILED": folder}
        reason = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        if reason.strip():
            raise pytest.UsageError(f"UNDERSTUDY_TEST_NODES: {reason.strip()}")
    if not _has_workers(config):
        os.environ["UNDERSTUDY_COMPILED"] = folder


def _has_workers(config: pytest.Config) -> bool:
    """Whether it starts the processes that run the tests."""
    return not hasattr(config, "workerinput") and bool(config.getoption("numprocesses", None))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of marked tests imports only the files that mark some: the others are most of the tree."""
    from tests.tiers import marks_none_of

    if not collection_path.name.startswith("test_"):
        return None
    return marks_none_of(config.getoption("markexpr"), collection_path) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """A million objects of modules and tests stay until the end. A collection of garbage does not look at
    them again: that would take longer than most tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {SEED} (repeat with PYTEST_SEED={SEED})"


@pytest.fixture
def seed() -> int:
    """This run's seed, for tests that make their own random choices."""
    return SEED


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """Spark's, for all tests; without PySpark those that want it are skipped."""
    pytest.importorskip("pyspark")
    from spark.session import open_session

    session = open_session(small=True)
    yield session
    session.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    if exitstatus:
        terminalreporter.write_line(f"repeat this run's random choices with PYTEST_SEED={SEED}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: object) -> None:
    from tests.workers import rewrite_once

    rewrite_once(Path(__file__).parent)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:
    from tests.workers import ByFile

    return ByFile(config, log) if config.getvalue("dist") == "load" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        from tests.workers import longest_first

        longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    _left.extend(getattr(node, "workeroutput", {}).get(_LEFT_OVER, []))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A process that a test left behind fails the run; it is ended, so that it harms no later one."""
    to_tell: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if not _has_workers(session.config):
        _left.extend(_end_what_is_left())
    if to_tell is not None:
        to_tell[_LEFT_OVER] = _left
        return
    for line in _left:
        print(f"\n{line}")
    if _left and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _end_what_is_left() -> list[str]:
    """A line for each."""
    lines = []
    for pid, command in _left_over(f"{RUN_MARK}={os.environ[RUN_MARK]}".encode()):
        lines.append(f"left over: process {pid}: {command}")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return lines


def _left_over(mark: bytes) -> list[tuple[int, str]]:
    """Living processes with this run's mark, besides pytest and what ends together with it by design."""
    found, spared = {}, set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            continue  # it ended, or is not ours to look at
        if mark not in environment or int(folder.name) == os.getpid() or not command:
            continue
        # Spark's Java, its Python workers, and multiprocessing's tracker end when this process does.
        if any(
            name in command for name in ("org.apache.spark", "pyspark", "multiprocessing.resource_tracker")
        ):
            spared.add(int(folder.name))
        else:
            found[int(folder.name)] = parent, command[:200]
    # Java starts helpers of its own for a moment, such as `jspawnhelper`.
    return [(pid, command) for pid, (parent, command) in found.items() if parent not in spared]
