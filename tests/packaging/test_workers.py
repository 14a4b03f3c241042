"""How `make test` shares the tests out: what is named there is there, and files stay whole."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.workers import APART, FIRST, TOGETHER, longest_first, unit

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("start", sorted({*TOGETHER, *APART, *FIRST}))
def test_what_is_named_is_there(start: str) -> None:
    path, _, function = start.partition("::")
    assert (ROOT / path).exists()
    assert not function or f"def {function}(" in (ROOT / path).read_text()


def test_a_file_is_one_unit_and_so_is_all_that_shares_a_session() -> None:
    assert unit("tests/ha/test_link.py::test_have") == unit("tests/ha/test_link.py::test_any[1]")
    assert unit("tests/ha/test_link.py::test_have") != unit("tests/ha/test_pair.py::test_have")
    assert unit("tests/spark/test_books.py::test_x") == unit("tests/failover/test_rules.py::test_y")
    assert unit(f"{APART[0]}[1]") != unit(f"{APART[0]}[251]")


def test_the_longest_come_first_in_their_own_order() -> None:
    ids = ["tests/broker/b.py::t", "tests/failover/a.py::t", "tests/broker/a.py::t", "tests/failover/a.py::s"]
    items: list[Any] = [SimpleNamespace(nodeid=nodeid) for nodeid in ids]
    longest_first(items)
    assert [item.nodeid for item in items] == [ids[1], ids[3], ids[0], ids[2]]
