"""How `make test` shares the tests out, and how it is measured."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.workers import APART, FIRST, TOGETHER, is_stale, longest_first, unit

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("start", sorted({*TOGETHER, *APART, *FIRST}))
def test_what_is_named_is_there(start: str) -> None:
    path, _, function = start.partition("::")
    assert (ROOT / path).exists()
    assert not function or f"def {function}(" in (ROOT / path).read_text()


def test_a_file_is_one_unit_and_so_is_all_that_shares_a_session() -> None:
    assert unit("tests/ha/replication/test_link.py::test_have") == unit(
        "tests/ha/replication/test_link.py::test_any[1]"
    )
    assert unit("tests/ha/replication/test_link.py::test_have") != unit("tests/ha/test_pair.py::test_have")
    assert unit("tests/spark/reconcile/test_ledgers.py::test_x") == unit(
        "tests/failover/test_rules.py::test_y"
    )
    assert unit(f"{APART[0]}[1]") != unit(f"{APART[0]}[251]")


def test_the_longest_come_first_in_their_own_order() -> None:
    ids = ["tests/broker/b.py::t", "tests/failover/a.py::t", "tests/broker/a.py::t", "tests/failover/a.py::s"]
    items: list[Any] = [SimpleNamespace(nodeid=nodeid) for nodeid in ids]
    longest_first(items)
    assert [item.nodeid for item in items] == [ids[1], ids[3], ids[0], ids[2]]


def test_a_file_is_stale_until_its_rewritten_assertions_are_kept(tmp_path: Path) -> None:
    file, cache = tmp_path / "test_a.py", tmp_path / "__pycache__"
    cache.mkdir()
    file.touch()
    assert is_stale(file)
    kept = cache / "test_a.cpython-311-pytest-9.0.0.pyc"
    kept.touch()
    os.utime(file, (1, 1))
    assert not is_stale(file)
    os.utime(kept, (0, 0))
    assert is_stale(file)


def test_measure_waits_for_a_process_that_outlives_its_parent() -> None:
    script = f"""{sys.executable} -c 'sum(range(10**7)); print("done")' & exit 3"""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "measure.py", "work", "sh", "-c", script],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    first, last = done.stdout.splitlines()
    assert first == "done", "waited for"
    assert re.fullmatch(r"work: \d+ min \d+ s, \d+ CPU-seconds", last)
