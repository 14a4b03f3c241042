"""Shares the tests out between the processes of `pytest -n`, which `make test` uses.

A file's tests stay together, in their order: what a module makes once is made once. So do those that
`TOGETHER` names. What takes longest is begun first, so that no process is left with it at the end.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest

MANY = 20
"""Changed files of tests that a process alone takes a noticeable time to rewrite."""
WITH_SPARK = "Spark"
TOGETHER = {
    "tests/spark/": WITH_SPARK,
    "tests/failover/test_amqp10.py": WITH_SPARK,
    "tests/failover/test_growing.py": WITH_SPARK,
    "tests/failover/test_replicate.py": WITH_SPARK,
    "tests/failover/soak/test_rounds.py": WITH_SPARK,
    "tests/failover/test_rules.py": WITH_SPARK,
    "tests/failover/test_switchover.py": WITH_SPARK,
    "tests/deploy/": "deploy",
}
"""Tests that share what a process makes once: Spark's session and its JVM; a CIB by each tool."""
APART = (
    "tests/simulation/test_seeds.py::test_no_seed_fails",
    "tests/simulation/test_mutants.py::test_the_named_checker_finds_it",
)
"""Long cases that share nothing: whatever process has nothing else to do takes the next."""
FIRST = (
    "tests/deploy/",
    "tests/spark/",
    "tests/failover/",
    *APART,
    "tests/ha/replication/test_cuts.py",
    "tests/resource_agent/",
    "tests/interop/",
    "tests/simulation/",
    "tests/ha/",
)
"""The longest, as they are begun; the rest follow in the order of their collection."""


class ByFile(LoadScopeScheduling):
    """Hands a process its next unit, in the order of the collection, when it has hardly a test left."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # those of most tests first, however quick
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(nodeid: str) -> str:
    """What must be run by one process, in one go."""
    if nodeid.startswith(APART):
        return nodeid
    file = nodeid.split("::", 1)[0]
    return next((name for start, name in TOGETHER.items() if file.startswith(start)), file)


def longest_first(items: list[pytest.Item]) -> None:
    """Sort them so that files stay whole."""
    items.sort(key=lambda item: rank(item.nodeid))


def rank(nodeid: str) -> int:
    return next((place for place, start in enumerate(FIRST) if nodeid.startswith(start)), len(FIRST))


def rewrite_once(tests: Path) -> None:
    """Has pytest rewrite the assertions of the files of tests, which takes seconds and is kept on disk.

    After a clone, or a change of many files, each process of `pytest -n` would do that for all of them. Two
    processes do it here before, each for half of the files.
    """
    files = sorted(tests.rglob("test_*.py"), key=lambda path: path.stat().st_size)
    if sys.dont_write_bytecode or sum(map(is_stale, files)) < MANY:
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
    halves = [
        subprocess.Popen([*command, *half], stdout=subprocess.DEVNULL) for half in (files[::2], files[1::2])
    ]
    for half in halves:
        half.wait()


def is_stale(file: Path) -> bool:
    """Whether pytest has not kept the file with rewritten assertions since its last change."""
    changed = file.stat().st_mtime
    kept = (file.parent / "__pycache__").glob(f"{file.stem}.*-pytest-*.pyc")
    return not any(path.stat().st_mtime >= changed for path in kept)
